//! A service whose store fails under load, and the answers of its clients.

use std::{
    fs,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use weir_core::algorithm::Entry;
use weir_test_redis::eventually;

use tokio::{runtime::Runtime, sync::RwLock, task::JoinHandle};
use weir::proto::CheckRequest;

use super::callers::{Answer, AnsweredBy, Answers, CALLERS, RULES, answered_by, call, longest_stall, of_rule};

use crate::{
    service::{runtime, window},
    support::{
        Server, crowd,
        requests::{check, peek},
        server::Setup,
    },
};

/// Timeout of a check in the store.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum duration of a call besides stalls of the machine: ten times the expected duration.
const LONGEST_CALL: Duration = COMMAND_TIMEOUT.saturating_mul(10);
/// Number of consecutive equal answers that prove a condition.
const ENOUGH: usize = 20;
/// Number of consecutive answers of the circuit breaker, without any check that tries to connect.
const ENOUGH_AT_ONCE: f64 = 200.0;
/// Number of limits on a caller's key.
const LEVELS: u64 = 2;
/// Units of the callers' limits, never exhausted.
const PLENTY: u64 = 1_000_000_000;
/// Number of clients in a crowd, each of which requests 24 units, and the units that all get together. Few, since the
/// work of a `sliding_log` grows with its units, and a slow machine must answer the crowd in time.
const CROWD: usize = 16;
const UNITS: u64 = 200;
/// Maximum number of crowds until the store alone answers one.
const CROWDS: u64 = 5;

/// A service with callers in the domain of every rule.
pub struct Scene {
    name: &'static str,
    runtime: Runtime,
    pub service: [Server; 1],
    answers: Answers,
    over: Arc<AtomicBool>,
    /// Read-locked by every caller during a call.
    turn: Arc<RwLock<()>>,
    callers: Vec<JoinHandle<()>>,
    /// The longest duration of calls without a store decision.
    stall: JoinHandle<Duration>,
    /// The time at which the store was healthy again.
    mended: Option<Instant>,
    recovery: Duration,
}

/// Configures a service on the store at this URL, with a domain for each rule.
pub fn service(url: &str) -> Setup {
    let setup = Setup::new();
    let limits = setup.path("policies");
    fs::create_dir(&limits).expect("a directory");
    for rule in RULES {
        let (outer, inner) = (window(PLENTY), window(PLENTY));
        let few = "gcra: { burst: 4, count: 1, period: 1d }";
        let policy = format!(
            "domain: {rule}\non_store_failure: {rule}\nschema:\n  few: {{ children: {{ '*': {{ limits: [{{ {few} }}] }} }} \
             }}\n  story: {{ children: {{ '*': {{ limits: [{{ {outer} }}], children: {{ trade: {{ limits: [{{ {inner} }}] \
             }} }} }} }} }}\n"
        );
        fs::write(limits.join(format!("{rule}.yaml")), policy).expect("written");
    }
    fs::write(limits.join("default.yaml"), crowd::schema(UNITS)).expect("written");
    let timeout = format!("{}ms", COMMAND_TIMEOUT.as_millis());
    setup.limits(limits).env("WEIR_STORE__URL", url).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", &timeout)
}

impl Scene {
    /// Starts a service and its callers. The store may be down.
    pub fn start(name: &'static str, setup: Setup) -> Self {
        let (service, runtime, over) = (setup.start(), runtime(), Arc::new(AtomicBool::new(false)));
        let turn: Arc<RwLock<()>> = Arc::default();
        let answers = Answers::default();
        let mut callers = Vec::new();
        for number in 0..RULES.len() * CALLERS {
            let client = runtime.block_on(service.client());
            let (answers, over, turn) = (Arc::clone(&answers), Arc::clone(&over), Arc::clone(&turn));
            callers.push(runtime.spawn(call(client, number, answers, over, turn)));
        }
        let stall = runtime.spawn(longest_stall(runtime.block_on(service.client()), Arc::clone(&over)));
        let service = [service];
        let (mended, recovery) = (None, Duration::ZERO);
        Self { name, runtime, service, answers, over, turn, callers, stall, mended, recovery }
    }

    /// Starts with a healthy store: waits until it has answered callers in every domain.
    pub fn start_well(name: &'static str, setup: Setup) -> Self {
        let scene = Self::start(name, setup);
        scene.wait_for("the store answers", |answered_by| answered_by == AnsweredBy::Shared);
        scene
    }

    /// Waits until every rule has answered instead of the store, and the service has marked a server as down. Readiness
    /// does not change.
    pub fn fails(&self) {
        self.wait_for("the rules answer", |answered_by| answered_by != AnsweredBy::Shared);
        assert_eq!(self.service[0].get("/readyz").0, 200);
        self.wait_for_up(false);
    }

    /// Waits until the service has marked a server of its store as down, or all as up.
    fn wait_for_up(&self, up: bool) {
        let expected = if up { "1" } else { "0" };
        eventually("weir_store_server_up", || {
            let text = self.service[0].get("/metrics").1;
            let mut servers = text.lines().filter(|line| line.starts_with("weir_store_server_up{"));
            let seen = servers.any(|line| line.ends_with(&format!("}} {expected}")));
            let other =
                !up || !text.lines().any(|line| line.starts_with("weir_store_server_up{") && line.ends_with("} 0"));
            if seen && other { Ok(()) } else { Err("the other".to_owned()) }
        });
    }

    /// Waits until the circuit breaker answers: no check tries to connect any more, however long the outage lasts.
    pub fn answers_at_once(&self) {
        let counts = || {
            ["connect", "breaker_open"].map(|kind| {
                self.service[0].metric(&format!("weir_store_errors_total{{store=\"redis\",kind=\"{kind}\"}}"))
            })
        };
        let mut seen = counts();
        eventually("the breaker answers", || {
            let [connect, breaker_open] = counts();
            if connect > seen[0] {
                seen = [connect, breaker_open];
            }
            if breaker_open >= seen[1] + ENOUGH_AT_ONCE { Ok(()) } else { Err(format!("{connect} {breaker_open}")) }
        });
    }

    /// Marks the time at which the store is healthy again.
    pub fn mended(&mut self) {
        self.mended = Some(Instant::now());
    }

    /// Waits until the store answers callers in every domain again.
    pub fn wait_for_recovery(&mut self) {
        let since = self.mended.unwrap_or_else(Instant::now);
        self.wait_for("the store answers again", |answered_by| answered_by == AnsweredBy::Shared);
        self.recovery = since.elapsed();
        self.wait_for_up(true);
    }

    /// Marks the store as healthy, waits for recovery, and ends with [`Scene::finish`].
    pub fn recovers(mut self, keeps: bool) {
        self.mended();
        self.wait_for_recovery();
        self.finish(keeps);
    }

    /// Asserts that in the domain of rule `local` this replica admits the limit's units locally.
    pub fn local_counts(&self) {
        let request = of_rule(0, check(&["few", "alex"]));
        let answered_by: Vec<_> = (0..8).map(|_| self.ask(request.clone())).collect();
        assert_eq!(
            answered_by,
            [[AnsweredBy::Degraded(true); 5].as_slice(), &[AnsweredBy::Degraded(false); 3]].concat()
        );
    }

    fn ask(&self, request: CheckRequest) -> AnsweredBy {
        self.runtime.block_on(async { answered_by(&mut self.service[0].client().await, request).await })
    }

    /// Waits until clients in every domain have got [`ENOUGH`] such answers in a row from now on.
    fn wait_for(&self, what: &str, is_so: impl Fn(AnsweredBy) -> bool) {
        let from = self.lock().len();
        eventually(what, || {
            let answers = self.lock();
            let newest = |rule| answers[from..].iter().rev().filter(move |answer| answer.rule == rule).take(ENOUGH);
            let counts = [0, 1, 2, 3].map(|rule| newest(rule).take_while(|answer| is_so(answer.answered_by)).count());
            if counts.iter().all(|count| *count == ENOUGH) { Ok(()) } else { Err(format!("{counts:?} in a row")) }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the callers and asserts the guarantees of every outage: each answer by its rule, in time and counted,
    /// exact counts afterwards, no panic. `keeps`: the store has lost no data.
    pub fn finish(mut self, keeps: bool) {
        let answers = self.end();
        if keeps {
            self.nothing_was_charged_twice(&answers);
        }
        for algorithm in weir_core::algorithm::rates() {
            self.is_exact_again(algorithm);
        }
        assert!(self.service[0].lives());
    }

    /// Asserts that the store admits exactly the limit on an unused key. A check that the store did not answer may be
    /// charged too. A busy machine may stall the store for longer than a check's timeout, so crowds are sent until the
    /// store answers one completely, or most of the last ones.
    fn is_exact_again(&self, algorithm: &Entry) {
        let (given, name) = (crowd::given(algorithm, UNITS), algorithm.name);
        let mut crowds = 0..;
        eventually("the store answers a crowd", || {
            let number = crowds.next().unwrap_or(CROWDS);
            let tally = self.runtime.block_on(crowd::ask(&self.service, CROWD, name, &format!("fresh{number}")));
            let (by_store, not_by_store) = (tally.allowed - tally.degraded_allowed, tally.degraded + tally.shed);
            assert!((by_store..=by_store + not_by_store).contains(&given), "{name}: {tally:?}, not {given}");
            if not_by_store == 0 || number >= CROWDS && not_by_store < given {
                return Ok(());
            }
            Err(format!("{name}: {tally:?}"))
        });
    }

    /// Ends the scene, like [`Scene::finish`], while the store is still down.
    pub fn finish_down(mut self) {
        self.end();
        assert!(self.service[0].lives());
    }

    /// Asserts that every answer came from the store.
    pub fn assert_unnoticed(&self) {
        assert_eq!(
            self.lock().iter().find(|answer| answer.answered_by != AnsweredBy::Shared).map(|answer| answer.answered_by),
            None
        );
    }

    /// Runs `work` while no client has a call in flight.
    pub fn quietly(&self, work: impl FnOnce()) {
        let all = self.runtime.block_on(self.turn.write());
        work();
        drop(all);
    }

    fn end(&mut self) -> Vec<Answer> {
        self.over.store(true, Ordering::Relaxed);
        for caller in std::mem::take(&mut self.callers) {
            self.runtime.block_on(caller).expect("no caller fails");
        }
        let stall = self.runtime.block_on(&mut self.stall).expect("no caller fails");
        let answers = self.lock().clone();
        self.report(&answers, stall);
        self.judge(&answers, stall);
        answers
    }

    fn report(&self, answers: &[Answer], stall: Duration) {
        let mut times: Vec<_> = answers.iter().map(|answer| answer.took).collect();
        times.sort();
        let quantile = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let count = |is_so: fn(AnsweredBy) -> bool| answers.iter().filter(|answer| is_so(answer.answered_by)).count();
        println!(
            "{}: {} calls, {} by the rules, {} errors; p50 {:?}, p99 {:?}, longest {:?}, {stall:?} without the \
             store; the store answered all {:?} after it was well",
            self.name,
            answers.len(),
            count(|answered_by| matches!(answered_by, AnsweredBy::Degraded(_))),
            count(|answered_by| answered_by == AnsweredBy::Error),
            quantile(0.5),
            quantile(0.99),
            quantile(1.0),
            self.recovery
        );
    }

    /// Asserts that answers are in time, by their rules, and counted. `stall`: the longest duration of calls without a
    /// store decision on the same machine at the same time.
    fn judge(&self, answers: &[Answer], stall: Duration) {
        for answer in answers {
            assert!(answer.took <= LONGEST_CALL + stall, "{answer:?}, {stall:?} without the store");
            let by_rule = match RULES[answer.rule] {
                "local" | "allow" => AnsweredBy::Degraded(true),
                "deny" => AnsweredBy::Degraded(false),
                _ => AnsweredBy::Error,
            };
            assert!(answer.answered_by == AnsweredBy::Shared || answer.answered_by == by_rule, "{answer:?}");
        }
        let by_rules = |rule| {
            let not_shared =
                answers.iter().filter(|answer| answer.rule == rule && answer.answered_by != AnsweredBy::Shared);
            not_shared.count() as f64
        };
        for (rule, name) in RULES.iter().enumerate() {
            let series = format!("weir_degraded_total{{domain=\"{name}\",mode=\"{name}\"}}");
            // `local_counts` sends up to 8 more checks.
            let counted = self.service[0].metric(&series);
            assert!((0.0..=8.0).contains(&(counted - by_rules(rule))), "{series}: {counted}, not {}", by_rules(rule));
        }
    }

    /// Asserts that the store's charges are those that it answered, plus those made after the outage, plus at most the
    /// checks with lost replies.
    fn nothing_was_charged_twice(&self, answers: &[Answer]) {
        let count = |by| answers.iter().filter(|answer| answer.answered_by == by).count() as u64;
        let (shared, admitted) = (count(AnsweredBy::Shared), count(AnsweredBy::Degraded(true)));
        let lost = self.service[0].metric("weir_store_errors_total{store=\"redis\",kind=\"lost\"}") as u64;
        self.service[0].wait_for_metric("weir_store_outage_keys{store=\"redis\"}", 0.0);
        let [afterwards, unknown] = ["charged", "unknown"].map(|outcome| {
            let series = format!("weir_store_outage_units_total{{store=\"redis\",outcome=\"{outcome}\"}}");
            self.service[0].metric(&series) as u64 / LEVELS
        });
        // `local_counts` admits some more, on one level.
        assert!((admitted..=admitted + 3).contains(&(afterwards + unknown)), "{admitted}: {afterwards}, {unknown}");
        let afterwards = admitted - unknown;
        let charged: u64 = (0..RULES.len() * CALLERS).map(|number| self.charged(number)).sum();
        println!(
            "{}: {charged} charged, {shared} answered so, {lost} replies lost, {afterwards} afterwards",
            self.name
        );
        // Each unit whose later charge had no reply may have been charged too.
        assert!((shared + afterwards..=shared + afterwards + lost + unknown).contains(&charged));
    }

    fn charged(&self, number: usize) -> u64 {
        let request = of_rule(number / CALLERS, peek(&["story", &number.to_string(), "trade"]));
        let mut client = self.runtime.block_on(self.service[0].client());
        // A busy machine may stall the store for longer than a check's timeout.
        eventually("the store answers a peek", || {
            let answer = self.runtime.block_on(client.check(request.clone())).map_err(|status| status.to_string())?;
            let answer = answer.into_inner();
            if answer.degraded { Err("degraded".to_owned()) } else { Ok(PLENTY - answer.remaining) }
        })
    }
}
