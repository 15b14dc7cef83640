//! Judges what three services with leases over one store admit together under faults, by the clocks of their clients.
//! `./drill leases` runs it.

mod judge;
mod load;
mod proxy;
mod service;
mod store;

use std::{
    error::Error,
    fs,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use clap::Parser;
use tokio::runtime;
use weir_core::domain::time::DAY;

use judge::{Level, Limit, Verdict};
use load::{Answer, Load};
use proxy::Proxy;
use service::{Clock, Service};
use store::Store;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Checks per second over all services: within the limits, so that services hold many units, and above them.
const AMPLE: u64 = 400;
const FLOOD: u64 = 2_500;
/// Times in a round: start of the fault, start of the flood, end of the fault, end of the round.
const FAULT: Duration = Duration::from_millis(1_500);
const RISE: Duration = Duration::from_millis(1_900);
const RECOVERY: Duration = Duration::from_millis(4_000);
const END: Duration = Duration::from_millis(5_500);
/// Time for which a resumed service cannot reach the store.
const ALONE: Duration = Duration::from_millis(300);
/// Minimum share of the admitted units that leases must have paid for, otherwise the drill proves nothing.
const MIN_LEASED: f64 = 0.2;
/// The limits of a round's key: a quota that the flood exhausts, which shows each unit too many; a rate of all
/// requests; and a rate of trades.
const QUOTA: Limit = Limit { name: "quota", capacity: 3_200, per_second: 0 };
const REQUESTS: Limit = Limit { name: "requests", capacity: 600, per_second: 600 };
const TRADES: Limit = Limit { name: "trades", capacity: 480, per_second: 400 };
/// The levels: each limit with the answers that it covers.
const LEVELS: [Level; 3] = [
    Level { limit: QUOTA, covers: |_| true },
    Level { limit: REQUESTS, covers: |_| true },
    Level { limit: TRADES, covers: |answer| answer.is_trade },
];

/// Judge three services with leases under faults
#[derive(Parser)]
struct Args {
    /// The binary of weir
    #[arg(long)]
    weir: PathBuf,
    /// libfaketimeMT.so.1
    #[arg(long)]
    faketime: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL of a service, which is restarted.
    Kill,
    /// SIGSTOP of a service for longer than its leases last. It cannot reach the store when it resumes.
    Pause,
    /// A network partition between a service and the store. Bytes sent meanwhile arrive afterwards.
    Partition,
    /// The wall clock of a service jumps ahead by an hour, then back by two.
    Clock,
    /// A failover of the key's master to its replica, and back.
    Failover,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    judge::self_test()?;
    let common = [Fault::Kill, Fault::Pause, Fault::Partition, Fault::Clock];
    let mut over = 0;
    over += Fleet::start(&args, Store::single())?.drill(&common)?;
    over += Fleet::start(&args, Store::cluster())?.drill(&[&common[..], &[Fault::Failover]].concat())?;
    if over > 0 { Err(format!("{over} admitted beyond a limit").into()) } else { Ok(()) }
}

/// Returns the policy. Degraded checks are refused, so that only the store and its leases admit.
fn policy() -> String {
    let rate = |Limit { name, capacity, per_second }: Limit| {
        format!("{{ token_bucket: {{ capacity: {capacity}, count: {per_second}, period: 1s }}, name: {name} }}")
    };
    let gcra = |Limit { name, capacity, per_second }: Limit| {
        format!("{{ gcra: {{ burst: {}, count: {per_second}, period: 1s }}, name: {name} }}", capacity - 1)
    };
    let quota = |Limit { name, capacity, .. }: Limit| {
        format!(
            "{{ fixed_window: {{ count: {capacity}, period: {}d }}, name: {name} }}",
            store::days_without_an_edge(DAY)
        )
    };
    format!(
        "on_store_failure: deny\nlease: {{ ttl: 2s }}\nschema: {{ user: {{ children: {{ '*': {{ limits: [{}, {}], children: {{ trade: \
         {{ limits: [{}] }} }} }} }} }} }}\n",
        quota(QUOTA),
        rate(REQUESTS),
        gcra(TRADES),
    )
}

/// Three services over one store: the first one has a clock that runs slow, the last one a wall clock that can be set
/// and a proxy in front of each server of the store.
struct Fleet {
    services: Vec<Service>,
    store: Store,
    proxy: Proxy,
    runtime: runtime::Runtime,
}

impl Fleet {
    fn start(args: &Args, store: Store) -> Outcome<Self> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let proxy = runtime.block_on(Proxy::start(&store.ports()))?;
        let limits = store.dir().join("limits.yaml");
        fs::write(&limits, policy())?;
        let service = |number: usize, host: &str, clock: Clock| {
            let url = store.url(host);
            let settings = [("WEIR_STORE__URL", url.as_str()), ("WEIR_LIMITS", &limits.display().to_string())];
            Service::start(&args.weir, &args.faketime, clock, &settings, &store.dir().join(format!("service-{number}")))
        };
        let services = vec![
            service(0, "127.0.0.1", Clock::Slow)?,
            service(1, "127.0.0.1", Clock::True)?,
            service(2, proxy::HOST, Clock::Set)?,
        ];
        let fleet = Self { services, store, proxy, runtime };
        fleet.wait_until_served()?;
        Ok(fleet)
    }

    /// Waits until the store answers each service.
    fn wait_until_served(&self) -> Outcome<()> {
        let mut addresses = self.services.iter().map(|service| service.address.as_str());
        addresses.try_for_each(|address| self.runtime.block_on(load::wait_until_served(address)))
    }

    /// Runs a round for each fault, with a separate key, and returns the units admitted beyond the
    /// limits.
    fn drill(mut self, faults: &[Fault]) -> Outcome<i64> {
        let mut over = 0;
        for fault in faults {
            let key = format!("{fault:?}").to_lowercase();
            let answers = self.round(*fault, &key)?;
            let verdict = Verdict::of(&LEVELS, &answers);
            println!("{:<8} {key:<10} {verdict}", self.store.name());
            over += verdict.over;
            if verdict.leased < MIN_LEASED {
                return Err(format!("leases paid for {:.0} % only", verdict.leased * 100.0).into());
            }
            self.wait_until_served()?;
        }
        for service in &self.services {
            service.assert_sound()?;
        }
        Ok(over)
    }

    fn round(&mut self, fault: Fault, key: &str) -> Outcome<Vec<Answer>> {
        let addresses: Vec<_> = self.services.iter().map(|service| service.address.clone()).collect();
        let (start, load) = (Instant::now(), Load::start(&self.runtime, &addresses, key, AMPLE));
        let until = |after: Duration| sleep((start + after).saturating_duration_since(Instant::now()));
        until(FAULT);
        match fault {
            Fault::Kill => self.services[1].kill(),
            Fault::Pause => self.services[2].pause()?,
            Fault::Partition => self.proxy.cut(true),
            Fault::Clock => self.services[2].set_clock("+3600s")?,
            Fault::Failover => self.store.fail_over(key)?,
        }
        // A limit that has recovered admits a whole burst when a resumed service still believes in units that were
        // burnt.
        until(if fault == Fault::Pause { RECOVERY } else { RISE });
        load.pace(FLOOD);
        until(RECOVERY);
        match fault {
            Fault::Kill => self.services[1].restart()?,
            Fault::Pause => {
                self.proxy.cut(true);
                self.services[2].resume()?;
                until(RECOVERY + ALONE);
                self.proxy.cut(false);
            }
            Fault::Partition => self.proxy.cut(false),
            Fault::Clock => self.services[2].set_clock("-3600s")?,
            Fault::Failover => self.store.fail_over(key)?,
        }
        until(END);
        Ok(self.runtime.block_on(load.stop()))
    }
}
