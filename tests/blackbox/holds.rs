//! Holders of units: `ListHolds` and `weir holds`, in memory, Redis and a Cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir::proto::{
    CheckRequest, HoldKind, KeyHold, LeaseRequest, LeaseResponse, ListHoldsRequest, ListKeysRequest,
    admin_client::AdminClient,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    explorer::query,
    support::{
        Server,
        http::Client as Http,
        requests::{all_pages, check, gcra, reset, with_limits},
        reservations::{Client, HOUR, cancel, left, reserve, wanted},
        server::Setup,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "
schema:
  user:
    children:
      '*':
        limits: [{ name: per-user, fixed_window: { count: 1000, period: 1d } }]
        children: { trade: { limits: [{ name: trades, fixed_window: { count: 500, period: 1d } }] } }
  leased: { children: { '*': { limits: [{ name: leased, lease: { ttl: 60s }, fixed_window: { count: 1000, period: 1d } }] } } }
  slots: { children: { '*': { limits: [{ name: slots, concurrency: { max: 3, ttl: 1h } }] } } }
";

/// Reserves units of this key for an hour. Returns the hold.
async fn hold(client: &mut Client, key: &[&str], units: i64) -> String {
    let answer = reserve(client, wanted(key, units, HOUR)).await;
    assert!(answer.decision.is_some_and(|decision| decision.allowed && !decision.degraded));
    answer.hold
}

async fn ask(client: &mut Client, request: LeaseRequest) -> LeaseResponse {
    let stream = client.lease(futures_util::stream::iter([request])).await;
    stream.expect("a stream").into_inner().message().await.expect("an answer").expect("one")
}

/// Leases 50 units of a key.
async fn lease(client: &mut Client, key: &[&str]) {
    let check = CheckRequest { cost: Some(0), ..check(key) };
    let mut request =
        LeaseRequest { check: Some(check), holder: vec![7; 16], lease: 1, sequence: 1, ..Default::default() };
    let terms = ask(client, request.clone()).await.terms.expect("terms");
    (request.sequence, request.want, request.generation) = (2, 50, terms.generation);
    assert_eq!(ask(client, request).await.grant.expect("a grant").units, 50);
}

/// Lists all holds below a prefix, in pages of this size.
async fn list(server: &Server, prefix: &[&str], page_size: u32) -> Vec<KeyHold> {
    let mut client = AdminClient::new(server.channel().await);
    let prefix = prefix.iter().map(|segment| (*segment).to_owned()).collect();
    let request = ListHoldsRequest { prefix, page_size, ..Default::default() };
    all_pages(async |cursor| {
        let request = ListHoldsRequest { cursor, ..request.clone() };
        let page = client.list_holds(request).await.expect("a page").into_inner();
        (page.holds, page.next_cursor)
    })
    .await
}

/// Key, limit, kind and units of a hold.
type Row = (String, String, HoldKind, u64);

fn rows(holds: &[KeyHold]) -> BTreeSet<Row> {
    let one = |hold: &KeyHold| (hold.key.join("/"), hold.limit_name.clone(), hold.kind(), hold.units);
    holds.iter().for_each(|hold| {
        let after = hold.expires_after.expect("a time").seconds;
        assert!((1..=3_600).contains(&after), "{hold:?}");
        assert_eq!(hold.reservation.len(), if hold.kind() == HoldKind::Lease { 0 } else { 32 }, "{hold:?}");
    });
    let set: BTreeSet<_> = holds.iter().map(one).collect();
    assert_eq!(set.len(), holds.len(), "each once: {holds:?}");
    set
}

async fn lists_every_hold(server: &Server, other: &Server) {
    let mut client = server.client().await;
    hold(&mut client, &["user", "alex", "trade"], 4).await;
    let of_sam = hold(&mut client, &["user", "sam"], 2).await;
    hold(&mut client, &["slots", "job"], 7).await;
    lease(&mut client, &["leased", "kim"]).await;
    let mut elsewhere = wanted(&["elsewhere"], 3, HOUR);
    elsewhere.check = elsewhere
        .check
        .map(|check| with_limits(CheckRequest { domain: "other".to_owned(), ..check }, vec![gcra(9, 1, 60)]));
    assert_eq!(reserve(&mut client, elsewhere).await.decision.map(|decision| decision.allowed), Some(true));
    // Charged without a hold.
    assert!(client.check(check(&["user", "max"])).await.expect("an answer").into_inner().allowed);

    let row = |key: &str, limit: &str, kind, units| (key.to_owned(), limit.to_owned(), kind, units);
    let [on_user, on_trades, of_other] = [
        row("user/alex", "per-user", HoldKind::Reservation, 4),
        row("user/alex/trade", "trades", HoldKind::Reservation, 4),
        row("user/sam", "per-user", HoldKind::Reservation, 2),
    ];
    let rest = [row("slots/job", "slots", HoldKind::Slot, 1), row("leased/kim", "leased", HoldKind::Lease, 50)];
    let all: BTreeSet<_> = [on_user.clone(), on_trades.clone(), of_other.clone()].into_iter().chain(rest).collect();
    for page_size in [0, 1, 1_000] {
        let holds = list(other, &[], page_size).await;
        assert_eq!(rows(&holds), all, "pages of {page_size}");
        let lease = holds.iter().find(|hold| hold.kind() == HoldKind::Lease).expect("the lease");
        assert!(lease.owner.len() == 16 && lease.replica.is_empty(), "{lease:?}");
    }
    assert_eq!(rows(&list(other, &["user", "alex"], 0).await), [on_user.clone(), on_trades.clone()].into());
    assert_eq!(rows(&list(other, &["user", "alex", "trade"], 0).await), [on_trades.clone()].into());
    assert_eq!(left(&mut client, &["user", "sam"]).await, 998, "nothing is charged");
    cancel(&mut client, &of_sam).await.expect("it is there");
    assert_eq!(rows(&list(other, &["user"], 0).await), [on_user, on_trades].into());

    // `ListKeys` reports the same units as outstanding.
    let keys = ListKeysRequest { all_domains: true, ..Default::default() };
    let keys = AdminClient::new(other.channel().await).list_keys(keys).await.expect("a page").into_inner().keys;
    let outstanding = |name: &str| keys.iter().find(|key| key.key.join("/") == name).map(|key| key.outstanding);
    assert_eq!(["user/alex", "leased/kim", "slots/job"].map(outstanding), [Some(4), Some(50), Some(1)]);
    assert_eq!(outstanding("user/max"), Some(0));

    let state = query(other, "key", json!({ "domain": "", "key": ["user", "alex"] }));
    assert_eq!(
        (&state["levels"][0]["holds"][0]["units"], &state["levels"][0]["holds"][0]["owner"]),
        (&json!(4), &Value::Null)
    );

    let run = other.run(&["holds", "user"]);
    assert!(run.code == 0 && run.out.contains("reservation  -  user/alex/trade  trades"), "{run:?}");
    let run = other.run(&["holds", "--all-domains"]);
    assert!(run.out.contains("-  other: elsewhere  ") && run.out.contains("-  user/alex/trade  trades"), "{run:?}");
    let run = other.run(&["holds", "--by-owner", "--json"]);
    assert!(run.out.contains(r#"{"kind":"reservation","owner":"-","units":8,"holds":2}"#), "{run:?}");
    let mut http = Http::connect(&other.http).expect("it accepts connections");
    let body = br#"{"prefix":["slots"]}"#;
    let answer = http.ask("POST /v1/admin/list_holds", &[("content-type", "application/json")], body).expect("one");
    let holds = answer.json()["holds"].clone();
    assert_eq!((&holds[0]["kind"], &holds[0]["limitName"]), (&json!("HOLD_KIND_SLOT"), &json!("slots")), "{holds}");
}

fn setup() -> Setup {
    crate::explorer::setup().policy(POLICY)
}

#[tokio::test]
async fn holds_in_memory_are_listed() {
    let server = setup().start();
    lists_every_hold(&server, &server).await;
}

#[tokio::test]
async fn holds_in_redis_are_listed_by_every_replica() {
    let redis = Redis::start(Options::socket());
    lists_every_hold(&setup().shared(&redis).start(), &setup().shared(&redis).start()).await;
}

#[tokio::test]
async fn holds_in_a_cluster_are_listed_by_every_replica() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let start = || {
        let setup = setup().env("WEIR_STORE__URL", &cluster.url());
        setup.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s").start()
    };
    lists_every_hold(&start(), &start()).await;
}

#[tokio::test]
async fn the_owner_of_a_reservation_is_the_client_and_admins_may_reset() {
    let tokens: Vec<_> = (0..2).map(|_| token()).collect();
    let [shop, admin] = &tokens[..] else { unreachable!() };
    let callers = [caller("shop", "check", shop, ""), caller("ops", "admin", admin, "")];
    let server = setup().credentials(&format!("callers:\n{}", callers.concat())).start();
    let (shop, admin) = (Some(shop.token.as_str()), Some(admin.token.as_str()));
    let mut client = server.client().await;
    client.reserve(by(shop, wanted(&["user", "alex"], 4, HOUR))).await.expect("a reservation");
    let mut admins = AdminClient::new(server.channel().await);
    assert!(admins.list_holds(by(shop, ListHoldsRequest::default())).await.is_err());
    let holds = admins.list_holds(by(admin, ListHoldsRequest::default())).await.expect("a page").into_inner().holds;
    assert_eq!(holds.iter().map(|hold| (&*hold.owner, hold.units)).collect::<Vec<_>>(), [("shop", 4)]);
    let reset = || reset(&["user", "alex"], false);
    assert_eq!(client.reset(by(shop, reset())).await.expect_err("no role").code(), tonic::Code::PermissionDenied);
    client.reset(by(admin, reset())).await.expect("the role admin includes reset");
}
