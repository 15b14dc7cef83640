//! The load generator, a separate program.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

/// The path of the program, next to the service. Cargo builds it for these tests only if all packages are tested, so it
/// is built here.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let service = Path::new(env!("CARGO_BIN_EXE_weir"));
    let folder = service.parent().expect("a folder");
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    let mut cargo = Command::new(env!("CARGO"));
    // The whole workspace with a test: dependencies then have the same features as for these tests, and are not built
    // again.
    let targets = ["--workspace", "--bin", "weir-bench", "--test", "floors"];
    cargo.args(["build", "--quiet", "--locked", "--profile", profile]).args(targets);
    // Variables that Cargo sets for the package of these tests. With other values `ring` and all its dependents would
    // be built again.
    let of_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for name in env::vars_os().map(|(name, _)| name).filter(of_package) {
        cargo.env_remove(name);
    }
    cargo.arg("--target-dir").arg(folder.parent().expect("a folder")).current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().expect("cargo runs").success(), "weir-bench does not build");
    folder.join("weir-bench")
});

/// Returns the command of the load generator, in an environment without settings.
pub fn weir_bench() -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.env_clear().stdin(Stdio::null());
    command
}
