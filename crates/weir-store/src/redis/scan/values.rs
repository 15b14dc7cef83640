//! Decoding of the holds in a hash's values: see `states.lua` and `reserve.lua`. An undecodable value counts as having
//! none.

use rmpv::{ValueRef, decode::read_value_ref};

use crate::scan::{Hold, Reserved};
use weir_core::domain::Micros;

/// Type of an open reservation's record: `OPEN` in `reserve.lua`.
const OPEN: u64 = 1;

/// Decodes the three MessagePack values of a field: expiry, content, and ledger or levels.
fn parts(mut value: &[u8]) -> Option<[ValueRef<'_>; 3]> {
    let mut next = || read_value_ref(&mut value).ok();
    Some([next()?, next()?, next()?])
}

/// Whether a state's value has expired.
pub(super) fn is_expired(mut value: &[u8], now: Micros) -> bool {
    read_value_ref(&mut value).ok().and_then(|expires| moment(&expires)).is_some_and(|expires| expires <= now)
}

/// Returns the unexpired holds in a state's value.
pub(crate) fn holds(value: &[u8], now: Micros) -> Vec<Hold> {
    let Some([_, _, ValueRef::Array(ledger)]) = parts(value) else { return Vec::new() };
    let hold = |hold: &ValueRef<'_>| {
        // {id, sequence, spent, units, granted, deadline}
        let ValueRef::Array(fields) = hold else { return None };
        let [id, _, _, units, _, deadline] = fields.get(..6)?.first_chunk::<6>()?;
        let expires_after = moment(deadline)? - now;
        // The ids of reservations are a single letter.
        let owner = text(id)?.first_chunk().map(|owner| u64::from_be_bytes(*owner));
        let held = Hold { owner, units: units.as_u64()?, expires_after };
        (held.units > 0 && expires_after > 0).then_some(held)
    };
    ledger.iter().filter_map(hold).collect()
}

/// Returns the open reservation of a record. `prefix` is the prefix of all keys.
pub(super) fn reservation(name: &[u8], value: &[u8], prefix: &[u8], now: Micros) -> Option<Reserved> {
    let [ends, ValueRef::Array(words), ValueRef::Array(levels)] = parts(value)? else { return None };
    let [what, _, units] = words.get(..3)?.first_chunk::<3>()?;
    let expires_after = moment(&ends)? - now;
    if what.as_u64()? != OPEN || expires_after <= 0 {
        return None;
    }
    let level = |level: &ValueRef<'_>| Some(text(level)?.strip_prefix(prefix)?.to_vec());
    let levels = levels.iter().map(level).collect::<Option<_>>()?;
    Some(Reserved { name: name.to_vec(), levels, units: units.as_u64()?, expires_after })
}

/// Returns the bytes of a Lua string.
fn text<'v>(value: &'v ValueRef<'_>) -> Option<&'v [u8]> {
    match value {
        ValueRef::String(text) => Some(text.as_bytes()),
        ValueRef::Binary(bytes) => Some(bytes),
        _ => None,
    }
}

fn moment(value: &ValueRef<'_>) -> Option<Micros> {
    value.as_u64()?.try_into().ok()
}
