//! Compiles the protos with protox, so that no system `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/weir/v1/weir.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("weir_descriptor.bin");
    fs::write(out, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().codec_path("crate::transport::codec::Codec").compile_fds(descriptors)?;
    Ok(())
}
