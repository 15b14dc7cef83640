//! Compiles the protos with protox, so that no system `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;
use prost_build::Config;
use protox::Compiler;

const RATE_LIMIT_SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";
const OTHERS: [&str; 3] = [
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "ratelimit/config/ratelimit/v3/rls_conf.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file(RATE_LIMIT_SERVICE)?;
    let descriptors = compiler.file_descriptor_set().encode_to_vec();
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("rate_limit_service.binpb"), descriptors)?;
    for file in OTHERS {
        compiler.open_file(file)?;
    }
    let mut config = Config::new();
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    let messages = tonic_prost_build::configure().build_transport(false).include_file("messages.rs");
    Ok(messages.compile_fds_with_config(compiler.file_descriptor_set(), config)?)
}
