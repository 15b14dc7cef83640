//! Compiles the protos with protox, so that no system `protoc` is needed.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use prost::Message as _;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=Cargo.lock");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    own()?;
    envoy(&out)
}

fn own() -> Outcome<()> {
    let descriptors = protox::compile(["proto/weir/v1/weir.proto"], ["proto"])?;
    let client = tonic_prost_build::configure().build_server(false).extern_path(".weir.v1", "::weir_core::proto");
    Ok(client.compile_fds(descriptors)?)
}

/// The descriptors that Envoy's rate-limit service needs, of the hundreds that the crate with the messages has.
fn envoy(out: &Path) -> Outcome<()> {
    let protos = package("envoy-types")?.join("proto");
    let includes: Vec<_> = fs::read_dir(protos)?.map(|entry| Ok(entry?.path())).collect::<Outcome<_>>()?;
    let descriptors = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], includes)?;
    Ok(fs::write(out.join("envoy_descriptor.bin"), descriptors.encode_to_vec())?)
}

/// The directory of a package that this one depends on.
fn package(name: &str) -> Outcome<PathBuf> {
    let (cargo, target) = (env::var("CARGO")?, env::var("TARGET")?);
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &target];
    let output = Command::new(cargo).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut manifests = packages.filter(|it| it["name"] == name).filter_map(|it| it["manifest_path"].as_str());
    let manifest = manifests.next().ok_or_else(|| format!("{name} is no dependency"))?;
    Ok(Path::new(manifest).parent().ok_or("no directory")?.to_owned())
}
