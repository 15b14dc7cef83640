//! The load generator, which is a program of its own.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

/// Where it lies: beside the service. Cargo builds it for these tests only where all packages are tested, so it is built here.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let service = Path::new(env!("CARGO_BIN_EXE_weir"));
    let folder = service.parent().expect("a folder");
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    let mut cargo = Command::new(env!("CARGO"));
    // Of the whole workspace, so that dependencies have the same features as for these tests and are not built again.
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--bin", "weir-bench", "--profile", profile]);
    cargo.arg("--target-dir").arg(folder.parent().expect("a folder")).current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().expect("cargo runs").success(), "weir-bench does not build");
    folder.join("weir-bench")
});

/// The program in an environment without settings.
pub fn weir_bench() -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.env_clear().stdin(Stdio::null());
    command
}
