//! The oracle of a run: checks all guarantees at the end.

use std::collections::HashMap;

use weir_core::{
    domain::{Micros, key::END},
    testing::LimitDefinition,
};

use super::{Loss, MOST_TTL, Record};
use crate::{
    case::{Case, Scene},
    event::Expected,
    oracle::{Mark, judge},
    redis::{Granted, PREFIX, Redis},
    replica::{Answer, Outcome, START},
    world::{HELD, USED},
};

/// Time by which each replica has its connections.
const CONNECTED: Micros = 500_000;

impl Record {
    /// Checks all guarantees at the end of a run.
    pub fn judge(&mut self, redis: &Redis, case: &Case) -> Result<(), String> {
        self.figures.calls = redis.calls;
        self.figures.trace = self.hasher.finalize().to_hex().to_string();
        self.judge_recovery(redis)?;
        self.judge_leaving(redis)?;
        if case.only_moves_slots() {
            self.judge_moves()?;
        }
        match case.scene {
            Scene::Single(_) => self.judge_singles(redis, case.levels.len() as u64),
            Scene::Repeated | Scene::Reserved => self.judge_charges(redis),
            Scene::Slots => self.judge_slots(),
            Scene::Leases | Scene::Shared => self.judge_limits(redis),
        }
    }

    /// Recovery: once all faults have ended, the store decides, and once all limits have recovered, it admits.
    fn judge_recovery(&self, redis: &Redis) -> Result<(), String> {
        for (check, expected) in self.last_checks.iter().filter(|(_, expected)| *expected != Expected::Anything) {
            let answer = self.answers.iter().find(|(_, answer)| answer.check == *check);
            match answer.map(|(_, answer)| &answer.outcome) {
                Some(Outcome::Admitted { at, .. }) if redis.superseded.contains_key(&(START + at)) => {
                    return Err(format!("long after the last fault, a server that was replaced decides check {check}"));
                }
                Some(Outcome::Admitted { .. } | Outcome::Held { .. }) => {}
                Some(Outcome::Refused { .. }) if *expected == Expected::Decision => {}
                other => return Err(format!("long after the last fault, check {check}: {other:?}")),
            }
        }
        Ok(())
    }

    /// No limit admits more than its definition.
    fn judge_limits(&mut self, redis: &Redis) -> Result<(), String> {
        for (_, answer) in &self.answers {
            if let Outcome::Admitted { at, .. } = answer.outcome
                && !(answer.started..=answer.ended).contains(&at)
            {
                return Err(format!("decided before it was asked, or after it was answered: {answer:?}"));
            }
        }
        for index in 0..self.series.len() {
            // Checks the decisions of each superseded server, and of all servers whose data is valid at the end.
            for last in (0..self.losses.len()).map(Some).chain([None]) {
                let loss = last.map(|last| &self.losses[last]);
                if loss.is_some_and(|loss| loss.from == loss.to || loss.kept[index].is_none()) {
                    continue;
                }
                let (series, mut marks) = (&self.series[index], self.marks(index, last, redis));
                judge(series.definition, &mut marks)
                    .map_err(|why| format!("{}: {why}", String::from_utf8_lossy(&series.path)))?;
            }
        }
        Ok(())
    }

    /// Returns the history of a limit; or, with `last`, the history up to that loss, continued by the superseded
    /// server.
    fn marks(&self, index: usize, last: Option<usize>, redis: &Redis) -> Vec<(Micros, Mark)> {
        let series = &self.series[index];
        let losses = || self.losses.iter().take(last.unwrap_or(usize::MAX)).filter(|loss| loss.kept[index].is_some());
        let end = last.map(|last| &self.losses[last]);
        // Until that server takes over again.
        let again = |end: &Loss| self.losses.iter().find(|next| next.at > end.at && next.to == end.from);
        let until = end.and_then(again).map_or(Micros::MAX, |next| next.at);
        // Calls that servers executed after they were superseded do not count.
        let counts = |at: Micros| {
            let by = redis.superseded.get(&(START + at));
            let is_before = |end: &Loss| at <= end.at && by.is_none();
            end.map_or(by.is_none(), |end| is_before(end) || at > end.at && at < until && by == Some(&end.from))
        };
        let mut marks = series.marks.clone();
        for (_, answer) in &self.answers {
            let Outcome::Admitted { at, leased } = answer.outcome else { continue };
            let is_counted = if leased { end.is_none_or(|end| at <= end.at) } else { counts(at) };
            if is_counted && self.series_of(answer.user).any(|own| own == index) {
                marks.push((at, Mark::Admitted { leased }));
            }
        }
        for reset in redis.resets.iter().filter(|reset| counts(reset.at - START)) {
            if series.path == reset.path || reset.subtree && series.path.starts_with(&reset.path) {
                marks.push((reset.at - START, Mark::Reset));
            }
        }
        marks.extend(losses().map(|loss| (loss.at, self.mark_of(loss, index, redis))));
        marks
    }

    fn mark_of(&self, loss: &Loss, index: usize, redis: &Redis) -> Mark {
        let keyspace = redis.keyspace.borrow();
        let name = [PREFIX, &self.series[index].path, &[END]].concat();
        let is_lost = |granted: &&Granted| match loss.since {
            Some(since) if granted.at <= START + loss.at => granted.at > START + since,
            Some(_) => loss.from != loss.to && redis.superseded.get(&granted.at) == Some(&loss.from),
            None => granted.at <= START + loss.at && granted.deadline > START + loss.at,
        };
        let own = keyspace.granted.iter().filter(|granted| granted.server == loss.from && granted.is_of(&name));
        let (mut units, mut until) = (loss.kept[index].unwrap_or_default(), loss.at + MOST_TTL);
        for granted in own.filter(is_lost) {
            (units, until) = (units + granted.units, until.max(granted.at - START + MOST_TTL));
        }
        Mark::Lost { since: loss.since.unwrap_or(Micros::MIN), granted: units, until }
    }

    /// Once replicas can know that a server is superseded, none uses it any more.
    fn judge_leaving(&self, redis: &Redis) -> Result<(), String> {
        for loss in self.losses.iter().filter(|loss| loss.left_by < Micros::MAX) {
            let next = self.losses.iter().map(|next| next.at).find(|at| *at > loss.at).unwrap_or(Micros::MAX);
            let late = redis.superseded.range(START + loss.left_by..).map(|(at, _)| at).next();
            if let Some(late) = late.filter(|late| **late < START.saturating_add(next)) {
                return Err(format!("replaced at {}, a server is still asked at {}", loss.at, late - START));
            }
        }
        Ok(())
    }

    /// While slot migrations are the only faults, the store decides each check.
    fn judge_moves(&self) -> Result<(), String> {
        let is_missed = |outcome: &Outcome| matches!(outcome, Outcome::Degraded { .. } | Outcome::Failed(_));
        let missed = self.answers.iter().find(|(_, answer)| answer.started > CONNECTED && is_missed(&answer.outcome));
        missed.map_or(Ok(()), |(_, answer)| Err(format!("while slots move and nothing else goes wrong: {answer:?}")))
    }

    /// Despite lost answers and retries, a request with an ID is charged once, and a reservation its used or its held
    /// units.
    fn judge_charges(&self, redis: &Redis) -> Result<(), String> {
        let keyspace = redis.keyspace.borrow();
        for (name, check) in &self.names {
            let own: Vec<_> = self.answers.iter().map(|(_, answer)| answer).filter(|it| it.check == *check).collect();
            let outcomes = || own.iter().map(|answer| &answer.outcome);
            let charged = keyspace.used(name);
            let may_be: &[u64] = if outcomes().any(|outcome| matches!(outcome, Outcome::Settled { .. })) {
                &[USED]
            } else if outcomes().any(|outcome| matches!(outcome, Outcome::Admitted { .. })) {
                &[1]
            } else if outcomes().any(|outcome| matches!(outcome, Outcome::Held { .. })) {
                &[0, USED, HELD as u64]
            } else {
                &[0, 1, USED, HELD as u64]
            };
            if !may_be.contains(&charged) {
                return Err(format!("check {check}: charged {charged}, not one of {may_be:?}: {own:?}"));
            }
        }
        Ok(())
    }

    /// The holders of slots, according to their answers, never exceed the limit.
    fn judge_slots(&self) -> Result<(), String> {
        for (index, series) in self.series.iter().enumerate() {
            let LimitDefinition::Slots { max } = series.definition else { continue };
            let own = self.held.iter().filter(|(_, user, ..)| self.series_of(*user).any(|other| other == index));
            let mut changes: Vec<(Micros, i64)> = own
                .filter(|(.., from, until)| from < until)
                .flat_map(|(.., from, until)| [(*from, 1), (*until, -1)])
                .collect();
            // At equal times ends come before starts.
            changes.sort_unstable();
            let mut held = 0;
            for (at, change) in changes {
                held += change;
                if held > max as i64 {
                    return Err(format!(
                        "{}: {held} slots of {max} are held at {at}",
                        String::from_utf8_lossy(&series.path)
                    ));
                }
            }
        }
        Ok(())
    }

    /// No command that may have been executed is sent again, no check is charged twice, and every lost unit is counted.
    fn judge_singles(&self, redis: &Redis, levels: u64) -> Result<(), String> {
        let keyspace = redis.keyspace.borrow();
        let mut refused: HashMap<&[u8], usize> = HashMap::new();
        redis.refused.iter().for_each(|key| *refused.entry(key).or_default() += 1);
        let answers: HashMap<_, _> =
            self.answers.iter().map(|(life, answer)| (answer.check, (*life, answer))).collect();
        // By replica process: the units that it must count as unknown, and the last check with such units.
        let mut unknown: HashMap<u64, (u64, u64)> = HashMap::new();
        for (name, check) in &self.names {
            let sends = self.sends.get(check).map_or(&[][..], Vec::as_slice);
            let refused = refused.get(&name[..]).copied().unwrap_or_default();
            let writes = keyspace.writes.get(name).copied().unwrap_or_default();
            let answer = answers.get(check);
            let context = || format!("check {check}, sent at {sends:?}, charged {writes} times: {answer:?}");
            if writes > 1 {
                return Err(format!("charged twice: {}", context()));
            }
            if sends.len() > 1 + refused {
                return Err(format!("sent again: {}", context()));
            }
            let Some((life, answer)) = answer.copied() else { continue };
            match answer.outcome {
                Outcome::Admitted { .. } if writes != 1 => {
                    return Err(format!("admitted by the store and not charged: {}", context()));
                }
                Outcome::Degraded { admitted: true }
                    if self.is_of_unknown_fate(life, answer, (sends, writes), refused) =>
                {
                    let units = unknown.entry(life).or_default();
                    *units = (units.0 + levels, *check);
                }
                _ => {}
            }
        }
        for (life, (units, check)) in unknown {
            match self.unknown.get(&life) {
                Some(counted) if units > *counted => {
                    let last = answers.get(&check);
                    return Err(format!(
                        "admitted without the store, neither charged nor counted: {units} unknown, {counted} counted, \
                         the last {last:?}"
                    ));
                }
                // The replica was killed, or has not ended yet.
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a replica that admitted a check without the store cannot know whether the store has charged it. Either
    /// the check was sent before the answer and not refused; or it was given to a connection that ended before the
    /// write. (Units that are certainly not charged are charged later, perhaps at the time of the answer: those are
    /// charged.)
    fn is_of_unknown_fate(
        &self,
        life: u64,
        answer: &Answer,
        (sends, writes): (&[Micros], u64),
        refused: usize,
    ) -> bool {
        let is_before = |at: &&Micros| **at < answer.ended || **at == answer.ended && writes == 0;
        let before = sends.iter().filter(is_before).count();
        before > refused || sends.is_empty() && self.survivors.contains(&life)
    }
}
