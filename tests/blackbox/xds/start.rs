//! Starts of a service whose policy comes from a control plane: with a saved policy, and without one.

use std::fs;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use serde_json::json;

use super::{ask, left, setup};
use crate::support::{
    Folder,
    control_plane::{ControlPlane, config, yearly},
    eventually, eventually_async,
    server::Setup,
};

/// Whether the file contains the response of this version, which follows the first line.
fn is_kept(path: &str, version: &str) -> bool {
    let version = [b"\n\n\x01", version.as_bytes()].concat();
    fs::read(path).is_ok_and(|kept| kept.windows(version.len()).any(|bytes| bytes == version))
}

#[tokio::test]
async fn a_kept_policy_serves_after_a_restart_without_the_control_plane() {
    let kept = Folder::new();
    let path = kept.path("last");
    let keeping = |setup: Setup| setup.env("WEIR_XDS__LAST_POLICY_FILE", &path);
    let plane = ControlPlane::start();
    let server = keeping(setup(&plane)).spawn();
    plane.request(0);
    plane.send("1", vec![config("a", "d", vec![yearly("k", "", 3)])]);
    let server = server.serving();
    plane.send("2", vec![config("a", "d", vec![yearly("k", "", 4)])]);
    eventually("the policy is kept", || is_kept(&path, "2").then_some(()));
    plane.send("bad", vec![config("a", "", Vec::new())]);
    let address = plane.address().to_owned();
    drop((server, plane));

    let away = |setup: Setup| setup.limits(format!("xds://{address}").into()).env("WEIR_XDS__BACKOFF__INITIAL", "10ms");
    let server = away(keeping(Setup::new())).start();
    assert_eq!(left(&server, "d", &["k", "v"]).await, Some((4, 4)));
    assert_eq!(server.get("/readyz").0, 200);
    drop(server);

    fs::write(&path, "damaged").expect("written");
    let waiting = away(keeping(Setup::new())).spawn();
    waiting.wait_for_log("xds.last_policy_file cannot be read: ignored");
    waiting.wait_for_log("waiting for a policy: the ports are closed until there is one");
    let plane = ControlPlane::at(&address, None);
    assert_eq!(plane.request(0).version_info, "", "all is asked for");
    plane.send("3", vec![config("a", "d", vec![yearly("k", "", 5)])]);
    assert_eq!(left(&waiting.serving(), "d", &["k", "v"]).await, Some((5, 5)));
}

#[tokio::test]
async fn a_file_that_hangs_holds_up_no_policy() {
    for start in ["wait", "ready"] {
        let kept = Folder::new();
        let path = kept.path("last");
        // The file is first written next to its target. Opening a FIFO for writing blocks until there is a reader.
        let hanging = kept.path("last.tmp");
        mknodat(CWD, &hanging, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        let plane = ControlPlane::start();
        let server = setup(&plane).env("WEIR_XDS__START", start).env("WEIR_XDS__LAST_POLICY_FILE", &path).spawn();
        plane.request(0);
        for version in 1..=3 {
            let ack = plane.send(&version.to_string(), vec![config("a", "d", vec![yearly("k", "", version)])]);
            assert_eq!((ack.version_info, ack.error_detail), (version.to_string(), None), "{start}");
        }
        let mut server = server.serving();
        eventually_async("the policy", async || (left(&server, "d", &["k", "v"]).await == Some((3, 3))).then_some(()))
            .await;
        server.wait_for_log("xds.last_policy_file takes too long to write: a policy was not kept, a newer one will be");

        // The blocked write ends with an error, as a FIFO cannot be synced.
        let aside = kept.path("aside");
        fs::rename(&hanging, &aside).expect("renamed");
        let _reader = open(&aside, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("a FIFO");
        plane.send("4", vec![config("a", "d", vec![yearly("k", "", 4)])]);
        eventually("the newest policy is kept", || is_kept(&path, "4").then_some(()));
        server.stop();
    }
}

#[test]
fn a_service_that_waits_for_its_first_policy_is_stopped() {
    for _ in 0..10 {
        let mut server = Setup::new().limits("xds://127.0.0.1:1".into()).spawn();
        server.wait_for_log("waiting for a policy: the ports are closed until there is one");
        server.stop();
        server.wait_for_log("stopped during startup");
        assert!(!server.log().iter().any(|line| line.contains("panicked")), "{:#?}", server.log());
    }
}

#[tokio::test]
async fn without_a_policy_checks_fail_and_readiness_as_set() {
    for (start, status) in [("not_ready", 503), ("ready", 200)] {
        let plane = ControlPlane::start();
        let server = setup(&plane).env("WEIR_XDS__START", start).start();
        plane.request(0);
        assert_eq!((server.get("/readyz").0, server.get("/healthz").0), (status, 200), "{start}");
        assert_eq!(server.run(&["health"]).code, i32::from(status != 200), "{start}");
        assert_eq!(server.metric("weir_policy_last_reload_successful"), 1.0, "no policy is not an invalid one");
        // No policy is not another policy, for which an alert waits, and has no age.
        let series = ["\nweir_policy_info{", "\nweir_policy_last_reload_success_timestamp_seconds "];
        let exported = || series.map(|name| server.get("/metrics").1.contains(name));
        assert_eq!(exported(), [false; 2], "{start}");
        let failed = ask(&server, "d", &["k", "v"], 1).await.expect_err("no policy");
        assert_eq!((failed.code(), failed.message()), (tonic::Code::Unavailable, "no policy has been received yet"));
        let native = server.run(&["check", "k", "v"]);
        assert!(native.code == 2 && native.err.contains("no policy has been received yet"), "{native:?}");
        // It is no error of one of the checks.
        let all = server.ask("POST /v1/check_all", None, &json!({ "checks": [{ "key": ["k"] }, { "key": ["l"] }] }));
        let problem = all.json();
        assert_eq!((all.status, &problem["detail"]), (503, &json!("no policy has been received yet")), "{problem}");
        assert_eq!(problem.get("field"), None, "{problem}");
        plane.send("invalid", vec![config("a", "", Vec::new())]);
        server.wait_for_log("the policy of the control plane is not valid; there is none yet");
        plane.send("1", vec![config("a", "d", vec![yearly("k", "", 3)])]);
        eventually("it is ready", || (server.get("/readyz").0 == 200).then_some(()));
        eventually("it is healthy", || (server.run(&["health"]).code == 0).then_some(()));
        assert_eq!(left(&server, "d", &["k", "v"]).await, Some((3, 3)));
        assert_eq!(exported(), [true; 2], "{start}");
    }
}
