//! Compiles the messages with protox, so that no system `protoc` is needed. Without the feature `proto` it does
//! nothing.

// `clippy.toml` forbids files and the environment for the core; its build script needs them.
#![allow(clippy::disallowed_methods)]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "proto")]
    messages()?;
    Ok(())
}

#[cfg(feature = "proto")]
fn messages() -> Result<(), Box<dyn Error>> {
    use prost::Message as _;

    println!("cargo:rerun-if-changed=proto");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptors = protox::compile(["proto/weir/v1/weir.proto", "proto/weir/v1/admin.proto"], ["proto"])?;
    std::fs::write(out.join("weir_descriptor.bin"), descriptors.encode_to_vec())?;
    Ok(prost_build::Config::new().compile_fds(descriptors)?)
}
