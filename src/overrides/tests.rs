use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use weir_core::{
    algorithm::Bounds,
    domain::{Clock, ManualClock, Micros, time::SECOND},
};
use weir_policy::{
    Policy,
    overrides::{Change, LimitChanges, Override},
};
use weir_store::{
    AnyStore, MemoryStore, SystemClock,
    documents::{Change as DocumentChange, Changes, Documents, MemoryDocuments},
    memory::MemorySettings,
};

use super::{OverrideService, StoredOverride, document};
use crate::{limiter::Limiter, telemetry::Metrics};

/// Timeout on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const HOUR: Micros = 3_600 * SECOND;

/// The clock of documents: no change is made while it is held.
#[derive(Default)]
struct Held(Mutex<()>);

impl Held {
    fn hold(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
}

impl Clock for Held {
    fn now(&self) -> Micros {
        drop(self.0.lock());
        0
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}

/// Creates a service without a policy, and returns it with its clock and the clock of its documents.
fn service() -> (Arc<OverrideService>, Arc<ManualClock>, Arc<Held>) {
    let (clock, held) = (Arc::new(ManualClock::new(0)), Arc::new(Held::default()));
    let store = AnyStore::Memory(MemoryStore::new(MemorySettings::default(), SystemClock::default()));
    let limiter = Arc::new(Limiter::new(store, Policy::empty(), Metrics::new()));
    let documents = Documents::Memory(Arc::new(MemoryDocuments::new(Arc::clone(&held) as Arc<dyn Clock>)));
    let service = OverrideService::new(documents, limiter, Bounds::default());
    (Arc::new(OverrideService { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..service }), clock, held)
}

async fn ban(service: &OverrideService, user: usize, end: Option<Micros>) {
    let [id, domain, author, reason] = ["", "", "", "a test"].map(Box::from);
    let pattern = ["user".into(), user.to_string().into()].into();
    let make =
        |now| Override { id, domain, pattern, change: Change::Ban, reason, author, set_at: now, start: now, end };
    service.set("me", false, make).await.expect("it is set");
}

async fn stored(service: &OverrideService) -> usize {
    match service.documents.changes(None).await.expect("they are read") {
        Changes::All { documents, .. } => documents.len(),
        Changes::Some(_) => panic!("all are wanted"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_do_not_wait_for_the_removal_of_what_has_ended() {
    let (service, clock, held) = service();
    for user in 0..300 {
        ban(&service, user, Some(1_000)).await;
    }
    ban(&service, 300, None).await;
    tokio::task::block_in_place(|| {
        let holding = held.hold();
        clock.set(1_000);
        let reading = async {
            tokio::spawn(Arc::clone(&service).run());
            // Removals are in progress.
            tokio::time::sleep(Duration::from_millis(400)).await;
            timeout(PATIENCE, service.list(None, &[])).await.expect("it does not wait").expect("they are read")
        };
        assert_eq!(tokio::runtime::Handle::current().block_on(reading).len(), 1);
        drop(holding);
    });
    let removed = async {
        while stored(&service).await > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, removed).await.expect("all are removed, some at each poll");
    let ends = service.audit(None, 1_000).await.expect("it is read");
    assert_eq!(ends.iter().filter(|event| event.actor == "weir (its end)" && event.after.is_none()).count(), 300);
    assert_eq!(service.cache.lock().ended(1).len(), 0);
}

#[tokio::test]
async fn a_stored_override_that_a_new_one_may_not_be_stays_in_force() {
    let (service, ..) = service();
    let limits = "{ max: 600, duration: 3600000, minInterval: 1500 }";
    assert!(LimitChanges::parse(limits, &Bounds::default()).is_err());
    let document = serde_json::json!({
        "id": "000000000001", "domain": "", "key": ["user"], "limits": limits, "reason": "a test", "author": "me",
        "set_at_us": 0, "start_us": 0,
    });
    let name = document::name("", &["user".into()]);
    let change = DocumentChange { name, document: Some(document.to_string()), expected: None, actor: "me".to_owned() };
    // An id of 0, with which the log of these documents starts, is new only after a read of the empty log.
    service.refresh().await;
    service.documents.change(change).await.expect("it is stored");
    service.refresh().await;
    let listed = service.list(None, &[]).await.expect("they are read");
    assert!(matches!(&listed[..], [StoredOverride::Readable(one)] if &*one.id == "000000000001"), "{listed:?}");
    let handle = service.limiter.policy_guard();
    assert!(handle.policy.overrides().active("", [&b"user"[..]].into_iter()).is_some());
}

#[tokio::test]
async fn an_unreadable_override_is_listed_until_the_store_has_another_or_none() {
    let (service, ..) = service();
    service.refresh().await;
    let kinds = async || {
        service.refresh().await;
        let listed = service.list(None, &[]).await.expect("they are read");
        listed.iter().map(|one| matches!(one, StoredOverride::Readable(_))).collect::<Vec<_>>()
    };
    let put = async |document: Option<&str>| {
        let name = document::name("", &["user".into(), "0".into()]);
        let document = document.map(str::to_owned);
        let expected = match service.documents.changes(None).await.expect("they are read") {
            Changes::All { documents, .. } => documents.into_iter().next().map(|(_, document)| document),
            Changes::Some(changes) => changes.into_iter().next_back().and_then(|change| change.after),
        };
        let change = DocumentChange { name, document, expected, actor: "me".to_owned() };
        service.documents.change(change).await.expect("it is stored");
    };
    put(Some("{}")).await;
    assert_eq!(kinds().await, [false]);
    ban(&service, 0, None).await;
    assert_eq!(kinds().await, [true]);
    put(Some("{}")).await;
    assert_eq!(kinds().await, [false]);
    put(None).await;
    assert_eq!(kinds().await, [true; 0]);
    put(Some("{}")).await;
    assert_eq!(kinds().await, [false]);
    // The store has lost its data.
    let empty = Changes::All { documents: Vec::new(), since: None, is_lost: true };
    service.cache.lock().apply(empty, &Bounds::default(), 0);
    assert_eq!(service.cache.lock().stored().count(), 0);
}

#[tokio::test]
async fn an_override_set_again_is_not_removed() {
    let (service, clock, _) = service();
    ban(&service, 0, Some(1_000)).await;
    ban(&service, 1, Some(1_000)).await;
    clock.set(1_000);
    service.refresh().await;
    assert_eq!((stored(&service).await, service.cache.lock().ended(9).len()), (2, 2));
    ban(&service, 1, Some(2_000)).await;
    assert_eq!(service.cache.lock().ended(9).len(), 1);
    service.remove_ended().await;
    assert_eq!((stored(&service).await, service.cache.lock().ended(9).len()), (1, 0));
    assert_eq!(service.list(None, &[]).await.expect("they are read").len(), 1);
}

#[tokio::test]
async fn an_override_ended_by_a_fast_clock_is_restored_by_the_store() {
    let (service, clock, _) = service();
    // The limiter uses the clock of the system.
    let started = SystemClock::default().now();
    clock.set(started);
    ban(&service, 0, Some(started + HOUR)).await;
    ban(&service, 1, Some(started + 3 * HOUR)).await;
    let in_force = || {
        let handle = service.limiter.policy_guard();
        let is_banned = |user: &[u8]| handle.policy.overrides().active("", [b"user", user].into_iter()).is_some();
        [is_banned(b"0"), is_banned(b"1")]
    };
    assert_eq!(in_force(), [true, true]);
    clock.set(started + 2 * HOUR);
    service.apply_transitions(false);
    assert_eq!(in_force(), [false, true]);
    assert!(service.cache.lock().needs_store_read() && service.cache.lock().ended(9).is_empty());
    clock.set(started + HOUR / 2);
    service.remove_ended().await;
    assert_eq!((in_force(), stored(&service).await), ([true, true], 2));
    clock.set(started + HOUR);
    service.refresh().await;
    service.remove_ended().await;
    assert_eq!((in_force(), stored(&service).await), ([false, true], 1));
}

/// Replicas of different versions share the operators' overrides.
#[test]
fn stored_overrides_stay_the_same_across_versions() {
    let limits = LimitChanges::parse("{ gcra: { burst: 9, count: 1, period: 1s } }", &Bounds::default()).unwrap();
    for (change, expected) in [
        (Change::Factor(0.5), "\"factor\":0.5"),
        (Change::Limits(limits), "\"limits\":\"{ gcra: { burst: 9, count: 1, period: 1s } }\""),
        (Change::Unlimited, "\"unlimited\":true"),
        (Change::Shadow, "\"shadow\":true"),
        (Change::Ban, "\"ban\":true"),
    ] {
        let one = Override {
            id: "id".into(),
            domain: "shop".into(),
            pattern: ["user".into(), "*".into()].into(),
            change,
            reason: "a test".into(),
            author: "me".into(),
            set_at: 1,
            start: 2,
            end: Some(3),
        };
        let rest = r#""author":"me","domain":"shop","end_us":3,"id":"id","key":["user","*"],"reason":"a test","set_at_us":1,"start_us":2"#;
        let stored: serde_json::Value = serde_json::from_str(&format!("{{{rest},{expected}}}")).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&document::write(&one)).unwrap(), stored);
        assert_eq!(*document::read(&stored.to_string(), &Bounds::default()).unwrap(), one);
        assert_eq!(document::name(&one.domain, &one.pattern), r#"["shop",["user","*"]]"#);
    }
}
