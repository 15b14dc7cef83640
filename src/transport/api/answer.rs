//! Encodes answers as `CheckResponse`, without building the message first.

use bytes::{BufMut, BytesMut};
use prost::{
    Message,
    encoding::{self, encoded_len_varint},
};
use weir_core::domain::{Decision, Micros, Summary, time::SECOND};

use crate::{
    limiter::{Answer, LevelAnswer},
    proto,
    transport::{fields::put_bytes, status::Rejected},
};

/// The number of the first of the seven fields of a decision, in `CheckResponse` and in `LevelResult`.
const SUMMARY: u8 = 1;
const DECISION: u8 = 4;

/// The field numbers of `CheckResponse` after them.
const DEGRADED: u8 = 8;
const BINDING: u8 = 9;
const LEVELS: u8 = 10;
const LEASED: u8 = 12;
const NEXT_AFTER: u8 = 13;
const OVERRIDE: u8 = 14;
const REPEATED: u8 = 15;
const BAN_REASON: u8 = 16;

/// The field numbers of `LevelResult` before them.
const NAME: u8 = 1;
const DEPTH: u8 = 2;
const SHADOW: u8 = 3;

/// The field number of `LevelResult` after them.
const LEVEL_NEXT_AFTER: u8 = 11;

/// Wire types.
const VARINT: u8 = 0;
const LENGTH: u8 = 2;

/// Appends the answer to a check, without its levels if `summary_only`.
pub fn write(answer: &Answer<'_>, summary_only: bool, out: &mut BytesMut) {
    let Summary { decision, binding } = &answer.summary;
    let mut fields = Short::default();
    fields.decision(SUMMARY, decision);
    fields.flag(DEGRADED, answer.degraded);
    if let Some(binding) = binding {
        fields.number_that_may_be_0(BINDING, *binding as u64);
    }
    out.put_slice(fields.bytes());
    if !summary_only {
        answer.levels.iter().for_each(|level| write_level(level, out));
    }
    if answer.leased || answer.repeated || answer.overridden.is_some() || decision.next_after.is_some() {
        let mut fields = Short::default();
        fields.flag(LEASED, answer.leased);
        if let Some(after) = decision.next_after {
            fields.duration(NEXT_AFTER, after);
        }
        out.put_slice(fields.bytes());
        if let Some(overridden) = answer.overridden {
            put_bytes(OVERRIDE.into(), overridden.id.as_bytes(), out);
        }
        if answer.repeated {
            encoding::bool::encode(REPEATED.into(), &true, out);
        }
        if let Some(ban) = answer.ban() {
            put_bytes(BAN_REASON.into(), ban.reason.as_bytes(), out);
        }
    }
}

fn write_level(level: &LevelAnswer<'_>, out: &mut BytesMut) {
    let LevelAnswer { limit, depth, shadow, decision, .. } = level;
    let mut fields = Short::default();
    fields.number(DEPTH, u64::from(*depth));
    fields.flag(SHADOW, *shadow);
    fields.decision(DECISION, decision);
    if let Some(after) = decision.next_after {
        fields.duration(LEVEL_NEXT_AFTER, after);
    }
    let name_bytes = limit.name.len() as u64;
    let name_field_bytes = if name_bytes == 0 { 0 } else { 1 + encoded_len_varint(name_bytes) + limit.name.len() };
    let mut head = Short::default();
    head.push(LEVELS << 3 | LENGTH);
    head.varint((name_field_bytes + fields.length) as u64);
    if name_bytes > 0 {
        head.push(NAME << 3 | LENGTH);
        head.varint(name_bytes);
    }
    out.put_slice(head.bytes());
    out.put_slice(limit.name.as_bytes());
    out.put_slice(fields.bytes());
}

/// Appends an error in place of an answer.
pub fn write_error(rejected: Rejected, out: &mut BytesMut) {
    let answer = proto::CheckResponse { error: Some(rejected.into()), ..Default::default() };
    out.put_slice(&answer.encode_to_vec());
}

/// Maximum length of the encoded fields of a decision: four durations of 19 bytes, three numbers of 11, five flags of
/// 2. A power of two, so that indexing needs no bounds check.
const MOST: usize = 128;

/// A buffer for a few encoded fields. Fields with the default value are left out, as in proto3.
struct Short {
    buffer: [u8; MOST],
    length: usize,
}

impl Default for Short {
    #[inline]
    fn default() -> Self {
        Self { buffer: [0; MOST], length: 0 }
    }
}

impl Short {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.buffer[self.length % MOST] = byte;
        self.length += 1;
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    #[inline]
    fn flag(&mut self, field: u8, flag: bool) {
        self.number(field, u64::from(flag));
    }

    #[inline]
    fn number(&mut self, field: u8, number: u64) {
        if number != 0 {
            self.number_that_may_be_0(field, number);
        }
    }

    #[inline]
    fn number_that_may_be_0(&mut self, field: u8, number: u64) {
        self.push(field << 3 | VARINT);
        self.varint(number);
    }

    /// Appends a `google.protobuf.Duration`; a negative one becomes 0.
    #[inline]
    fn duration(&mut self, field: u8, micros: Micros) {
        self.push(field << 3 | LENGTH);
        let length = self.length;
        self.push(0);
        if micros <= 0 {
            return;
        }
        let micros = micros.unsigned_abs();
        let second = SECOND.unsigned_abs();
        self.number(1, micros / second);
        self.number(2, micros % second * 1_000);
        self.buffer[length % MOST] = (self.length - length - 1) as u8;
    }

    #[inline]
    fn decision(&mut self, first: u8, decision: &Decision) {
        self.flag(first, decision.allowed);
        self.number(first + 1, decision.limit);
        self.number(first + 2, decision.remaining);
        if let Some(after) = decision.retry_after {
            self.duration(first + 3, after);
        }
        self.duration(first + 4, decision.reset_after);
        self.duration(first + 5, decision.wait);
        self.flag(first + 6, decision.never);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::CheckResponse;
    use weir_core::{
        algorithm::{Bounds, find},
        domain::{Decision, aggregate},
        plan::{Ban, Limit, Origin, Overridden},
    };

    fn decision() -> impl Strategy<Value = Decision> {
        let micros = || prop_oneof![Just(0), 0..2_000_000_i64, Just(i64::MAX)];
        let count = || prop_oneof![Just(0), 0..1_000_u64, Just(u64::MAX)];
        let maybe = || prop::option::of(micros());
        (any::<bool>(), count(), count(), maybe(), maybe(), micros(), micros(), any::<bool>()).prop_map(
            |(allowed, limit, remaining, retry_after, next_after, reset_after, wait, never)| Decision {
                allowed,
                limit,
                remaining,
                retry_after,
                next_after,
                reset_after,
                wait,
                never,
            },
        )
    }

    proptest! {
        #[test]
        fn encoded_answers_match_prost(
            decisions in prop::collection::vec((decision(), 0..33_u8, any::<bool>(), 0..300_usize), 0..5),
            [degraded, leased, repeated]: [bool; 3],
            overridden in prop::option::of((0..40_usize, prop::option::of(1..300_usize))),
            summary_only: bool,
        ) {
            let gcra = find("gcra").unwrap();
            let params = (gcra.parse)(gcra.examples[0], &Bounds::default()).unwrap();
            let limits: Vec<_> = decisions
                .iter()
                .map(|(_, _, shadow, name)| {
                    Limit::new(Origin::Policy, Some(&"n".repeat(*name)), "", 0, *shadow, params.clone())
                })
                .collect();
            let levels = decisions.iter().zip(&limits).map(|((decision, depth, ..), limit)| LevelAnswer {
                limit,
                depth: *depth,
                shadow: limit.shadow,
                decision: *decision,
                window: 1,
            });
            let summary = aggregate(decisions.iter().map(|(decision, _, shadow, _)| (decision, *shadow)));
            let texts = overridden.map(|(id, reason)| ("i".repeat(id + 1), reason.map(|reason| "r".repeat(reason))));
            let overridden = texts.as_ref().map(|(id, reason)| {
                let ban = reason.as_ref().map(|reason| Ban { reason, ends_after: None });
                Overridden { id, change: "ban", ban }
            });
            let answer = Answer { summary, levels: levels.collect(), degraded, leased, repeated, overridden, domain: None };
            let mut out = BytesMut::new();
            write(&answer, summary_only, &mut out);
            let read = CheckResponse::decode(&out[..]).unwrap();
            prop_assert_eq!(read.encode_to_vec(), &out[..], "as prost writes it");
            prop_assert_eq!(Decision::from(&read), answer.summary.decision);
            prop_assert_eq!((read.degraded, read.leased, read.repeated_request), (degraded, leased, repeated));
            let (id, reason) = texts.clone().unwrap_or_default();
            prop_assert_eq!((&read.r#override, &read.ban_reason), (&id, &reason.unwrap_or_default()));
            prop_assert_eq!(read.binding, answer.summary.binding.map(|index| index as u32));
            prop_assert_eq!(read.levels.len(), if summary_only { 0 } else { answer.levels.len() });
            for (read, level) in read.levels.iter().zip(&answer.levels) {
                let read_back = (&*read.name, read.depth, read.shadow, Decision::from(read));
                let expected = (&*level.limit.name, level.depth.into(), level.shadow, level.decision);
                prop_assert_eq!(read_back, expected);
            }
        }
    }
}
