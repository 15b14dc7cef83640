//! A running Envoy.

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use weir_test_redis::Process;

use crate::support::{eventually, http};

/// The path at which `examples/envoy/get-envoy` installs it, below the build directory.
const INSTALLED: &str = "envoy-1.40.0/envoy/_bin/envoy";
/// The variable with the path of another Envoy.
const OTHER: &str = "WEIR_TEST_ENVOY";

/// An Envoy with a directory of its own, stopped on drop.
pub struct Proxy {
    _process: Process,
    /// The address of its listener.
    pub address: String,
    admin: String,
    dir: TempDir,
}

impl Proxy {
    /// Starts Envoy with this configuration, in YAML or JSON, and waits until it serves.
    pub fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name).to_str().expect("a path").to_owned();
        let (file, admin_file, log) = (path("config.yaml"), path("admin"), path("log"));
        fs::write(&file, config).expect("written");
        let program = program();
        let process = Process::start(
            &[
                program.to_str().expect("a path"),
                "--config-path",
                &file,
                "--admin-address-path",
                &admin_file,
                "--disable-hot-restart",
                "--concurrency",
                "2",
                "--log-level",
                "warning",
            ],
            dir.path(),
            &File::create(&log).expect("a file"),
        );
        let lives = || {
            let log_text = || fs::read_to_string(&log).unwrap_or_default();
            assert!(!process.has_ended(), "Envoy has ended: {}", log_text());
        };
        let admin = eventually("Envoy tells where its pages are", || {
            lives();
            fs::read_to_string(&admin_file).ok().filter(|address| !address.is_empty())
        });
        eventually("Envoy is ready", || {
            lives();
            http::get(&admin, "/ready").ok().filter(|(status, _)| *status == 200)
        });
        let address = line(&admin, "/listeners", "ingress::").expect("its listener");
        Self { _process: process, address, admin, dir }
    }

    /// Returns Envoy's count of requests by outcome (`ok`, `over_limit`, `error`, `failure_mode_allowed`).
    pub fn counted(&self, what: &str) -> u64 {
        let name = format!("cluster.upstream.ratelimit.{what}");
        let count = line(&self.admin, &format!("/stats?filter=^{name}$"), &format!("{name}: "));
        count.map_or(0, |count| count.parse().expect("a number"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).expect("its log")
    }
}

/// Returns the rest of the line that begins with `start`. Small pages are one chunk, whose length is a line of its own.
fn line(admin: &str, path: &str, start: &str) -> Option<String> {
    let page = http::get(admin, path).expect("a page").1;
    page.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned)
}

fn program() -> PathBuf {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the directory of the build");
    let program = env::var_os(OTHER).map_or_else(|| build.join(INSTALLED), PathBuf::from);
    assert!(
        program.is_file(),
        "{} is missing: examples/envoy/get-envoy installs it, as ./test does",
        program.display()
    );
    program
}
