//! Overrides that replicas share.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::{join, join_all};
use rustix::process::Signal;
use tonic::Code;
use weir::proto::{
    CheckRequest, ListAuditRequest, ListOverridesRequest, Override, SetOverrideRequest, admin_client::AdminClient,
    r#override::Change,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{patient, replicas, runtime, window},
    support::{
        Server, eventually, eventually_async, in_time,
        overrides::{end, over, set, try_set},
        requests::{all_pages, check, peek},
        reservations::{HOUR, commit, extend, left, reserve, settled, wanted},
    },
};

const POLICY: &str = "
on_store_failure: allow
schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 1000000, period: 31d }, name: per-user }] } } } }
";
/// Time until a change must be in force on every replica: a second, plus a margin for a busy machine.
const SOON: Duration = Duration::from_secs(5);

async fn set_user(server: &Server, user: &str, change: Change, seconds: Option<i64>) {
    try_set(server, over(&["user", user], change), seconds).await.expect("it is set");
}

async fn is_banned(server: &Server, user: &str) -> bool {
    let answer = server.client().await.check(peek(&["user", user])).await.expect("an answer").into_inner();
    !answer.ban_reason.is_empty()
}

async fn overrides(server: &Server) -> Vec<Override> {
    let request = ListOverridesRequest::default();
    AdminClient::new(server.channel().await).list_overrides(request).await.expect("an answer").into_inner().overrides
}

/// An override set on one replica is in force there at once, and soon on all replicas.
fn replicas_share_overrides(url: &str) {
    let services = replicas(url, POLICY);
    runtime().block_on(async {
        let mut slowest = Duration::ZERO;
        for (number, service) in services.iter().enumerate() {
            let user = number.to_string();
            set_user(service, &user, Change::Ban(true), None).await;
            assert!(is_banned(service, &user).await, "on the replica that has set it");
            let since = Instant::now();
            for other in &services {
                eventually_async("it is in force", async || is_banned(other, &user).await.then_some(())).await;
            }
            slowest = slowest.max(since.elapsed());
        }
        println!("in force everywhere after {slowest:?} at most");
        assert!(slowest < SOON);
        let late = patient(url).policy(POLICY).start();
        assert!(is_banned(&late, "0").await, "on a replica that starts later, from its first answer on");
        assert_eq!(overrides(&late).await.len(), services.len());
        assert!(end(&late, &["user", "0"]).await);
        for service in &services {
            eventually_async("it has ended", async || (!is_banned(service, "0").await).then_some(())).await;
        }
    });
}

#[test]
fn replicas_share_overrides_on_redis() {
    let redis = Redis::start(Options::socket());
    replicas_share_overrides(&redis.url());
}

#[test]
fn replicas_share_overrides_on_a_cluster() {
    let cluster = Cluster::start(&ClusterOptions::default());
    replicas_share_overrides(&cluster.url());
}

/// A change during a move is in force and in the log afterwards, or refused.
#[test]
fn a_change_while_the_slot_of_the_overrides_moves_is_not_lost() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let impatient = patient(&cluster.url()).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "500ms").policy(POLICY).start();
    let other = patient(&cluster.url()).policy(POLICY).start();
    let slot = cluster.slot(b"weir:{overrides}");
    let master = cluster.masters().into_iter().find(|node| *node != cluster.owner(slot)).expect("another");
    runtime().block_on(async {
        set_user(&impatient, "a", Change::Ban(true), None).await;
        let migration = cluster.begin_migration(slot, master);
        assert_eq!(migration.move_some("1"), 1, "of two keys");
        let refused =
            try_set(&impatient, over(&["user", "b"], Change::Ban(true)), None).await.expect_err("half of it has moved");
        assert_eq!(refused.code(), Code::Unavailable);
        while migration.move_some("1") > 0 {}
        migration.finish();
        set_user(&impatient, "b", Change::Ban(true), None).await;
        for service in [&impatient, &other] {
            for user in ["a", "b"] {
                eventually_async("it is in force", async || is_banned(service, user).await.then_some(())).await;
            }
        }
        let log = AdminClient::new(other.channel().await).list_audit(ListAuditRequest::default()).await;
        assert_eq!(log.expect("an answer").into_inner().events.len(), 2);
    });
}

/// The log alone is lost, as by an eviction or a restore of a part.
#[test]
fn overrides_without_their_log_are_in_force_on_a_replica_that_starts() {
    let redis = Redis::start(Options::socket());
    let first = patient(&redis.url()).policy(POLICY).start();
    runtime().block_on(async {
        set_user(&first, "a", Change::Ban(true), None).await;
        redis.command(&["DEL", "weir:{overrides}:log"]);
        let second = patient(&redis.url()).policy(POLICY).start();
        assert!(is_banned(&second, "a").await);
        set_user(&second, "b", Change::Ban(true), None).await;
        for service in [&first, &second] {
            eventually_async("it is in force", async || is_banned(service, "b").await.then_some(())).await;
            assert!(is_banned(service, "a").await);
        }
    });
}

#[test]
fn overrides_stay_and_end_in_time_while_the_store_is_away() {
    let redis = Redis::start(Options::socket());
    let start = |_| patient(&redis.url()).policy(POLICY).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "1s").start();
    let services: Vec<_> = (0..3).map(start).collect();
    runtime().block_on(async {
        set_user(&services[0], "short", Change::Ban(true), Some(6)).await;
        set_user(&services[0], "long", Change::Ban(true), None).await;
        let until = Instant::now() + Duration::from_secs(6);
        for service in &services {
            eventually_async("it is in force", async || is_banned(service, "long").await.then_some(())).await;
        }
        let read_at = "weir_override_last_read_timestamp_seconds";
        let last_read = services[0].metric(read_at);
        eventually("a further read", || (services[0].metric(read_at) > last_read).then_some(()));
        redis.pause();
        for service in &services {
            assert!(is_banned(service, "short").await && is_banned(service, "long").await);
        }
        assert!(Instant::now() < until, "this machine is too busy for this test");
        // A ban needs no store, and `on_store_failure` decides other checks: quickly, once the circuit breaker is open.
        tokio::time::sleep_until(until.into()).await;
        for service in &services {
            eventually_async("it has ended", async || (!is_banned(service, "short").await).then_some(())).await;
            assert!(is_banned(service, "long").await);
            service.wait_for_log("overrides cannot be read: those known stay in force until their end");
            assert!(service.metric("weir_override_read_failures_total") >= 1.0);
        }
        redis.resume();
        eventually_async("the first replica to notice its end has logged it", async || {
            let left = overrides_or_none(&services[1]).await?;
            (left.len() == 1).then_some(())
        })
        .await;
    });
}

#[test]
fn store_errors_are_reported_and_an_end_is_stored_later() {
    let redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(POLICY).start();
    let refuse_writes = |replicas: &str| redis.command(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    runtime().block_on(async {
        set_user(&service, "short", Change::Ban(true), Some(5)).await;
        refuse_writes("1");
        for _ in 0..2 {
            let refused =
                try_set(&service, over(&["user", "other"], Change::Ban(true)), None).await.expect_err("it is refused");
            assert_eq!(refused.code(), Code::Unavailable);
            assert!(refused.message().starts_with("the store answers with an error: NOREPLICAS"), "{refused}");
        }
        let warning = "ended overrides cannot be removed";
        let is_warned = || service.log().iter().any(|line| line.contains(warning));
        eventually_async("its end is refused", async || is_warned().then_some(())).await;
        let refusals = "an override cannot be stored; such warnings come once a minute at most";
        assert_eq!(service.log_lines(refusals).len(), 1);
        refuse_writes("0");
        let end = eventually_async("its end is in the log", async || {
            // The store also counts as down for some time after it has refused writes.
            let answer = AdminClient::new(service.channel().await).list_audit(ListAuditRequest::default()).await;
            let events = answer.ok()?.into_inner().events;
            (events.len() == 2).then(|| events.into_iter().next()).flatten()
        })
        .await;
        assert_eq!(end.actor, "weir (its end)");

        for user in ["alex", "sam"] {
            set_user(&service, user, Change::Ban(true), None).await;
        }
        redis.command(&["FLUSHALL"]);
        eventually_async("they are lost", async || (!is_banned(&service, "alex").await).then_some(())).await;
        service.wait_for_log("the store lost its overrides: 2 of them were in force here");
        set_user(&service, "alex", Change::Ban(true), None).await;
        assert!(is_banned(&service, "alex").await);
        // A replica that reads the store only after the next change notices the loss too.
        let other = patient(&redis.url()).policy(POLICY).start();
        assert!(is_banned(&other, "alex").await);
        service.signal(Signal::STOP);
        redis.command(&["FLUSHALL"]);
        set_user(&other, "kim", Change::Ban(true), None).await;
        service.signal(Signal::CONT);
        service.wait_for_log("the store lost its overrides: 1 of them were in force here");
    });
}

/// Returns the overrides that were set, the last one first, from the audit log in pages of this size.
async fn audited(server: &Server, page_size: u32) -> Vec<Override> {
    let mut admin = AdminClient::new(server.channel().await);
    let events = all_pages(async |cursor| {
        let page = admin.list_audit(ListAuditRequest { page_size, cursor }).await.expect("a page").into_inner();
        (page.events, page.next_cursor)
    });
    events.await.into_iter().filter_map(|event| event.after).collect()
}

/// The replies of Redis are bounded to 16 MiB.
#[test]
fn the_audit_log_of_large_overrides_is_read_in_parts() {
    let redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(POLICY).start();
    runtime().block_on(async {
        // A quotation mark takes two bytes in the stored form.
        let long = |number: usize| vec![format!("{number:03}{}", "\"".repeat(1_021)); 32];
        const COUNT: usize = 150;
        for number in 0..COUNT {
            set(&service, over(&long(number), Change::Ban(true))).await;
        }
        let numbers =
            audited(&service, 1_000).await.into_iter().map(|one| one.key[0][..3].parse::<usize>().expect("a number"));
        assert!(numbers.eq((0..COUNT).rev()));
    });
}

#[test]
fn a_stored_override_that_cannot_be_read_is_logged_without_its_keys() {
    let redis = Redis::start(Options::socket());
    let document =
        r#"{"id":"0123456789ab","key":"geheim","ban":true,"reason":"","author":"","set_at_us":0,"start_us":0}"#;
    redis.command(&["HSET", "weir:{overrides}", r#"["",["geheim"]]"#, document]);
    let service = patient(&redis.url()).policy(POLICY).start();
    let warning = service.wait_for_log("a stored override is not in force");
    assert_eq!((&warning["id"], &warning["level"]), (&"0123456789ab".into(), &"WARN".into()), "{warning}");
    service.wait_for_log("override not in force");
    let with_key: Vec<_> = service.log().into_iter().filter(|line| line.contains("geheim")).collect();
    assert!(with_key.len() == 1 && with_key[0].contains("weir::audit"), "{with_key:#?}");
}

async fn overrides_or_none(server: &Server) -> Option<Vec<Override>> {
    let answer = AdminClient::new(server.channel().await).list_overrides(ListOverridesRequest::default()).await;
    Some(answer.ok()?.into_inner().overrides)
}

#[test]
fn no_answered_change_is_missing_in_the_audit_log_after_a_kill() {
    let redis = Redis::start(Options::socket());
    let mut services = replicas(&redis.url(), POLICY);
    let reader = services.pop().expect("four");
    runtime().block_on(async {
        let mut setting = Vec::new();
        for (number, service) in services.into_iter().enumerate() {
            let admin = AdminClient::new(service.channel().await);
            setting.push(tokio::spawn(async move {
                let mut answered = Vec::new();
                for round in 0..200 {
                    let one = over(&["user", &format!("{number}-{round}")], Change::Factor(2.0));
                    let request = SetOverrideRequest { r#override: Some(one), ..Default::default() };
                    match admin.clone().set_override(request).await {
                        Ok(answer) => answered.extend(answer.into_inner().r#override.map(|set| set.id)),
                        Err(_) => break,
                    }
                    if round == 100 {
                        service.signal(Signal::KILL);
                    }
                }
                answered
            }));
        }
        let mut answered = Vec::new();
        for setting in setting {
            answered.extend(setting.await.expect("it ends"));
        }
        assert!(answered.len() >= 300);
        let logged: Vec<_> = audited(&reader, 0).await.into_iter().map(|one| one.id).collect();
        let missing: Vec<_> = answered.iter().filter(|id| !logged.contains(id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    });
}

#[test]
fn a_ban_holds_under_load() {
    let redis = Redis::start(Options::socket());
    let services = replicas(&redis.url(), POLICY);
    let asking = AtomicUsize::new(0);
    let load = async |service: &Server| {
        let mut client = service.client().await;
        let mut ask = async || client.check(check(&["user", "alex"])).await.expect("an answer").into_inner();
        assert_eq!(ask().await.ban_reason, "");
        asking.fetch_add(1, Ordering::Relaxed);
        while ask().await.ban_reason.is_empty() {}
        for _ in 0..300 {
            assert_ne!(ask().await.ban_reason, "", "allowed again");
        }
    };
    let ban = async {
        eventually_async("all ask", async || (asking.load(Ordering::Relaxed) == services.len()).then_some(())).await;
        set_user(&services[0], "alex", Change::Ban(true), None).await;
    };
    runtime().block_on(in_time("all are banned", join(join_all(services.iter().map(load)), ban)));
}

/// Reservations and stored answers are found by key, even if an override lifts some of its limits in the meantime.
async fn answers_are_found_under_any_override(url: &str) {
    let policy = format!(
        "schema: {{ tenants: {{ limits: [{{ {} }}], children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }}",
        window(10),
        window(8)
    );
    let service = patient(url).policy(&policy).start();
    let mut client = service.client().await;
    let key = ["tenants", "vip"];
    let lift = async || set(&service, over(&key, Change::Unlimited(true))).await;
    let end = async || assert!(end(&service, &key).await);
    for change in [Change::Unlimited(true), Change::Ban(true), Change::Factor(0.5)] {
        let hold = reserve(&mut client, wanted(&key, 3, HOUR)).await.hold;
        let used = i64::from(matches!(change, Change::Ban(_)));
        set(&service, over(&key, change)).await;
        assert_eq!(commit(&mut client, &hold, Some(used)).await.expect("it is there"), settled(used, 3 - used, 0));
        end().await;
    }
    lift().await;
    let hold = reserve(&mut client, wanted(&key, 3, HOUR)).await.hold;
    extend(&mut client, &hold, HOUR).await.expect("it is there");
    assert_eq!(commit(&mut client, &hold, Some(1)).await.expect("it is there"), settled(1, 2, 0));
    let hold = reserve(&mut client, wanted(&key, 3, HOUR)).await.hold;
    end().await;
    assert_eq!(commit(&mut client, &hold, Some(2)).await.expect("it is there"), settled(2, 1, 0));
    assert_eq!(left(&mut client, &key[..1]).await, 6);

    let request = |id: &str| CheckRequest { request_id: id.to_owned(), cost: Some(2), ..check(&key) };
    let mut asked = async |id: &str| client.check(request(id)).await.expect("an answer").into_inner();
    assert!(!asked("charged by both").await.repeated_request);
    lift().await;
    assert!(asked("charged by both").await.repeated_request && !asked("charged by one").await.repeated_request);
    end().await;
    assert!(asked("charged by both").await.repeated_request);
    asked("charged by one").await;
    assert_eq!(left(&mut client, &key[..1]).await, 2, "each is charged once");
}

/// What was reserved under an override's own period is settled and extended while a more exact one acts on the key.
async fn an_own_period_is_settled_whichever_override_acts(url: &str) {
    let service = patient(url).policy(POLICY).start();
    let mut client = service.client().await;
    let (key, own) = (["user", "alex"], |text: &str| Change::Limits(text.to_owned()));
    set(&service, over(&["user", "*"], own("{ fixed_window: { count: 100, period: 30d } }"))).await;
    let mut free = 100;
    let another = own("{ fixed_window: { count: 9, period: 7d } }");
    for change in [Change::Ban(true), Change::Factor(0.5), Change::Unlimited(true), another] {
        let settled_under = reserve(&mut client, wanted(&key, 10, HOUR)).await.hold;
        let extended_under = reserve(&mut client, wanted(&key, 10, HOUR)).await.hold;
        assert_eq!(left(&mut client, &key).await, free - 20);
        set(&service, over(&key, change.clone())).await;
        assert_eq!(commit(&mut client, &settled_under, Some(4)).await.expect("it is there"), settled(4, 6, 0));
        extend(&mut client, &extended_under, 2 * HOUR).await.expect("it is there");
        assert!(end(&service, &key).await);
        assert_eq!(left(&mut client, &key).await, free - 14, "{change:?}");
        assert_eq!(commit(&mut client, &extended_under, Some(3)).await.expect("it is there"), settled(3, 7, 0));
        free -= 7;
        assert_eq!(left(&mut client, &key).await, free, "{change:?}");
    }
}

#[test]
fn reservations_and_answers_are_found_under_any_override_in_memory_and_redis() {
    let redis = Redis::start(Options::socket());
    runtime().block_on(async {
        for url in ["memory", &redis.url()] {
            answers_are_found_under_any_override(url).await;
            an_own_period_is_settled_whichever_override_acts(url).await;
        }
    });
}

#[test]
fn answers_are_found_under_any_override_on_a_cluster() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(answers_are_found_under_any_override(&cluster.url()));
}
