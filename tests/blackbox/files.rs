//! Special, endless and half-written files: they change nothing, block nothing, and are named in errors.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tonic::Code;

use crate::{
    support::{
        Folder, Server, eventually, eventually_async, finish,
        pki::{Authority, Leaf, put},
        requests::{check, peek},
        server::Setup,
        weir,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "schema: { '*': { limits: [[9, 1, 86400]] } }\n";
const OTHER: &str = "schema: { '*': { limits: [[19, 1, 86400]] } }\n";
const BAD: &str = "weir_policy_reloads_total{result=\"error\"}";
const BAD_CALLERS: &str = "weir_auth_reloads_total{result=\"error\"}";
const NOT_VALID: &str = "the new policy is not valid; the previous one stays in force";

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

/// Replaces a file with one that `make` creates.
fn replace(path: &Path, make: impl FnOnce(&Path)) {
    let new = path.with_file_name(".new");
    make(&new);
    fs::rename(new, path).expect("renamed");
}

/// Returns the error of the `index`th invalid policy.
fn problem(server: &Server, index: usize) -> String {
    let line = eventually("it is logged", || server.log_lines(NOT_VALID).get(index).cloned());
    line["problem"].as_str().expect("a text").to_owned()
}

async fn limit(server: &Server) -> u64 {
    server.check(peek(&["a"])).await.limit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_as_credentials_file_blocks_neither_reload_nor_shutdown() {
    let (revoked, metrics) = (token(), token());
    let watcher = caller("m", "metrics", &metrics, "");
    let both = format!("callers:\n{}{watcher}", caller("revoked", "check", &revoked, ""));
    let mut server = Setup::new().policy(POLICY).credentials(&both).start();
    let auth = server.dir.path().join("auth.yaml");
    replace(&auth, fifo);
    server.wait_for_metric_by(&metrics.token, BAD_CALLERS, 1.0);
    let mut client = server.client().await;
    client.check(by(Some(&revoked.token), check(&["a"]))).await.expect("the callers before are in force");
    put(&auth, &format!("callers:\n{watcher}"));
    eventually_async("the token is revoked", async || {
        let refused = client.check(by(Some(&revoked.token), check(&["a"]))).await.err()?;
        (refused.code() == Code::Unauthenticated).then_some(())
    })
    .await;
    // The FIFO is in place again at shutdown.
    replace(&auth, fifo);
    server.wait_for_metric_by(&metrics.token, BAD_CALLERS, 2.0);
    drop(client);
    server.stop();
}

#[test]
fn a_special_file_of_overrides_ends_the_start() {
    let dir = Folder::new();
    let path = dir.path("weir.snapshot.overrides");
    fifo(Path::new(&path));
    let mut serve = weir();
    serve.args(["serve", "--allow-all"]).env("WEIR_STORE__SNAPSHOT__PATH", dir.path("weir.snapshot"));
    let run = finish(&mut serve);
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{run:?}");
    let expected = format!("the overrides in {path}: a FIFO, a socket or a device, not a regular file");
    assert!(run.err.contains(&expected), "{}", run.err);
}

#[tokio::test]
async fn a_special_or_oversized_policy_file_keeps_the_old_policy() {
    let server = Server::with_policy(POLICY);
    let path = server.dir.path().join("limits.yaml");
    let before = server.resident();
    let endless = |path: &Path| symlink("/dev/zero", path).expect("linked");
    let long = |path: &Path| File::create(path).expect("created").set_len(1 << 40).expect("a sparse file");
    let kinds: [fn(&Path); 3] = [fifo, endless, long];
    let irregular = "a FIFO, a socket or a device, not a regular file";
    let expected = [irregular, irregular, "with this file the policy is over 67108864 bytes"];
    for (index, (make, expected)) in kinds.into_iter().zip(expected).enumerate() {
        replace(&path, make);
        server.wait_for_metric(BAD, (index + 1) as f64);
        let problem = problem(&server, index);
        assert!(problem.contains("limits.yaml") && problem.ends_with(expected), "{problem}");
        assert_eq!(limit(&server).await, 10);
    }
    assert!(server.resident() < before + (512 << 20), "{} bytes, {before} before", server.resident());
    server.replace_policy(OTHER);
    eventually_async("a file is taken again", async || (limit(&server).await == 20).then_some(())).await;
}

#[tokio::test]
async fn a_fifo_or_broken_link_in_the_policy_directory_is_an_error() {
    let setup = Setup::new();
    let policies = setup.path("policies");
    fs::create_dir(&policies).expect("made");
    put(&policies.join("a.yaml"), POLICY);
    let server = setup.limits(policies.clone()).start();
    fifo(&policies.join("b.yaml"));
    server.wait_for_metric(BAD, 1.0);
    replace(&policies.join("b.yaml"), |path| symlink("nowhere", path).expect("linked"));
    server.wait_for_metric(BAD, 2.0);
    put(&policies.join("a.yaml"), OTHER);
    server.wait_for_metric(BAD, 3.0);
    assert_eq!(limit(&server).await, 10);
    fs::remove_file(policies.join("b.yaml")).expect("removed");
    eventually_async("it is taken", async || (limit(&server).await == 20).then_some(())).await;
}

#[test]
fn a_fifo_or_an_oversized_file_fails_the_start() {
    let dir = Folder::new();
    let path = &dir.path("file");
    let key = dir.write("key", Authority::new("ours").sign(Leaf::host("localhost")).key);
    let with_key = ("WEIR_GRPC__TLS__KEY", key.as_str());
    let shared = ("WEIR_STORE__URL", "rediss://127.0.0.1:1");
    for (name, with, most) in [
        ("WEIR_CONFIG", None, Some(1 << 20)),
        ("WEIR_LIMITS", None, Some(64 << 20)),
        ("WEIR_AUTH__FILE", None, Some(4 << 20)),
        ("WEIR_GRPC__TLS__CERT", Some(with_key), Some(4 << 20)),
        ("WEIR_STORE__REDIS__TLS__CA", Some(shared), Some(4 << 20)),
        ("WEIR_STORE__SNAPSHOT__PATH", None, None),
    ] {
        let refused = |expected: &str| {
            let mut serve = weir();
            serve.arg("serve").env("WEIR_ALLOW_ALL", (name != "WEIR_LIMITS").to_string()).env(name, path).envs(with);
            let run = finish(&mut serve);
            assert_eq!(run.code, 2, "{name}: {run:?}");
            assert!(run.err.contains(path) && run.err.contains(expected), "{name}: {expected} is missing: {}", run.err);
        };
        fifo(Path::new(path));
        refused("a FIFO, a socket or a device, not a regular file");
        if let Some(most) = most {
            fs::remove_file(path).expect("removed");
            File::create(path).expect("created").set_len(most + 1).expect("a sparse file");
            refused(&format!("over {most} bytes"));
        }
        fs::remove_file(path).expect("removed");
    }
}

#[tokio::test]
async fn a_truncated_policy_without_its_end_marker_is_rejected() {
    let whole = |policy: &str| format!("{policy}...\n");
    let setup = Setup::new().env("WEIR_LIMITS_REQUIRE_END_MARKER", "true");
    let server = setup.policy(&whole(POLICY)).start();
    let long = format!("{}# a comment\n", "domain: ''\n");
    for (index, beginning) in [long.as_str(), OTHER, "schema: {}", "", "schema: {} # ...\n"].into_iter().enumerate() {
        server.replace_policy(beginning);
        server.wait_for_metric(BAD, (index + 1) as f64);
        let problem = problem(&server, index);
        assert!(problem.contains("limits.yaml: the file must end with the line `...`"), "{problem}");
        assert_eq!(limit(&server).await, 10, "{beginning}");
    }
    server.replace_policy(&whole(OTHER));
    eventually_async("a whole one is taken", async || (limit(&server).await == 20).then_some(())).await;
    let lint = |args: &[&str]| {
        let path = server.dir.path().join("limits.yaml");
        finish(weir().args(["limits", "lint", path.to_str().expect("a path")]).args(args)).code
    };
    assert_eq!((lint(&[]), lint(&["--require-end-marker"])), (0, 0));
    server.replace_policy(POLICY);
    assert_eq!((lint(&[]), lint(&["--require-end-marker"])), (0, 2));
}
