//! The service is killed under traffic and restarted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::{
    client::Client,
    config::headers,
    scene::{Scene, Wish},
    support::{eventually, http::Answer},
};

const CLIENTS: usize = 8;
const LIMIT: usize = 50;

/// Counts of answers by kind.
#[derive(Default)]
struct Tally {
    /// Passed and counted: the answer contains the limit.
    counted: AtomicUsize,
    /// Passed without a decision.
    open: AtomicUsize,
    /// Refused by the limit.
    refused: AtomicUsize,
}

impl Tally {
    fn add(&self, answer: &Answer) {
        let of = match (answer.status, answer.header("ratelimit-limit")) {
            (200, Some(_)) => &self.counted,
            (200, None) => &self.open,
            (429, Some(_)) => &self.refused,
            _ => panic!("{answer:?}"),
        };
        of.fetch_add(1, SeqCst);
    }

    /// Waits for this many more answers of a kind.
    fn more(&self, what: &str, of: fn(&Self) -> &AtomicUsize) {
        let enough = of(self).load(SeqCst) + 5 * CLIENTS;
        eventually(what, || (of(self).load(SeqCst) >= enough).then_some(()));
    }
}

fn traffic(address: &str, tally: &Tally, goes_on: &AtomicBool) {
    let mut client = Client::connect(address);
    while goes_on.load(SeqCst) {
        tally.add(&client.get(&[("x-user", "alex")]));
    }
}

fn wish(open: bool) -> Wish {
    let descriptors = format!("\n  - {{ key: user, rate_limit: {{ unit: year, requests_per_unit: {LIMIT} }} }}\n");
    let wish = Wish::new(&descriptors, vec![headers(&[("x-user", "user")])]).ratelimit_headers();
    if open { wish.open_without_decision() } else { wish }
}

fn through_two_deaths(scene: &mut Scene, tally: &Tally) {
    for death in 1..=2 {
        tally.more("refusals", |tally| &tally.refused);
        let counted = tally.counted.load(SeqCst);
        scene.kill_weir();
        tally.more("passes without a decision", |tally| &tally.open);
        let still = tally.counted.load(SeqCst);
        assert_eq!(still, counted, "all were refused, so nothing that was counted passed any more");
        scene.restart_weir();
        tally.more("refusals", |tally| &tally.refused);
        let again = tally.counted.load(SeqCst) - counted;
        assert!((1..=LIMIT).contains(&again), "after death {death}: {again} of {LIMIT}");
    }
}

#[test]
fn requests_pass_during_an_outage_and_are_limited_after_it() {
    let mut scene = wish(true).start();
    let (tally, goes_on) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(true)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, tally, goes_on) = (scene.proxy.address.clone(), Arc::clone(&tally), Arc::clone(&goes_on));
            thread::spawn(move || traffic(&address, &tally, &goes_on))
        })
        .collect();
    through_two_deaths(&mut scene, &tally);
    goes_on.store(false, SeqCst);
    for client in clients {
        client.join().expect("every answer is one of three");
    }
    assert!(scene.proxy.counted("failure_mode_allowed") > 0);
    assert_eq!(scene.weir().get("/readyz").0, 200);
}

#[test]
fn failure_mode_deny_rejects_requests_during_an_outage() {
    let mut scene = wish(false).start();
    let mut client = scene.client();
    assert_eq!(client.get(&[("x-user", "alex")]).status, 200);
    scene.kill_weir();
    assert_eq!(client.statuses(3, &[("x-user", "alex")]), [500; 3]);
    scene.restart_weir();
    eventually("it is asked again", || (client.get(&[("x-user", "alex")]).status == 200).then_some(()));
}
