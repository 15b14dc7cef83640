//! The observer: records all events and checks invariants.

mod judge;

use std::collections::{BTreeMap, HashMap, HashSet};

use weir_core::{
    domain::{Key, Micros, key::END},
    testing::{LimitDefinition, Oracle},
};

use super::{
    case::Case,
    event::{Event, Expected},
    oracle::Mark,
    redis::{Held, PREFIX, Redis},
    replica::{Answer, Outcome, START},
};

/// Upper bound of the duration of a hold.
pub const MOST_TTL: Micros = 300_000;

/// One limit of one key.
struct Series {
    path: Vec<u8>,
    definition: LimitDefinition,
    marks: Vec<(Micros, Mark)>,
    exact: Oracle,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub events: u64,
    pub checks: u64,
    pub admitted: u64,
    /// Checks admitted from leases.
    pub leased: u64,
    /// Units granted to the leases of clients.
    pub granted: u64,
    /// Reservations made or extended, and reservations settled.
    pub held: u64,
    pub settled: u64,
    pub degraded: u64,
    pub failed: u64,
    /// Checks that one exact limiter would have admitted.
    pub exact: u64,
    /// Calls of the script.
    pub calls: u64,
    pub clean_stops: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// Hash of all events, in order.
    pub trace: String,
}

impl Figures {
    pub fn add(&mut self, other: &Self) {
        for (sum, own) in [
            (&mut self.events, other.events),
            (&mut self.checks, other.checks),
            (&mut self.admitted, other.admitted),
            (&mut self.leased, other.leased),
            (&mut self.granted, other.granted),
            (&mut self.held, other.held),
            (&mut self.settled, other.settled),
            (&mut self.degraded, other.degraded),
            (&mut self.failed, other.failed),
            (&mut self.exact, other.exact),
            (&mut self.calls, other.calls),
            (&mut self.clean_stops, other.clean_stops),
        ] {
            *sum += own;
        }
        other.faults.iter().for_each(|(name, count)| *self.faults.entry(*name).or_default() += count);
    }
}

/// A data loss: by a restarted server, or by a failover to a server without the latest writes.
struct Loss {
    at: Micros,
    from: usize,
    /// Equal to `from` after a restart.
    to: usize,
    /// Writes after this time are lost; `None`: all data.
    since: Option<Micros>,
    /// By series: the units held at that time under lost terms, without those granted since; `None`: `from` has no
    /// states of the series.
    kept: Vec<Option<u64>>,
    /// The time from which `from` must not be used.
    left_by: Micros,
}

#[derive(Default)]
pub struct Record {
    hasher: blake3::Hasher,
    /// Whether all events are printed.
    is_told: bool,
    pub figures: Figures,
    /// The series shared by all users come first.
    series: Vec<Series>,
    shared: usize,
    answers: Vec<(u64, Answer)>,
    /// In scenes where each check has its own key: the checks by encoded key.
    names: HashMap<Vec<u8>, u64>,
    /// The times at which each check, or its later charge, was sent to the store.
    sends: HashMap<u64, Vec<Micros>>,
    /// The replica processes still running after the last fault. Those that were draining may lose units that the store
    /// does not accept.
    survivors: HashSet<u64>,
    /// By replica process: the units that it counts as lost because the store may have charged them.
    unknown: HashMap<u64, u64>,
    last_checks: Vec<(u64, Expected)>,
    /// Held slots: check, user, start and end.
    held: Vec<(u64, usize, Micros, Micros)>,
    anchor: u8,
    losses: Vec<Loss>,
    /// Until this time a store that has lost data may not know some holds.
    excused_until: Micros,
    violation: Option<String>,
}

impl Record {
    pub fn new(case: &Case) -> Self {
        let path = |segments: &[&str]| {
            let key = Key::new("", segments).expect("a key");
            key.prefix(segments.len()).to_vec()
        };
        let of = |path, definition: LimitDefinition| Series {
            path,
            definition,
            marks: Vec::new(),
            exact: Oracle::new(definition),
        };
        let mut series = Vec::new();
        if let [(_, shared), _] = &case.levels[..] {
            series.push(of(path(&["t"]), *shared));
        }
        let shared = series.len();
        let own = case.levels.last().expect("a level").1;
        series.extend((0..case.users).map(|user| of(path(&["t", &format!("u{user}")]), own)));
        let is_told = std::env::var("WEIR_TRACE").is_ok();
        Self { is_told, series, shared, anchor: case.anchor, ..Self::default() }
    }

    fn note(&mut self, at: Micros, what: &[u8]) {
        self.hasher.update(&at.to_be_bytes()).update(&what.len().to_be_bytes()).update(what);
        if self.is_told {
            println!("{at} {}", what.escape_ascii());
        }
    }

    pub fn event(&mut self, at: Micros, event: Event) {
        self.figures.events += 1;
        if event != Event::Tick {
            self.note(at, format!("{event:?}").as_bytes());
        }
    }

    pub fn fault(&mut self, name: &'static str) {
        *self.figures.faults.entry(name).or_default() += 1;
    }

    /// Returns the units that a replica process has spent from leases since this time.
    pub fn leased_since(&self, life: u64, since: Micros) -> u64 {
        let own =
            self.answers.iter().rev().take_while(|(_, answer)| answer.ended >= since).filter(|(own, _)| *own == life);
        own.filter(|(_, answer)| matches!(answer.outcome, Outcome::Admitted { leased: true, .. })).count() as u64
    }

    /// Records a change of every user's own limit.
    pub fn changed(&mut self, at: Micros, to: LimitDefinition, within: Micros) {
        for series in &mut self.series[self.shared..] {
            series.marks.push((at, Mark::Changed { to, by: at + within }));
            series.exact.change(to, at);
        }
    }

    pub fn clean_stop(&mut self) {
        self.figures.clean_stops += 1;
    }

    pub fn served(&mut self, at: Micros, bytes: &[u8], reply: &[u8]) {
        self.note(at, bytes);
        self.note(at, reply);
    }

    /// Records that a superseded server has executed a call.
    pub fn served_late(&mut self, at: Micros, redis: &Redis) {
        self.excused_until = at + MOST_TTL;
        redis.keyspace.borrow_mut().accounts.forget();
    }

    /// Records a check.
    pub fn asked(&mut self, check: u64, user: usize, key: &Key, at: Micros) {
        self.figures.checks += 1;
        self.names.insert([PREFIX, key.prefix(key.depth())].concat(), check);
        if self.series_of(user).all(|index| self.series[index].exact.admits(at)) {
            self.figures.exact += 1;
            self.series_of(user).for_each(|index| self.series[index].exact.count(at));
        }
    }

    /// Records the expected result of this check.
    pub fn expect(&mut self, check: u64, expected: Expected) {
        self.last_checks.push((check, expected));
    }

    /// Returns the series of the limits on a user's key.
    fn series_of(&self, user: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.shared).chain([self.shared + user])
    }

    /// Records that a caller holds units or a slot until this time.
    pub fn held(&mut self, answer: &Answer, until: Micros) {
        // The answer may be to an extension.
        self.released(answer.check, answer.ended);
        self.held.push((answer.check, answer.user, answer.ended, until));
    }

    /// Records that a caller gives up its hold.
    pub fn released(&mut self, check: u64, at: Micros) {
        for (_, _, _, until) in self.held.iter_mut().filter(|(own, ..)| *own == check) {
            *until = at.min(*until);
        }
    }

    /// Records a command sent by a replica.
    pub fn sent(&mut self, words: &[Vec<u8>], at: Micros) {
        if words[0] != b"EVALSHA" {
            return;
        }
        let count: usize = String::from_utf8_lossy(&words[2]).parse().expect("a number");
        for key in &words[3..3 + count] {
            if let Some(check) = self.names.get(key) {
                self.sends.entry(*check).or_default().push(at);
            }
        }
    }

    /// Checks that a unit spent from a lease is held in the store at that time, for this owner and for each limit on
    /// the key, and that no more units are spent than were granted.
    pub fn covered(&mut self, owner: u64, answer: &Answer, redis: &Redis) {
        let Outcome::Admitted { at, leased: true } = answer.outcome else { return };
        let mut keyspace = redis.keyspace.borrow_mut();
        for index in self.series_of(answer.user).filter(|_| at > self.excused_until) {
            let path = [PREFIX, &self.series[index].path].concat();
            let held = keyspace.held_of(&[&path[..], &[END]].concat());
            let own = || held.iter().filter(|held| held.id.starts_with(&owner.to_be_bytes()));
            let is_held = own().any(|held| held.units > 0 && held.deadline > START + at);
            let outstanding = own().map(|held| held.units).sum();
            let spent = if is_held {
                keyspace.accounts.spend(&path, owner, outstanding)
            } else {
                Err("spent what is not held".to_owned())
            };
            if let Err(why) = spent {
                let path = String::from_utf8_lossy(&path);
                self.violation.get_or_insert(format!("{path}: {why}: {answer:?}, of {held:?}"));
            }
        }
    }

    pub fn violation(&mut self) -> Result<(), String> {
        self.violation.take().map_or(Ok(()), Err)
    }

    pub fn answer(&mut self, life: u64, answer: Answer) {
        self.note(answer.ended, format!("{answer:?}").as_bytes());
        let figures = &mut self.figures;
        match answer.outcome {
            Outcome::Admitted { leased, .. } => {
                figures.admitted += 1;
                figures.leased += u64::from(leased);
            }
            Outcome::Held { .. } => figures.held += 1,
            Outcome::Settled { .. } => figures.settled += 1,
            Outcome::Refused { .. } | Outcome::Renewed | Outcome::Unknown => {}
            Outcome::Degraded { .. } => figures.degraded += 1,
            Outcome::Failed(_) => figures.failed += 1,
        }
        self.answers.push((life, answer));
    }

    /// Records the units that a replica process counts as lost because the store may have charged them.
    pub fn is_unknown(&mut self, life: u64, units: u64) {
        self.unknown.insert(life, units);
    }

    /// Records the end of all faults.
    pub fn healed(&mut self, lives: impl Iterator<Item = u64>) {
        self.survivors = lives.collect();
    }

    /// Records a data loss: of the writes after `since`, or of all data, by a restart or a failover. `before` are the
    /// holds before it.
    pub fn lost(
        &mut self,
        at: Micros,
        (from, to): (usize, usize),
        since: Option<Micros>,
        before: &[(Vec<u8>, Held)],
        redis: &Redis,
    ) {
        self.served_late(at, redis);
        let after = redis.keyspace.borrow().held_at(to);
        let is_known = |name: &[u8], held: &Held| {
            from == to
                && after.iter().any(|(other, own)| other == name && own.id == held.id && own.sequence == held.sequence)
        };
        let kept = |series: &Series| {
            let name = [PREFIX, &series.path, &[END]].concat();
            let own = before.iter().filter(|(field, held)| field.starts_with(&name) && held.deadline > START + at);
            own.filter(|(field, held)| !is_known(field, held))
                .map(|(_, held)| held.units.saturating_sub(held.granted))
                .sum()
        };
        let is_concerned = |series: &Series| {
            let anchor = if self.anchor == 1 { &self.series[0].path } else { &series.path };
            let owner = redis.slots.as_ref().map(|slots| slots.owner_of(&[PREFIX, anchor].concat()));
            owner.is_none_or(|owner| owner == from)
        };
        let kept = self.series.iter().map(|series| is_concerned(series).then(|| kept(series))).collect();
        self.losses.push(Loss { at, from, to, since, kept, left_by: Micros::MAX });
    }

    /// Sets the time from which the server of the latest loss must not be used.
    pub fn is_left_by(&mut self, at: Micros) {
        if let Some(loss) = self.losses.last_mut() {
            loss.left_by = at;
        }
    }
}
