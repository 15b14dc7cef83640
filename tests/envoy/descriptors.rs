//! The descriptor set that is checked in is what the protos of `envoy-types` compile to.
//!
//! `DESCRIPTORS_WRITE=1 cargo test --test envoy descriptors` writes it anew, after an update of that crate.

use std::{env, fs, path::PathBuf, process::Command};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use protox::Compiler;
use serde_json::Value;
use weir::transport::rls::pb::DESCRIPTORS;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/transport/rls/descriptors.binpb");

/// The directory of a package that this one depends on.
fn package(name: &str) -> PathBuf {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--format-version", "1", "--locked", "--manifest-path"];
    let output = Command::new(cargo).args(arguments).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == name).expect("the package");
    PathBuf::from(package["manifest_path"].as_str().expect("a path")).parent().expect("a directory").to_owned()
}

#[test]
fn the_checked_in_descriptor_set_is_up_to_date() {
    let protos = fs::read_dir(package("envoy-types").join("proto")).expect("protos");
    let includes = protos.map(|entry| entry.expect("an entry").path());
    let mut compiler = Compiler::new(includes).expect("a compiler");
    compiler.include_imports(true).open_file("envoy/service/ratelimit/v3/rls.proto").expect("the service");
    let compiled = compiler.file_descriptor_set();
    if env::var_os("DESCRIPTORS_WRITE").is_some() {
        fs::write(PATH, compiled.encode_to_vec()).expect("written");
        return;
    }
    let checked_in = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    // Not shown in full: it is thousands of lines long.
    assert!(checked_in == compiled, "write it anew: DESCRIPTORS_WRITE=1");
}
