//! Overrides: their bounds, and pages of many and of large ones.

use tonic::Code;
use weir::proto::{
    CheckBatchRequest, ListAuditRequest, ListOverridesRequest, Override, SetOverrideRequest, admin_client::AdminClient,
    r#override::Change,
};
use weir_test_redis::{Options, Server as Redis};

use crate::{
    overrides::POLICY,
    support::{
        Folder, Server,
        overrides::{over, set},
        requests::{check, refusal},
        run,
        server::Setup,
    },
};

#[tokio::test]
async fn requests_out_of_bounds_name_the_field() {
    let server = Server::with_policy(POLICY);
    let mut client = AdminClient::new(server.channel().await);
    let ttl = Some(prost_types::Duration { seconds: 9, nanos: 1 });
    let both = Override {
        end: Some(prost_types::Timestamp { seconds: 1 << 33, nanos: 0 }),
        ..over(&["a"], Change::Ban(true))
    };
    let late = Override {
        start: Some(prost_types::Timestamp { seconds: 253_402_300_799, nanos: 0 }),
        ..over(&["a"], Change::Ban(true))
    };
    for (one, ttl, field) in [
        (None, None, "override"),
        (Some(Override { change: None, ..over(&["a"], Change::Ban(true)) }), None, "override.change"),
        (Some(over(&["a"], Change::Ban(false))), None, "override.change"),
        (Some(over(&["a"; 33], Change::Ban(true))), None, "override.key"),
        (Some(over(&["a"], Change::Factor(f64::INFINITY))), None, "override.factor"),
        (Some(over(&["a"], Change::Ban(true))), ttl, "ttl"),
        (Some(both), Some(prost_types::Duration { seconds: 9, nanos: 0 }), "ttl"),
        (Some(late.clone()), Some(prost_types::Duration { seconds: 1, nanos: 0 }), "override.end"),
    ] {
        let request = SetOverrideRequest { r#override: one, ttl, dry_run: false };
        let status = client.set_override(request).await.expect_err("it is refused");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field.to_owned())), "{status}");
    }
    let (before_1970, ban) = (prost_types::Timestamp { seconds: -9, nanos: 0 }, || over(&["a"], Change::Ban(true)));
    let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    for (one, ttl, message) in [
        (over(&["a"], Change::Ban(true)), ttl, "ttl must be 1us to 2^53us (285 years), in whole microseconds"),
        (late, second, "start and ttl must end by the year 9999"),
        (Override { start: Some(before_1970), ..ban() }, None, "the start must be a timestamp between 1970 and 9999"),
        (Override { end: Some(before_1970), ..ban() }, None, "the end must be a timestamp between 1970 and 9999"),
    ] {
        let request = SetOverrideRequest { r#override: Some(one), ttl, dry_run: false };
        let status = client.set_override(request).await.expect_err("it is refused");
        assert_eq!(status.message(), message);
    }
    let status = client.list_audit(ListAuditRequest { cursor: "here".to_owned(), ..Default::default() }).await;
    assert_eq!(refusal(&status.expect_err("it is refused")).1.as_deref(), Some("cursor"));
}

#[tokio::test]
async fn a_dry_run_counts_a_key_once() {
    let limits = ["a", "b", "c"].map(|name| format!("{{ name: {name}, fixed_window: {{ count: 9, period: 1d }} }}"));
    let policy = format!(
        "schema: {{ user: {{ children: {{ '*': {{ children: {{ '*': {{ limits: [{}] }} }} }} }} }} }}",
        limits.join(", ")
    );
    let redis = Redis::start(Options::port());
    let setup = || Setup::new().policy(&policy);
    for server in [setup().start(), setup().shared(&redis).start()] {
        // Three entries of each key, on pages of 1,000; in Redis in one hash, which lists them in any order.
        for first in (0..1_200).step_by(400) {
            let checks = (first..first + 400).map(|number| check(&["user", "alex", &number.to_string()])).collect();
            server.client().await.check_batch(CheckBatchRequest { checks }).await.expect("an answer");
        }
        let one = Some(over(&["user", "alex"], Change::Ban(true)));
        let request = SetOverrideRequest { r#override: one, ttl: None, dry_run: true };
        let answer = AdminClient::new(server.channel().await).set_override(request).await.expect("it is previewed");
        assert_eq!((answer.get_ref().keys, answer.get_ref().more_keys), (Some(1_200), false));
    }
}

#[tokio::test]
async fn pages_of_large_overrides_fit_the_clients() {
    let server = Server::with_policy("schema: {}");
    // Together they are larger than the 4 MiB that gRPC clients accept.
    const COUNT: usize = 150;
    for user in 0..COUNT {
        let segment = format!("{user:01024}");
        set(&server, over(&[segment.as_str(); 32], Change::Ban(true))).await;
    }
    let mut client = AdminClient::new(server.channel().await);
    let request = ListOverridesRequest { page_size: 1_000, ..Default::default() };
    let page = client.list_overrides(request).await.expect("a page").into_inner();
    assert!((20..COUNT).contains(&page.overrides.len()) && !page.next_cursor.is_empty(), "{}", page.overrides.len());
    let request = ListAuditRequest { page_size: 1_000, ..Default::default() };
    let page = client.list_audit(request).await.expect("a page").into_inner();
    assert!((20..COUNT).contains(&page.events.len()) && !page.next_cursor.is_empty(), "{}", page.events.len());
    for command in [&["overrides", "--json"][..], &["audit", "--json", "--limit", "1000"]] {
        let listed = server.run(command);
        let mut ids: Vec<_> = listed.json_lines().iter().map(|line| line["id"].to_string()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), COUNT, "{command:?}: {}", listed.err);
    }
    let some = server.run(&["audit", "--limit", "100"]);
    assert_eq!((some.out.lines().count(), &*some.err), (100, "weir: there are more: --limit COUNT\n"));
}

#[tokio::test]
async fn an_override_that_the_settings_no_longer_allow_is_listed_and_ended() {
    let dir = Folder::new();
    let start = |max_period: &str| {
        let setup = Setup::new().policy(POLICY).snapshot(dir.path("weir.snapshot"));
        setup.env("WEIR_MAX_PERIOD", max_period).start()
    };
    let server = start("366d");
    let change = Change::Limits("{ fixed_window: { count: 50, period: 100d } }".to_owned());
    let id = set(&server, over(&["user", "alex"], change)).await.r#override.expect("it was set").id;
    drop(server);
    let server = start("31d");
    let unreadable = format!("{id}  user / alex: the replica cannot read it, so it is not in force\n");
    assert_eq!(server.run(&["overrides", "user/alex"]).out, unreadable);
    assert_eq!(server.log_lines("a stored override is not in force")[0]["id"], id.as_str());
    let exported = server.run(&["overrides", "--json"]);
    let json = serde_json::json!({ "id": id, "domain": "", "key": ["user", "alex"], "unreadable": true });
    assert_eq!(exported.json(), json);
    let explain = ["limits", "explain", &dir.write("p.yaml", POLICY), "user", "alex", "--overrides"];
    let explained = run(&[&explain[..], &[&dir.write("o.jsonl", exported.out)]].concat());
    assert_eq!((explained.code, explained.err.contains("line 1: the replica could not read it")), (0, true));
    let ended = server.run(&["override", "end", "user/alex"]);
    assert_eq!((ended.code, ended.out), (0, format!("ended {unreadable}")));
    assert!(server.run(&["audit"]).out.lines().next().is_some_and(|line| line.contains(&format!(" ended {id}  user"))));
    let again = server.run(&["override", "end", "user/alex"]);
    assert_eq!((again.code, &*again.out), (1, "there is no override for user / alex\n"));
}

#[tokio::test]
async fn the_command_says_that_there_is_more_than_whole_pages() {
    let server = Server::with_policy(POLICY);
    let mut client = AdminClient::new(server.channel().await);
    for user in 0..1_001 {
        let one = over(&["user", &user.to_string()], Change::Factor(2.0));
        let request = SetOverrideRequest { r#override: Some(one), ..Default::default() };
        client.set_override(request).await.expect("it is set");
    }
    for (limit, more) in [("1000", "weir: there are more: --limit COUNT\n"), ("1001", "")] {
        let listed = server.run(&["audit", "--limit", limit]);
        assert_eq!((listed.out.lines().count().to_string().as_str(), &*listed.err), (limit, more));
    }
}
