//! Decoding of the script's replies.

use deadpool_redis::redis::Value;
use rmp::decode::{read_array_len, read_int, read_str_len};

use super::command::error_text;
use crate::{Failure, ResetDone};
use weir_core::{
    domain::{Decision, Micros},
    hold::{Grant, Idempotency, Outcome, RenewalTotals},
    plan::Decisions,
};

/// Largest time and duration accepted in a reply, in microseconds: hundreds of times the largest value of any limit and
/// state, and small enough that sums of several cannot overflow.
pub const MAX_TIME: Micros = 1 << 60;

/// The fields of an answer except the decisions of its levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerFields {
    /// No further fields.
    #[default]
    Decisions,
    /// For each level, the change of its state, so that it can be undone.
    Changes,
    /// For each level, whether its charge could not be undone.
    LeftCharged,
    /// For each level, the units of an outage charge that fit.
    Charged,
    /// After all levels, the renewal's grant.
    Grant,
    /// After all levels, the outcome of the reservation.
    Reservation,
}

/// The answer to one part of a plan. Boxed, so that the futures of pending checks stay small.
pub type Answer = Result<Box<Decided>, Failure>;

/// A server's decision on one part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The server's clock at the decision.
    pub at: Micros,
    /// The decision of each level of the part.
    pub decisions: Decisions,
    /// The change of each level's state that a refusal elsewhere undoes, if requested.
    pub changes: Vec<StateChange>,
    /// The whole change of each level's state, if requested by a request with an id.
    pub whole_changes: Vec<StateChange>,
    /// Number of levels whose charge could not be undone, for an undo.
    pub left_charged: u64,
    /// Units charged, for an outage charge.
    pub charged: u64,
    /// The grant, if the part had a renewal.
    pub grant: Option<Grant>,
    /// The outcome, if the part concerned a reservation.
    pub reservation: Option<Outcome>,
    /// Whether this repeats the answer to an earlier request with the same id.
    pub idempotency: Idempotency,
}

/// The stored values of a state before and after a plan, for an undo; both empty if there is nothing to undo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// The value to restore; empty: there was none.
    pub before: Vec<u8>,
    /// The value written by the plan.
    pub after: Vec<u8>,
}

/// The failure for a reply that cannot be decoded. The call was executed nevertheless.
fn unreadable() -> Failure {
    Failure::Server("the script's answer cannot be read".into())
}

/// Decodes the answers of one call in sequence.
pub struct Answers<'a> {
    rest: &'a [u8],
    at: Micros,
}

impl<'a> Answers<'a> {
    /// Starts to decode a reply.
    ///
    /// # Errors
    /// The server's error, or [`Failure::Server`] for a reply that is not from the script.
    pub fn new(reply: &'a Value) -> Result<Self, Failure> {
        let mut answers = Self::fields(reply)?;
        answers.at = answers.time()?;
        Ok(answers)
    }

    /// Starts to decode the fields of a reply.
    fn fields(reply: &'a Value) -> Result<Self, Failure> {
        let mut rest = payload(reply)?;
        read_array_len(&mut rest).map_err(|_| unreadable())?;
        Ok(Self { rest, at: 0 })
    }

    /// Returns the server's clock at the call.
    pub fn at(&self) -> Micros {
        self.at
    }

    /// Decodes the answer to the next part, which has `levels` levels.
    ///
    /// # Errors
    /// Why the part was not decided. After an answer that cannot be decoded, all others fail too.
    pub fn next(&mut self, levels: u32, fields: AnswerFields, has_id: bool) -> Answer {
        match self.int()? {
            0 => self.decided(levels, fields, has_id).inspect_err(|_| self.rest = &[]),
            1 => Err(Failure::of_script(&self.text()?)),
            _ => Err(Failure::of_script_that_wrote(&self.text()?)),
        }
    }

    fn decided(&mut self, levels: u32, fields: AnswerFields, has_id: bool) -> Answer {
        let mut decided = Box::new(Decided { at: self.at, ..Decided::default() });
        for _ in 0..levels {
            decided.decisions.push(self.decision()?);
            match fields {
                AnswerFields::Decisions | AnswerFields::Grant | AnswerFields::Reservation => {}
                AnswerFields::Changes => {
                    decided.changes.push(self.change_of_state()?);
                    if has_id {
                        decided.whole_changes.push(self.change_of_state()?);
                    }
                }
                AnswerFields::LeftCharged => decided.left_charged += u64::from(self.int()? == 1),
                AnswerFields::Charged => decided.charged += u64::try_from(self.int()?).map_err(|_| unreadable())?,
            }
        }
        match fields {
            AnswerFields::Grant => decided.grant = Some(self.grant()?),
            AnswerFields::Reservation => decided.reservation = Some(self.reservation()?),
            _ => {}
        }
        if has_id {
            decided.idempotency = match self.int()? {
                0 => Idempotency::First,
                1 => Idempotency::Repeated,
                2 => Idempotency::Conflict,
                _ => return Err(unreadable()),
            };
        }
        Ok(decided)
    }

    fn grant(&mut self) -> Result<Grant, Failure> {
        let (units, free) = (self.count()?, self.count()?);
        let (is_kept, is_recalled) = (self.int()? == 1, self.int()? == 1);
        // The sequence number is not in the reply; the caller fills it in.
        let refused_for = self.time()?;
        let (granted, spent, returned, burnt) = (self.count()?, self.count()?, self.count()?, self.count()?);
        let settled = RenewalTotals { granted, spent, returned, burnt };
        Ok(Grant { sequence: 0, units, free, is_kept, is_recalled, refused_for, settled })
    }

    fn reservation(&mut self) -> Result<Outcome, Failure> {
        let (answer, first, second) = (self.int()?, self.count()?, self.count()?);
        match answer {
            1 => Ok(Outcome::Reserved { expires_after: time(first as i64)? }),
            2 => Ok(Outcome::Refused),
            3 => Ok(Outcome::Settled { actual: first, overage: second, before: false }),
            4 => Ok(Outcome::Extended { expires_after: time(first as i64)? }),
            5 => Ok(Outcome::Unknown),
            6 => Ok(Outcome::Settled { actual: first, overage: second, before: true }),
            _ => Err(unreadable()),
        }
    }

    fn change_of_state(&mut self) -> Result<StateChange, Failure> {
        Ok(StateChange { before: self.bytes()?.to_vec(), after: self.bytes()?.to_vec() })
    }

    fn count(&mut self) -> Result<u64, Failure> {
        u64::try_from(self.int()?).map_err(|_| unreadable())
    }

    /// Decodes one page of a reset: the next cursor, if any, and the outcome.
    ///
    /// # Errors
    /// The server's error, or [`Failure::Server`] for a reply that cannot be decoded.
    pub fn reset(reply: &'a Value) -> Result<(Option<Vec<u8>>, ResetDone), Failure> {
        let mut answers = Self::fields(reply)?;
        let cursor = answers.bytes()?.to_vec();
        let (existed, removed) = (answers.int()? == 1, answers.int()? == 1);
        Ok(((cursor != b"0").then_some(cursor), ResetDone { existed, removed, scanned: false }))
    }

    /// Decodes a document's change: its log position, the preceding change's position, and the document's content
    /// before it.
    ///
    /// # Errors
    /// The server's error, or [`Failure::Server`] for a reply that cannot be decoded.
    pub fn change(reply: &'a Value) -> Result<[String; 3], Failure> {
        let mut answers = Self::fields(reply)?;
        Ok([answers.text()?, answers.text()?, answers.text()?])
    }

    fn decision(&mut self) -> Result<Decision, Failure> {
        let allowed = self.int()? == 1;
        let (limit, remaining) = (self.int()?, self.int()?);
        let retry_after = self.optional_time()?;
        let (reset_after, wait) = (self.time()?, self.time()?);
        let never = self.int()? == 1;
        let count = |number: i64| u64::try_from(number).map_err(|_| unreadable());
        let (limit, remaining) = (count(limit)?, count(remaining)?);
        let next_after = if remaining == 0 { self.optional_time()? } else { None };
        Ok(Decision { allowed, limit, remaining, retry_after, next_after, reset_after, wait, never })
    }

    fn int(&mut self) -> Result<i64, Failure> {
        read_int(&mut self.rest).map_err(|_| unreadable())
    }

    fn time(&mut self) -> Result<Micros, Failure> {
        time(self.int()?)
    }

    /// Decodes a time; negative: none.
    fn optional_time(&mut self) -> Result<Option<Micros>, Failure> {
        let number = self.int()?;
        if number < 0 { Ok(None) } else { time(number).map(Some) }
    }

    fn bytes(&mut self) -> Result<&'a [u8], Failure> {
        let length = read_str_len(&mut self.rest).map_err(|_| unreadable())?;
        let (bytes, rest) = self.rest.split_at_checked(length as usize).ok_or_else(unreadable)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<String, Failure> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

fn time(number: i64) -> Result<Micros, Failure> {
    if (0..=MAX_TIME).contains(&number) { Ok(number) } else { Err(unreadable()) }
}

fn payload(reply: &Value) -> Result<&[u8], Failure> {
    match reply {
        Value::BulkString(bytes) => Ok(bytes),
        Value::ServerError(error) => Err(Failure::of_server(&error_text(error))),
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the answer for a part of one level with nothing left, decided at `at`, with these durations.
    fn read(at: i64, [retry, next, reset, wait]: [i64; 4]) -> Answer {
        let mut bytes = vec![0x91];
        for number in [at, 0, 1, 9, 0, retry, reset, wait, 0, next] {
            bytes.push(0xd3);
            bytes.extend(number.to_be_bytes());
        }
        let reply = Value::BulkString(bytes);
        Answers::new(&reply)?.next(1, AnswerFields::Decisions, false)
    }

    #[test]
    fn replies_with_impossible_times_are_rejected() {
        let decided = read(5, [-1, 2, 7, 3]).unwrap();
        let first = &decided.decisions[0];
        assert_eq!((decided.at, first.retry_after, first.next_after), (5, None, Some(2)));
        assert_eq!((first.reset_after, first.wait), (7, 3));
        assert!(read(MAX_TIME, [MAX_TIME, MAX_TIME, MAX_TIME, 0]).is_ok());
        for beyond in [MAX_TIME + 1, i64::MAX, i64::MIN] {
            assert!(read(beyond, [0; 4]).is_err(), "{beyond}");
            for place in 0..4 {
                let mut times = [0; 4];
                times[place] = beyond;
                // A negative `retry_after` or `next_after` is valid and means none.
                let is_none = place < 2 && beyond == i64::MIN;
                assert_eq!(read(5, times).is_err(), !is_none, "{beyond} in place {place}");
            }
        }
    }
}
