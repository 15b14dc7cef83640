//! Compiles the protos with protox, so that no system `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/weir/v1/weir.proto"], ["proto"])?;
    Ok(tonic_prost_build::configure().build_server(false).build_transport(false).compile_fds(descriptors)?)
}
