//! A service in memory, made anew for each input, so that what one finds does not depend on those before it.

use std::{
    fmt::Write,
    sync::{Arc, LazyLock},
};

use weir_core::{
    algorithm::{self, Bounds},
    domain::{ManualClock, Micros},
};
use weir_policy::{Domain, Policy, Rules, descriptors, file};
use weir_settings::{Problems, document};
use weir_store::{MemoryStore, memory::MemorySettings};

use weir::{limiter::Limiter, telemetry::Metrics, transport::check_service::CheckService};

/// When everything happens.
pub const NOW: Micros = 1_790_000_000_000_000;

/// Few enough that a store is full now and then.
const MAX_KEYS: usize = 100;

/// The policy of the quick start, and the file of descriptors of the example.
const NATIVE: &str = include_str!("../../config/limits.yaml");
const DESCRIPTORS: &str = include_str!("../../examples/envoy/limits/shop.yaml");

/// The domain in which every algorithm has a key of its name, with a limit for each of its examples.
pub const EVERY: &str = "every";

/// A store in memory whose time stands where it is put.
pub type Memory = MemoryStore<Arc<ManualClock>>;

static DOMAINS: LazyLock<[Domain; 3]> = LazyLock::new(|| {
    let native = |text: &str| read(text, file::read);
    [
        native(NATIVE),
        native(&every()),
        read(DESCRIPTORS, |document, bounds| descriptors::file::read(document, &rules(bounds))),
    ]
});
static METRICS: LazyLock<Arc<Metrics>> = LazyLock::new(Metrics::new);

fn read(text: &str, as_domain: fn(&document::Node, &Bounds) -> Result<Domain, Problems>) -> Domain {
    let document = document::parse(text).expect("YAML").expect("a document");
    as_domain(&document, &Bounds::default()).unwrap_or_else(|problems| panic!("{text}: {problems}"))
}

/// How files of descriptors are read, within these bounds.
pub fn rules(bounds: &Bounds) -> Rules {
    Rules { bounds: *bounds, ..Rules::default() }
}

fn every() -> String {
    let mut text = format!("domain: {EVERY}\nschema:\n");
    for entry in algorithm::LIST {
        let _ = writeln!(text, "  {}:\n    limits:", entry.name);
        for example in entry.examples {
            let fields: Vec<_> = example.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            let _ = writeln!(text, "    - {}: {{ {} }}", entry.name, fields.join(", "));
        }
    }
    text
}

/// What is in force: the default domain, [`EVERY`], and `shop`, which is one of descriptors.
pub fn policy() -> Policy {
    Policy::new(DOMAINS.iter().cloned())
}

/// An empty store at this moment.
pub fn store(now: Micros) -> Memory {
    let settings = MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() };
    MemoryStore::new(settings, Arc::new(ManualClock::new(now)))
}

/// A limiter over a store by some policy.
pub fn limiter(store: Memory, policy: Policy) -> Limiter<Memory> {
    Limiter::new(store, policy, Arc::clone(&METRICS))
}

/// A service without any call so far.
pub fn checks() -> CheckService<Memory> {
    CheckService::new(Arc::new(limiter(store(NOW), policy())), Bounds::default())
}
