//! Decisions as JSON for scripts and the explorer's page: plain numbers, and times in microseconds.

use serde::ser::SerializeMap;
use weir_core::domain::Decision;

/// Appends a decision. Without a limit, `limit` and `remaining` are null. `next_after_us` is present only if no unit is
/// left.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<M: SerializeMap>(members: &mut M, decision: &Decision, is_limited: bool) -> Result<(), M::Error> {
    let Decision { allowed, limit, remaining, retry_after, next_after, reset_after, wait, never } = decision;
    members.serialize_entry("allowed", allowed)?;
    members.serialize_entry("limit", &is_limited.then_some(limit))?;
    members.serialize_entry("remaining", &is_limited.then_some(remaining))?;
    members.serialize_entry("retry_after_us", retry_after)?;
    if next_after.is_some() {
        members.serialize_entry("next_after_us", next_after)?;
    }
    members.serialize_entry("reset_after_us", reset_after)?;
    members.serialize_entry("wait_us", wait)?;
    members.serialize_entry("never", never)
}
