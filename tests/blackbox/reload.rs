//! Reloads of the policy: a valid one is loaded, an invalid one changes nothing, counts are kept.

use std::{fs, os::unix::fs::symlink, path::Path};

use rustix::process::Signal;
use weir::proto::CheckResponse;

use crate::support::{
    Server, eventually, eventually_async,
    requests::{check, peek, short},
    server::Setup,
};

const GOOD: &str = "weir_policy_reloads_total{result=\"success\"}";
const BAD: &str = "weir_policy_reloads_total{result=\"error\"}";
const SUCCESSFUL: &str = "weir_policy_last_reload_successful";

/// Makes a policy with bursts of `most` units, which refill too slowly to matter.
fn policy(most: u64) -> String {
    format!("schema: {{ user: {{ children: {{ '*': {{ limits: [[{}, 1, 86400]] }} }} }} }}", most - 1)
}

async fn state(server: &Server) -> CheckResponse {
    server.check(peek(&["user", "alex"])).await
}

/// Writes a file atomically, so that no reader gets half of it.
fn write_at_once(path: &Path, text: &str) {
    let new = path.with_file_name(".new");
    fs::write(&new, text).expect("written");
    fs::rename(new, path).expect("renamed");
}

/// Spends units of user/alex.
async fn spend(server: &Server, units: i64) {
    let request = weir::proto::CheckRequest { cost: Some(units), ..check(&["user", "alex"]) };
    assert!(server.check(request).await.allowed);
}

/// Waits until the effective limit is `most`. Returns the state of the key.
async fn wait_for_limit(server: &Server, most: u64) -> (bool, u64, u64) {
    eventually_async("the new policy is in force", async || {
        let answer = state(server).await;
        (answer.limit == most).then(|| short(&answer))
    })
    .await
}

#[tokio::test]
async fn a_file_renamed_or_written_in_place_is_loaded_and_counts_are_kept() {
    let server = Server::with_policy(&policy(10));
    spend(&server, 4).await;
    server.replace_policy(&policy(20));
    assert_eq!(wait_for_limit(&server, 20).await, (true, 20, 16));
    server.replace_policy(&policy(3));
    // The 4 spent units exceed the new limit of 3, so none is left. A preview costs nothing and passes.
    assert_eq!(wait_for_limit(&server, 3).await, (true, 3, 0));
    server.wait_for_metric(GOOD, 2.0);
    assert_eq!(server.metric(BAD), 0.0);

    assert_eq!(server.run(&["reset", "user", "alex"]).code, 0);
    spend(&server, 1).await;
    fs::write(server.dir.path().join("limits.yaml"), policy(5)).expect("written");
    assert_eq!(wait_for_limit(&server, 5).await, (true, 5, 4));
}

#[tokio::test]
async fn a_kubernetes_config_map_update_is_loaded() {
    let setup = Setup::new();
    let mount = setup.path("mount");
    let version = |name: &str, most: u64| {
        fs::create_dir_all(mount.join(name)).expect("made");
        fs::write(mount.join(name).join("limits.yaml"), policy(most)).expect("written");
    };
    let link = |target: &str, at: &Path| symlink(target, at).expect("linked");
    version("..2026_01", 10);
    link("..2026_01", &mount.join("..data"));
    link("..data/limits.yaml", &mount.join("limits.yaml"));
    let server = setup.limits(mount.clone()).start();
    spend(&server, 2).await;

    version("..2026_02", 30);
    link("..2026_02", &mount.join("..data_tmp"));
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("swapped");
    fs::remove_dir_all(mount.join("..2026_01")).expect("removed");
    assert_eq!(wait_for_limit(&server, 30).await, (true, 30, 28));
}

#[tokio::test]
async fn sighup_reloads_the_policy_immediately() {
    let setup = Setup::new().env("WEIR_LIMITS_POLL", "1d").policy(&policy(10));
    let server = setup.start();
    server.replace_policy(&policy(20));
    server.signal(Signal::HUP);
    assert_eq!(wait_for_limit(&server, 20).await, (true, 20, 20));
    server.wait_for_metric(GOOD, 1.0);
    server.signal(Signal::HUP);
    server.wait_for_metric(GOOD, 2.0);
}

#[tokio::test]
async fn an_invalid_policy_keeps_the_previous_one_and_is_counted() {
    let server = Server::with_policy(&policy(10));
    spend(&server, 4).await;
    let bad = [
        "schema: [".to_owned(),
        "shcema: {}".to_owned(),
        policy(10).replace("limits", "limit"),
        policy(10).replace("[[9, 1, 86400]]", "[{ magic: {} }]"),
        policy(10).replace("[[9, 1, 86400]]", "[[9, 0, 86400]]"),
        "schema: { a: , a: }".to_owned(),
        "# nothing\n".to_owned(),
    ];
    for (index, yaml) in bad.iter().enumerate() {
        server.replace_policy(yaml);
        server.wait_for_metric(BAD, (index + 1) as f64);
        assert_eq!(short(&state(&server).await), (true, 10, 6), "{yaml}");
    }
    let lines = eventually("all of them are logged", || {
        let lines = server.log_lines("the new policy is not valid; the previous one stays in force");
        (lines.len() >= bad.len()).then_some(lines)
    });
    assert_eq!(lines.len(), bad.len());
    assert!(lines[1]["problem"].as_str().expect("what").contains("limits.yaml:1:1: unknown key `shcema`"));
    assert!(server.log_lines("the policy file is empty: it limits nothing").is_empty());
    assert_eq!((server.metric(GOOD), server.metric(SUCCESSFUL)), (0.0, 0.0));

    fs::remove_file(server.dir.path().join("limits.yaml")).expect("removed");
    server.wait_for_metric(BAD, (bad.len() + 1) as f64);
    assert_eq!(short(&state(&server).await), (true, 10, 6), "a file that is gone");

    server.replace_policy(&policy(8));
    assert_eq!(wait_for_limit(&server, 8).await, (true, 8, 4));
    server.wait_for_metric(GOOD, 1.0);
    assert_eq!(server.metric(SUCCESSFUL), 1.0);
}

#[tokio::test]
async fn a_file_added_to_a_directory_is_loaded_or_blocks_the_whole_reload_while_it_is_invalid() {
    let setup = Setup::new();
    let policies = setup.path("policies");
    fs::create_dir(&policies).expect("made");
    fs::write(policies.join("default.yaml"), policy(10)).expect("written");
    let server = setup.limits(policies.clone()).start();
    write_at_once(&policies.join("api.yaml"), "domain: api\nschema: [");
    server.wait_for_metric(BAD, 1.0);
    write_at_once(&policies.join("default.yaml"), &policy(20));
    server.wait_for_metric(BAD, 2.0);
    assert_eq!(state(&server).await.limit, 10);
    fs::remove_file(policies.join("api.yaml")).expect("removed");
    assert_eq!(wait_for_limit(&server, 20).await, (true, 20, 20));
    server.wait_for_metric(GOOD, 1.0);
    write_at_once(&policies.join("api.yaml"), &format!("domain: api\n{}", policy(7)));
    server.wait_for_metric(GOOD, 2.0);
    let request = weir::proto::CheckRequest { domain: "api".to_owned(), ..check(&["user", "alex"]) };
    assert_eq!(server.check(request).await.limit, 7);
}

#[tokio::test]
async fn a_log_that_is_not_read_any_more_holds_up_no_reload_and_no_shutdown() {
    let setup = Setup::new().policy(&policy(5));
    let snapshot = setup.path("snapshot");
    let mut server = setup.snapshot(&snapshot).start();
    server.close_log();
    for most in 6.. {
        write_at_once(&server.dir.path().join("limits.yaml"), &policy(most));
        wait_for_limit(&server, most).await;
        // The reader may not have closed the pipe yet.
        if most >= 9 && server.metric("weir_log_lines_lost_total") > 0.0 {
            break;
        }
        assert!(most < 1_000, "no line is lost");
    }
    server.stop();
    assert!(snapshot.exists());
}
