//! A service in memory, made anew for each input, so that the results of an input do not depend on previous ones.

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
use weir_store::{AnyStore, MemoryStore, SystemClock, memory::MemorySettings};

use weir::{
    limiter::Limiter,
    overrides::{DOCUMENTS, OverrideService},
    telemetry::{CallKind, Metrics},
    transport::{
        admin::{AdminService, ReplicaRegistry},
        audit::Actor,
        check_service::CheckService,
    },
};

/// The time of all events.
pub const NOW: Micros = 1_790_000_000_000_000;

/// Maximum number of keys, so low that a store is sometimes full.
const MAX_KEYS: usize = 100;

/// The policy of the quick start, and the descriptors of the example.
const NATIVE: &str = include_str!("../../config/limits.yaml");
const DESCRIPTORS: &str = include_str!("../../examples/envoy/limits/shop.yaml");

/// The domain with a key for each algorithm, which has a limit for each of its examples.
pub const EVERY: &str = "every";

/// A store in memory with a manual clock.
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

/// Returns the rules for files of descriptors, within these bounds.
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

/// Returns the policy in force: the default domain, [`EVERY`], and `shop`, a domain of descriptors.
pub fn policy() -> Policy {
    Policy::new(DOMAINS.iter().cloned())
}

/// Makes an empty store at this time.
pub fn store(now: Micros) -> Memory {
    let settings = MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() };
    MemoryStore::new(settings, Arc::new(ManualClock::new(now)))
}

/// Makes a limiter over a store with a policy.
pub fn limiter(store: Memory, policy: Policy) -> Limiter<Memory> {
    Limiter::new(store, policy, Arc::clone(&METRICS))
}

/// Makes a service without previous calls.
pub fn checks() -> CheckService<Memory> {
    CheckService::new(Arc::new(limiter(store(NOW), policy())), Bounds::default())
}

/// Makes a client without a name.
pub fn actor() -> Actor {
    Actor { surface: "grpc", transport: CallKind::Grpc, peer: None, client: None }
}

/// Makes the operators' API over a store of its own.
pub fn admin() -> Arc<AdminService> {
    let store = AnyStore::Memory(MemoryStore::new(MemorySettings::default(), SystemClock::new()));
    let documents = store.documents(DOCUMENTS, None).expect("in memory");
    let limiter = Arc::new(Limiter::new(store, policy(), Arc::clone(&METRICS)));
    let overrides = OverrideService::new(documents, Arc::clone(&limiter), Bounds::default());
    let replicas = ReplicaRegistry::new(Arc::clone(&limiter), String::new());
    Arc::new(AdminService::new(limiter, Arc::new(replicas), Arc::new(overrides)))
}
