//! Compiles the protos with protox, so that no system `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/weir/v1/weir.proto", "proto/weir/v1/admin.proto"], ["proto"])?;
    let client = tonic_prost_build::configure().build_server(false).extern_path(".weir.v1", "::weir_core::proto");
    Ok(client.compile_fds(descriptors)?)
}
