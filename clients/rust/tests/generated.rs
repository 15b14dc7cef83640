//! The committed code is what the protos generate. `WEIR_GENERATE=1 cargo test --test generated` writes it.

use std::{fs, path::Path};

#[test]
fn generated_code_is_that_of_the_protos() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (proto, committed) = (root.join("proto"), root.join("src/generated/weir.v1.rs"));
    let out = tempfile::tempdir().expect("a directory");
    let descriptors = protox::compile([proto.join("weir/v1/weir.proto")], [&proto]).expect("valid protos");
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("generated");
    let generated = fs::read_to_string(out.path().join("weir.v1.rs")).expect("the code");
    if std::env::var_os("WEIR_GENERATE").is_some() {
        fs::write(&committed, &generated).expect("written");
    }
    let unchanged = fs::read_to_string(&committed).expect("the committed code") == generated;
    assert!(unchanged, "the protos have changed: run WEIR_GENERATE=1 cargo test -p weir-client --test generated");
}
