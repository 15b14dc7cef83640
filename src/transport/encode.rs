//! Answers into messages.

use prost_types::Duration;
use weir_core::domain::Micros;

use crate::{
    limiter::{Answer, LevelAnswer},
    proto,
};

/// An answer, with its levels unless they are not wanted.
pub fn check(answer: &Answer<'_>, summary_only: bool) -> proto::CheckResponse {
    let summary = &answer.summary;
    let levels = if summary_only { Vec::new() } else { answer.levels.iter().map(level).collect() };
    proto::CheckResponse {
        allowed: summary.allowed,
        limit: summary.limit,
        remaining: summary.remaining,
        retry_after: summary.retry_after.map(duration),
        reset_after: Some(duration(summary.reset_after)),
        wait: Some(duration(summary.wait)),
        never: summary.never,
        degraded: answer.degraded,
        binding: summary.binding.map(|index| index as u32),
        levels,
        error: None,
    }
}

fn level(level: &LevelAnswer<'_>) -> proto::LevelResult {
    let LevelAnswer { limit, depth, decision, .. } = level;
    proto::LevelResult {
        name: limit.name.to_string(),
        depth: u32::from(*depth),
        shadow: limit.shadow,
        allowed: decision.allowed,
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after: decision.retry_after.map(duration),
        reset_after: Some(duration(decision.reset_after)),
        wait: Some(duration(decision.wait)),
        never: decision.never,
    }
}

/// A length of time from 0 as a message.
fn duration(micros: Micros) -> Duration {
    Duration { seconds: micros.div_euclid(1_000_000), nanos: (micros.rem_euclid(1_000_000) * 1_000) as i32 }
}
