//! Compiles the protos with protox, so that no system `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;
use prost_build::Config;
use protox::Compiler;

/// The services that are served, each with the file for its descriptors.
const SERVED: [(&str, &str); 2] = [
    ("envoy/service/ratelimit/v3/rls.proto", "rate_limit_service.binpb"),
    ("envoy/service/rate_limit_quota/v3/rlqs.proto", "rate_limit_quota_service.binpb"),
];
const OTHERS: [&str; 2] = ["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for (file, descriptors) in SERVED {
        let mut compiler = Compiler::new(["proto"])?;
        compiler.include_imports(true).open_file(file)?;
        fs::write(out.join(descriptors), compiler.file_descriptor_set().encode_to_vec())?;
    }
    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true);
    for file in SERVED.map(|(file, _)| file).into_iter().chain(OTHERS) {
        compiler.open_file(file)?;
    }
    let mut config = Config::new();
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    let messages = tonic_prost_build::configure().build_transport(false).include_file("messages.rs");
    Ok(messages.compile_fds_with_config(compiler.file_descriptor_set(), config)?)
}
