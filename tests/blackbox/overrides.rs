//! Overrides and bans: effect, scope, duration and access control.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;
use weir::proto::{CheckAllRequest, CheckBatchRequest, CheckResponse, Override, r#override::Change};

use crate::support::{
    Folder, Run, Server, eventually, finish,
    http::Client,
    overrides::{end, over, set, try_set},
    requests::{check, gcra, peek, short, with_limits},
    reservations::{reserve, wanted},
    server::Setup,
    weir,
};

pub const POLICY: &str = "
schema:
  user:
    children:
      '*':
        limits: [{ fixed_window: { count: 10, period: 31d }, name: per-user }]
        children: { trade: { limits: [{ fixed_window: { count: 4, period: 31d }, name: trades }] } }
";
pub const TRADE: [&str; 3] = ["user", "alex", "trade"];

/// Returns the limit of each level.
async fn limits(server: &Server, key: &[&str]) -> Vec<u64> {
    server.check(peek(key)).await.levels.iter().map(|level| level.limit).collect()
}

#[tokio::test]
async fn an_override_changes_limits_and_keeps_their_counts_and_a_reload_keeps_it() {
    let server = Server::with_policy(POLICY);
    server.check(check(&TRADE)).await;
    for (change, expected) in [
        (Change::Factor(0.1), vec![100, 40]),
        (Change::Limits("{ name: trades, fixed_window: { count: 7, period: 31d } }".to_owned()), vec![10, 7]),
        (Change::Shadow(true), vec![10, 4]),
        (Change::Unlimited(true), vec![]),
    ] {
        let id = set(&server, over(&["user", "alex"], change.clone())).await.r#override.expect("it was set").id;
        assert_eq!(limits(&server, &TRADE).await, expected, "{change:?}");
        let answer = server.check(peek(&TRADE)).await;
        assert_eq!((answer.r#override, &*answer.ban_reason), (id, ""));
        let used: Vec<_> = answer.levels.iter().map(|level| level.limit - level.remaining).collect();
        assert!(used.iter().all(|used| *used == 1), "{change:?} {used:?}");
        assert_eq!(limits(&server, &["user", "sam", "trade"]).await, [10, 4]);
    }
    assert!(end(&server, &["user", "alex"]).await);
    assert!(!end(&server, &["user", "alex"]).await);
    let answer = server.check(peek(&TRADE)).await;
    assert_eq!((&*answer.r#override, answer.remaining), ("", 3));

    // A reload keeps overrides.
    set(&server, over(&["user", "alex"], Change::Factor(0.1))).await;
    server.replace_policy(&POLICY.replace("count: 10", "count: 20"));
    eventually("the new policy is in force", || {
        let checked = server.run(&["check", "--json", "--cost", "0", "user", "alex"]);
        (checked.json()["limit"] == 200).then_some(())
    });
}

#[tokio::test]
async fn a_ban_refuses_on_every_surface_and_charges_nothing() {
    let server = Server::with_policy(POLICY);
    let one = Override { reason: "scraping".to_owned(), ..over(&["user", "alex"], Change::Ban(true)) };
    try_set(&server, one, Some(3_600)).await.expect("it is set");
    let is_refused = |answer: &CheckResponse| {
        let retry = answer.retry_after.is_some_and(|retry| (3_500..=3_600).contains(&retry.seconds));
        !answer.allowed && retry && !answer.never && answer.ban_reason == "scraping" && answer.levels.is_empty()
    };
    let own_limits = with_limits(check(&TRADE), vec![gcra(9, 9, 9)]);
    for request in [check(&TRADE), check(&["user", "alex"]), peek(&TRADE), own_limits] {
        let answer = server.check(request).await;
        assert!(is_refused(&answer), "{answer:?}");
    }
    assert!(server.check(check(&["user", "sam"])).await.allowed);
    let mut client = server.client().await;
    let both = vec![check(&TRADE), check(&["user", "berta", "trade"])];
    let batch = client.check_batch(CheckBatchRequest { checks: both.clone() }).await.expect("an answer").into_inner();
    assert!(is_refused(&batch.results[0]) && batch.results[1].allowed);
    let all = client.check_all(CheckAllRequest { checks: both }).await.expect("an answer").into_inner();
    assert!(!all.allowed && is_refused(&all.results[0]) && short(&all.results[1]) == short(&batch.results[1]));
    assert_eq!(server.check(peek(&["user", "berta"])).await.remaining, 9, "the batch alone has charged");
    let reserved = reserve(&mut client, wanted(&TRADE, 1, 60_000)).await;
    assert!(is_refused(&reserved.decision.expect("a decision")) && reserved.hold.is_empty());
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    let answer = http.post("/v1/check", &json!({ "key": TRADE }));
    assert_eq!((answer.status, &answer.json()["banReason"]), (429, &json!("scraping")));
    answer.number("retry-after");
    let checked = server.run(&["check", "user", "alex"]);
    assert_eq!(checked.code, 1);
    assert!(
        checked.out.starts_with("refused by a ban, which ends in ") && checked.out.contains(": scraping"),
        "{}",
        checked.out
    );
    assert!(server.metric("weir_overridden_checks_total{domain=\"default\",change=\"ban\"}") >= 8.0);
}

#[tokio::test]
async fn an_override_starts_and_ends_by_itself_and_both_are_in_the_audit_log() {
    let server = Server::with_policy(POLICY);
    let moment = |seconds: i64| {
        let now = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds.unsigned_abs());
        Some(prost_types::Timestamp::from(now))
    };
    let one = Override { start: moment(3), end: moment(8), ..over(&["user", "alex"], Change::Ban(true)) };
    set(&server, one).await;
    assert!(server.check(peek(&TRADE)).await.allowed, "it begins in three seconds");
    let is_allowed = || server.run(&["check", "--cost", "0", "user", "alex"]).code == 0;
    eventually("it begins", || (!is_allowed()).then_some(()));
    eventually("it ends", || is_allowed().then_some(()));
    eventually("its end is in the log", || {
        let events = server.run(&["audit", "--json"]).json_lines();
        assert_eq!(events.last().expect("one was set")["actor"], "127.0.0.1");
        (events.len() == 2 && events[0]["actor"] == "weir (its end)" && events[0]["after"].is_null()).then_some(())
    });
    assert!(server.log().iter().any(|line| line.contains("weir::audit") && line.contains("override set")));
}

#[tokio::test]
async fn commands_set_list_and_end() {
    let server = Server::with_policy(POLICY);
    let raised = server.run(&["override", "set", "user/alex", "--times", "10", "--for", "1h", "--reason", "launch"]);
    assert_eq!(raised.code, 0, "{}", raised.err);
    assert!(raised.out.contains("user / alex: limits times 10 until "), "{}", raised.out);
    assert!(
        raised
            .out
            .contains("per-user: fixed_window { count: 10, period: 31d } -> fixed_window { count: 100, period: 31d }")
    );
    let dry =
        server.run(&["override", "set", "user", "alex", "--factor", "2", "--reason", "less", "--dry-run", "--json"]);
    let dry = dry.json();
    assert_eq!(
        (&dry["dry_run"], &dry["replaced"]["factor"], &dry["override"]["factor"]),
        (&json!(true), &json!(0.1), &json!(2.0))
    );
    assert_eq!(limits(&server, &TRADE).await, [100, 40], "a dry run changes nothing");
    let (from, until) = ("2100-01-01T00:00:00Z", "2100-01-02T00:00:00Z");
    let terms = ["user", "alex", "--reason", "later", "--from", from, "--until", until, "--dry-run", "--json"];
    for (command, change) in [(&["ban"][..], "ban"), (&["override", "set", "--unlimited"], "unlimited")] {
        let later = server.run(&[command, &terms].concat()).json()["override"].clone();
        assert_eq!(
            (&later["start_us"], &later["end_us"]),
            (&json!(4_102_444_800_000_000_u64), &json!(4_102_531_200_000_000_u64)),
            "{later}"
        );
        assert_eq!(later[change], true, "{later}");
    }
    for user in ["alex", "sam", "kim"] {
        server.check(check(&["user", user, "trade"])).await;
    }
    for (pattern, keys) in [("user/alex", 2), ("user/*", 6), ("user/*/trade", 3), ("user/nobody", 0)] {
        let dry = server.run(&["ban", pattern, "--reason", "x", "--dry-run"]);
        let line = format!("keys with a state that it would concern: {keys}\n");
        assert!(dry.out.starts_with("would set ") && dry.out.ends_with(&line), "{}", dry.out);
    }

    let unmet = "no limit of the policy is at the pattern or below, or the domain is unknown; the ban is in force all the same\n";
    for (ban, is_unmet) in [
        (&["user", "mallory"][..], false),
        (&["--all-keys"], false),
        (&["usr/mallory"], true),
        (&["user", "mallory", "--domain", "shpo"], true),
    ] {
        let dry = server.run(&[&["ban", "--reason", "x", "--dry-run"], ban].concat());
        assert_eq!((dry.code, dry.out.contains(unmet)), (0, is_unmet), "{ban:?}: {dry:?}");
    }
    let banned = server.run(&["ban", "--all-keys", "--reason", "x"]);
    assert!(banned.code == 0 && banned.out.contains("  all keys: banned, until it is ended"), "{banned:?}");
    assert_eq!(server.run(&["check", "user", "sam", "--cost", "0"]).code, 1);
    assert_eq!(server.run(&["unban", "--all-keys"]).code, 0);
    let banned = server.run(&["ban", "user", "mallory", "--reason", "abuse"]);
    assert_eq!(banned.code, 0, "{}", banned.err);
    let listed = server.run(&["overrides", "user", "mallory"]);
    assert!(listed.out.contains("user / mallory: banned, until it is ended; 127.0.0.1: abuse"), "{}", listed.out);
    assert_eq!(listed.out.lines().count(), 1, "{}", listed.out);
    assert_eq!(server.run(&["override", "list"]).out.lines().count(), 2);
    assert_eq!(server.metric("weir_overrides"), 2.0);
    assert_eq!(server.run(&["unban", "user/mallory"]).code, 0);
    let again = server.run(&["unban", "user/mallory"]);
    assert_eq!((again.code, &*again.out), (1, "there is no override for user / mallory\n"));
    let first = server.run(&["audit", "--limit", "2"]);
    assert_eq!((first.out.lines().count(), &*first.err), (2, "weir: there are more: --limit COUNT\n"));
    assert_eq!(server.run(&["audit", "--limit", "5"]).err, "");
    for (name, why) in
        [("nope", "no limit at the pattern or below is called `nope`"), ("trades", "`trades` is a fixed_window")]
    {
        let limits = format!("{{ name: {name}, gcra: {{ burst: 1, count: 1, period: 1s }} }}");
        let dry = server.run(&["override", "set", "user", "--limits", &limits, "--reason", "x", "--dry-run"]);
        assert!(dry.out.contains(&format!("\n  changes no limit: {why}\n")) && !dry.out.contains("->"), "{dry:?}");
    }
    let changed = "- { name: trades, fixed_window: { count: 5, period: 31d } }";
    let changed = server.run(&["override", "set", "user", "--limits", changed, "--reason=- x", "--dry-run"]);
    assert!(changed.out.matches("->").count() == 1 && !changed.out.contains("changes no limit"), "{changed:?}");
    for (args, message) in [
        (&["override", "set", "user", "--factor", "0", "--reason", "x"][..], "a factor must be 0.000001 to 1000000"),
        (&["override", "set", "user", "--limits", "{ gcra: { burts: 9 } }", "--reason", "x"], "burts"),
        (&["override", "set", "user", "", "--ban", "--reason", "x"], "a segment must have 1 to 1024 bytes"),
        (&["ban", "user", "--reason", ""], "a reason must have 1 to 1024 bytes"),
        (&["ban", "user", "--reason", "x", "--until", "2020-01-01T00:00:00Z"], "the end must be after the start"),
    ] {
        let run = server.run(args);
        assert!(run.code == 2 && run.err.contains(message), "{args:?}: {}", run.err);
    }
}

/// Exports the overrides of a server. Returns how `weir limits explain` explains a key of a domain with them.
fn explain_exported(server: &Server, domain: &'static str) -> impl Fn(&[&str]) -> Run {
    let [policy, exported] = ["limits.yaml", "overrides.jsonl"].map(|name| server.dir.path().join(name));
    fs::write(&exported, server.run(&["overrides", "--json"]).out).expect("written");
    move |key| {
        let command = ["limits", "explain", "--domain", domain];
        finish(weir().args(command).arg(&policy).args(key).arg("--overrides").arg(&exported))
    }
}

#[tokio::test]
async fn explain_applies_exported_overrides() {
    let server = Server::with_policy(POLICY);
    set(&server, over(&["user", "alex"], Change::Factor(0.1))).await;
    set(&server, over(&["user", "alex", "trade"], Change::Unlimited(true))).await;
    set(&server, Override { reason: "abuse".to_owned(), ..over(&["user", "eve"], Change::Ban(true)) }).await;
    let explain = explain_exported(&server, "");
    let explained = explain(&TRADE).out;
    assert!(
        explained.contains(": fixed_window { count: 100, period: 31d }") && explained.contains("lifted by override "),
        "{explained}"
    );
    assert!(
        explain(&["user", "eve"]).out.contains("refused by the ban ")
            && !explain(&["user", "sam"]).out.contains("override")
    );
    fs::write(server.dir.path().join("overrides.jsonl"), "{}\n").expect("written");
    let wrong = explain(&TRADE);
    assert!(wrong.code == 2 && wrong.err.contains("overrides.jsonl, line 1: "), "{}", wrong.err);
}

#[tokio::test]
async fn explain_applies_exported_overrides_to_descriptors() {
    let text = "domain: edge
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 2 } }]
";
    let server = Server::with_policy(text);
    let over = |key: &[&str], change| Override { domain: "edge".to_owned(), ..over(key, change) };
    set(&server, over(&["user", "alex", "path"], Change::Factor(0.1))).await;
    set(&server, over(&["user", "kim"], Change::Unlimited(true))).await;
    set(&server, Override { reason: "abuse".to_owned(), ..over(&["user", "eve"], Change::Ban(true)) }).await;
    let explain = explain_exported(&server, "edge");
    let parameters = "fixed_window { count: 20, period: 1d, charge_denied: true }";
    let raised = explain(&["user", "alex", "path", "/"]).out;
    assert!(raised.matches("override").count() == 1 && raised.contains(&format!(": {parameters}\n")), "{raised}");
    let raised = explain(&["user", "alex", "path", "/", "--json"]).json();
    let change = |step: usize| raised["steps"][step]["limits"][0]["override"].as_str();
    assert!(change(0).is_none() && change(1).is_some_and(|change| change.ends_with(parameters)), "{raised}");
    assert!(raised["ban"].is_null(), "{raised}");
    let lifted = explain(&["user", "kim"]).out;
    assert!(lifted.contains("        lifted by override "), "{lifted}");
    assert!(explain(&["user", "eve"]).out.contains("refused by the ban "));
    let banned = explain(&["user", "eve", "--json"]).json();
    assert!(banned["ban"].as_str().is_some_and(|ban| ban.ends_with(": abuse")), "{banned}");
    assert!(!explain(&["user", "alex"]).out.contains("override"), "the pattern is longer than the key");
}

#[tokio::test]
async fn overrides_in_memory_survive_a_kill() {
    let dir = Folder::new();
    let start = || Setup::new().policy(POLICY).snapshot(dir.path("weir.snapshot")).start();
    let server = start();
    for user in 0..20 {
        set(&server, over(&["user", &user.to_string()], Change::Ban(true))).await;
    }
    assert!(end(&server, &["user", "7"]).await);
    let file = dir.path("weir.snapshot.overrides");
    let mode = || fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600, "it has keys, reasons and authors");
    // The process is killed with SIGKILL.
    drop(server);
    // The mode that an earlier version gave the file.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
    let server = start();
    assert_eq!(mode(), 0o600);
    assert_eq!(server.run(&["overrides"]).out.lines().count(), 19);
    assert_eq!(server.run(&["audit", "--limit", "99"]).out.lines().count(), 21);
    assert!(!server.check(check(&["user", "3"])).await.allowed && server.check(check(&["user", "7"])).await.allowed);
    // If the file is removed or replaced, later changes are kept together with earlier ones.
    for (user, put) in [("20", None), ("21", Some(""))] {
        fs::remove_file(&file).expect("removed");
        if let Some(text) = put {
            fs::write(&file, text).expect("written");
        }
        set(&server, over(&["user", user], Change::Ban(true))).await;
    }
    let written_anew = || server.log_lines("the file was removed or replaced: it is written again").len();
    eventually("both are logged", || (written_anew() == 2 && mode() == 0o600).then_some(()));
    drop(server);
    // A torn last line.
    let whole = fs::read(&file).expect("read");
    fs::write(&file, [&whole[..], b"{\"id\":\"9"].concat()).expect("written");
    let server = start();
    assert_eq!(server.run(&["overrides"]).out.lines().count(), 21);
    assert_eq!(server.run(&["audit", "--limit", "99"]).out.lines().count(), 23);
    let torn = server.log_lines("an incomplete last line is ignored: its change was never confirmed");
    assert_eq!((torn.len(), torn[0]["path"].as_str()), (1, Some(&*file)));
}

#[test]
fn start_empty_sets_aside_a_damaged_file_and_keeps_a_valid_one() {
    let dir = Folder::new();
    let setup = || Setup::new().policy(POLICY).snapshot(dir.path("weir.snapshot"));
    let server = setup().start();
    assert_eq!(server.run(&["ban", "user/mallory", "--reason", "abuse"]).code, 0);
    drop(server);
    let server = setup().arg("--start-empty").start();
    assert_eq!(server.run(&["check", "user", "mallory"]).code, 1, "the ban stays in force");
    drop(server);
    let file = dir.path("weir.snapshot.overrides");
    let damaged = [&fs::read(&file).expect("read")[..], b"nothing\n"].concat();
    fs::write(&file, &damaged).expect("written");
    let mut serve = weir();
    serve.args(["serve", "--allow-all"]).env("WEIR_STORE__SNAPSHOT__PATH", dir.path("weir.snapshot"));
    let refused = finish(serve.env("WEIR_GRPC__LISTEN", "127.0.0.1:0").env("WEIR_HTTP__LISTEN", "127.0.0.1:0"));
    assert_eq!((refused.code, fs::read(&file).expect("left alone")), (2, damaged.clone()));
    for expected in [
        &format!("the overrides in {file}, line 2: not a change"),
        "without overrides, bans and counts: `weir serve --start-empty`",
    ] {
        assert!(refused.err.contains(expected), "{expected} is missing: {}", refused.err);
    }
    let server = setup().arg("--start-empty").start();
    assert_eq!(server.log_lines("starting without overrides and bans: their file was renamed").len(), 1);
    assert_eq!(fs::read(dir.path("weir.snapshot.overrides.rejected")).expect("set aside"), damaged);
    assert_eq!(server.run(&["check", "user", "mallory"]).code, 0);
    assert_eq!(server.run(&["ban", "user/mallory", "--reason", "abuse"]).code, 0);
    drop(server);
    assert_eq!(setup().start().run(&["overrides"]).out.lines().count(), 1);
    for name in ["rejected.1", "rejected.2"] {
        fs::write(&file, "nothing\nat all\n").expect("written");
        drop(setup().arg("--start-empty").start());
        assert_eq!(fs::read(format!("{file}.{name}")).expect("set aside"), b"nothing\nat all\n");
    }
    assert_eq!(fs::read(format!("{file}.rejected")).expect("kept"), damaged);
}
