//! What an observer sees, and what it makes of it.

use std::collections::{BTreeMap, HashMap, HashSet};

use weir_core::domain::{Key, Micros};

use super::{
    case::{Case, Scene},
    event::Event,
    oracle::{Definition, Limiter, Mark, judge},
    redis::{PREFIX, Redis},
    replica::{Answer, Outcome, START},
};

/// No hold lasts for longer.
const MOST_TTL: Micros = 300_000;

/// One limit of one key.
struct Series {
    path: Vec<u8>,
    definition: Definition,
    marks: Vec<(Micros, Mark)>,
    exact: Limiter,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub events: u64,
    pub checks: u64,
    pub admitted: u64,
    /// Of them, from leases.
    pub leased: u64,
    pub degraded: u64,
    pub failed: u64,
    /// What one limiter would have admitted.
    pub exact: u64,
    /// Calls of the script.
    pub calls: u64,
    pub clean_stops: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// Of all that happened, in order.
    pub trace: String,
}

impl Figures {
    pub fn add(&mut self, other: &Self) {
        for (sum, own) in [
            (&mut self.events, other.events),
            (&mut self.checks, other.checks),
            (&mut self.admitted, other.admitted),
            (&mut self.leased, other.leased),
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

pub struct Record {
    hasher: blake3::Hasher,
    /// Whether all that happens is printed.
    is_told: bool,
    pub figures: Figures,
    /// Those that users share come first.
    series: Vec<Series>,
    shared: usize,
    answers: Vec<(u64, Answer)>,
    /// Of scenes in which each check has its own key: the checks by the names of their keys.
    names: HashMap<Vec<u8>, u64>,
    sends: HashMap<u64, u64>,
    /// The lives that went on when all was well again. Those that were about to end may lose what the store does not take.
    survivors: HashSet<u64>,
    last_checks: Vec<u64>,
    /// Until then holds may be unknown to a store that has lost data.
    excused_until: Micros,
    violation: Option<String>,
}

impl Record {
    pub fn new(case: &Case) -> Self {
        let path = |segments: &[&str]| {
            let key = Key::new("", segments).expect("a key");
            key.prefix(segments.len()).to_vec()
        };
        let of = |path, definition: Definition| Series {
            path,
            definition,
            marks: Vec::new(),
            exact: Limiter::new(definition),
        };
        let mut series = Vec::new();
        if let [(_, shared), _] = &case.levels[..] {
            series.push(of(path(&["t"]), *shared));
        }
        let shared = series.len();
        let own = case.levels.last().expect("a level").1;
        series.extend((0..case.users).map(|user| of(path(&["t", &format!("u{user}")]), own)));
        let (figures, answers, names, sends, survivors, last_checks, excused_until, violation) = Default::default();
        let (hasher, is_told) = (blake3::Hasher::new(), std::env::var("WEIR_TRACE").is_ok());
        Self {
            hasher,
            is_told,
            figures,
            series,
            shared,
            answers,
            names,
            sends,
            survivors,
            last_checks,
            excused_until,
            violation,
        }
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

    /// Units that a life has spent of leases since then.
    pub fn leased_since(&self, life: u64, since: Micros) -> u64 {
        let own =
            self.answers.iter().rev().take_while(|(_, answer)| answer.ended >= since).filter(|(own, _)| *own == life);
        own.filter(|(_, answer)| matches!(answer.outcome, Outcome::Admitted { leased: true, .. })).count() as u64
    }

    /// Every user's own limit becomes another.
    pub fn changed(&mut self, at: Micros, to: Definition, within: Micros) {
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

    /// A caller asks.
    pub fn asked(&mut self, check: u64, user: usize, key: &Key, at: Micros) {
        self.figures.checks += 1;
        self.names.insert([PREFIX, key.prefix(key.depth())].concat(), check);
        if self.series_of(user).all(|index| self.series[index].exact.admits(at)) {
            self.figures.exact += 1;
            self.series_of(user).for_each(|index| self.series[index].exact.count(at));
        }
    }

    /// The store has to decide this check.
    pub fn must_succeed(&mut self, check: u64) {
        self.last_checks.push(check);
    }

    /// The limits on a user's key.
    fn series_of(&self, user: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.shared).chain([self.shared + user])
    }

    /// A replica has sent a command.
    pub fn sent(&mut self, words: &[Vec<u8>]) {
        if words[0] != b"EVALSHA" {
            return;
        }
        let count: usize = String::from_utf8_lossy(&words[2]).parse().expect("a number");
        for key in &words[3..3 + count] {
            if let Some(check) = self.names.get(key) {
                *self.sends.entry(*check).or_default() += 1;
            }
        }
    }

    /// What a lease pays for is held: by the store's clock, for this replica, of each limit on the key.
    pub fn covered(&mut self, owners: &[u64], answer: &Answer, redis: &Redis) {
        let Outcome::Admitted { at, leased: true } = answer.outcome else { return };
        let keyspace = redis.keyspace.borrow();
        for index in self.series_of(answer.user).filter(|_| at > self.excused_until) {
            let series = &self.series[index];
            let held = keyspace.held_of(&[PREFIX, &series.path, &[0xff]].concat());
            let is_own = |id: &[u8]| owners.iter().any(|owner| id.starts_with(&owner.to_be_bytes()));
            if !held.iter().any(|held| held.units > 0 && held.deadline > START + at && is_own(&held.id)) {
                let path = String::from_utf8_lossy(&series.path);
                self.violation = Some(format!("{path}: spent what is not held: {answer:?}, of {held:?}"));
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
            Outcome::Refused { .. } => {}
            Outcome::Degraded { .. } => figures.degraded += 1,
            Outcome::Failed(_) => figures.failed += 1,
        }
        self.answers.push((life, answer));
    }

    /// Nothing goes wrong from now on.
    pub fn healed(&mut self, lives: impl Iterator<Item = u64>) {
        self.survivors = lives.collect();
    }

    /// The store loses what it has written since then, or all.
    pub fn lost(&mut self, at: Micros, since: Option<Micros>, redis: &Redis) {
        let keyspace = redis.keyspace.borrow();
        self.excused_until = at + MOST_TTL;
        for series in &mut self.series {
            let name = [PREFIX, &series.path, &[0xff]].concat();
            let is_own = |(key, field): &(Vec<u8>, Vec<u8>)| [&key[..], field].concat().starts_with(&name);
            let is_lost = |granted: Micros, deadline: Micros| match since {
                Some(since) => granted > START + since,
                None => deadline > START + at,
            };
            let lost =
                keyspace.granted.iter().filter(|grant| is_own(&grant.field) && is_lost(grant.at, grant.deadline));
            let (granted, until) =
                lost.fold((0, at), |(units, until), grant| (units + grant.units, until.max(grant.deadline - START)));
            series.marks.push((at, Mark::Lost { since: since.unwrap_or(Micros::MIN), granted, until }));
        }
    }

    /// Judges all at the end.
    pub fn judge(&mut self, redis: &Redis, case: &Case) -> Result<(), String> {
        self.figures.calls = redis.calls;
        self.figures.trace = self.hasher.finalize().to_hex().to_string();
        self.judge_recovery()?;
        match case.scene {
            Scene::Single(_) => self.judge_singles(redis),
            _ => self.judge_limits(redis),
        }
    }

    /// Once nothing goes wrong any more, the store decides.
    fn judge_recovery(&self) -> Result<(), String> {
        for check in &self.last_checks {
            let answer = self.answers.iter().find(|(_, answer)| answer.check == *check);
            match answer.map(|(_, answer)| &answer.outcome) {
                Some(Outcome::Admitted { .. } | Outcome::Refused { .. }) => {}
                other => return Err(format!("long after the last fault, check {check}: {other:?}")),
            }
        }
        Ok(())
    }

    /// No limit admits more than its definition.
    fn judge_limits(&mut self, redis: &Redis) -> Result<(), String> {
        for (_, answer) in &self.answers {
            let Outcome::Admitted { at, leased } = answer.outcome else { continue };
            if !(answer.began..=answer.ended).contains(&at) {
                return Err(format!("decided before it was asked, or after it was answered: {answer:?}"));
            }
            for index in self.series_of(answer.user) {
                self.series[index].marks.push((at, Mark::Admitted { leased }));
            }
        }
        for reset in &redis.resets {
            for series in &mut self.series {
                if series.path == reset.path || reset.subtree && series.path.starts_with(&reset.path) {
                    series.marks.push((reset.at - START, Mark::Reset));
                }
            }
        }
        for series in &mut self.series {
            judge(series.definition, &mut series.marks)
                .map_err(|why| format!("{}: {why}", String::from_utf8_lossy(&series.path)))?;
        }
        Ok(())
    }

    /// Nothing is sent again that may have been carried out, nothing is charged twice, and nothing is lost.
    fn judge_singles(&self, redis: &Redis) -> Result<(), String> {
        let keyspace = redis.keyspace.borrow();
        let mut refused: HashMap<&[u8], u64> = HashMap::new();
        redis.refused.iter().for_each(|key| *refused.entry(key).or_default() += 1);
        let answers: HashMap<_, _> =
            self.answers.iter().map(|(life, answer)| (answer.check, (*life, answer))).collect();
        for (name, check) in &self.names {
            let sends = self.sends.get(check).copied().unwrap_or_default();
            let writes = keyspace.writes.get(name).copied().unwrap_or_default();
            let answer = answers.get(check);
            let story = || format!("check {check}, sent {sends} times, charged {writes} times: {answer:?}");
            if writes > 1 {
                return Err(format!("charged twice: {}", story()));
            }
            if sends > 1 + refused.get(&name[..]).copied().unwrap_or_default() {
                return Err(format!("sent again: {}", story()));
            }
            match answer.map(|(life, answer)| (life, &answer.outcome)) {
                Some((_, Outcome::Admitted { .. })) if writes != 1 => {
                    return Err(format!("admitted by the store and not charged: {}", story()));
                }
                Some((life, Outcome::Degraded { admitted: true })) if self.survivors.contains(life) && sends == 0 => {
                    return Err(format!("admitted without the store and never charged: {}", story()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
