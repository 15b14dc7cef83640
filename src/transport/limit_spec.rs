//! The limits that a request specifies (`limit_spec`). Clients send the same ones repeatedly, so each thread caches
//! those that it resolved recently: resolving takes longer than the rest of a check.

use std::{cell::RefCell, hash::BuildHasher, sync::Arc};

use foldhash::fast::RandomState;
use prost::Message;
use weir_core::{
    algorithm::{Bounds, ParamError, Params},
    domain::{Charge, Key, request::MAX_LEVELS},
};
use weir_policy::{LegacyBucket, ParsedLimit, RequestLimits, RequestLimitsError, limits::interval_name};
use weir_settings::problem::Mark;

use super::message;
use crate::{
    limiter::Invalid,
    proto::{self, LimitSpec, limit::Algorithm},
};

/// Number of cached specs per thread, each in a slot by its hash: at most half a megabyte.
const SLOTS: usize = 64;
/// Maximum size of the message of a cached spec, in bytes.
const MAX_REMEMBERED_BYTES: usize = 256;

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

/// A cache of recently resolved limits.
#[derive(Default)]
struct Recent {
    hasher: RandomState,
    slots: Vec<Option<Resolved>>,
}

struct Resolved {
    message: Box<[u8]>,
    key_depth: usize,
    bounds: Bounds,
    spec: Arc<RequestLimits>,
}

/// Returns the limits in the bytes of a `LimitSpec`, as they apply to `key`.
///
/// # Errors
/// [`Invalid`] names the field at fault.
pub(super) fn read(message: &[u8], key: &Key, bounds: &Bounds) -> Result<Arc<RequestLimits>, Invalid> {
    if message.len() > MAX_REMEMBERED_BYTES {
        return decode(message, key, bounds).map(Arc::new);
    }
    RECENT.with_borrow_mut(|Recent { hasher, slots }| {
        slots.resize_with(SLOTS, || None);
        let slot = &mut slots[hasher.hash_one((message, key.depth())) as usize % SLOTS];
        // They depend on the key only by its depth.
        let is_it = |it: &&Resolved| *it.message == *message && it.key_depth == key.depth() && it.bounds == *bounds;
        if let Some(resolved) = slot.as_ref().filter(is_it) {
            return Ok(Arc::clone(&resolved.spec));
        }
        let spec = Arc::new(decode(message, key, bounds)?);
        let resolved =
            Resolved { message: message.into(), key_depth: key.depth(), bounds: *bounds, spec: Arc::clone(&spec) };
        *slot = Some(resolved);
        Ok(spec)
    })
}

fn decode(message: &[u8], key: &Key, bounds: &Bounds) -> Result<RequestLimits, Invalid> {
    resolve(LimitSpec::decode(message).map_err(|_| message::unreadable())?, key, bounds)
}

/// Resolves the limits of a message as they apply to `key`.
fn resolve(message: LimitSpec, key: &Key, bounds: &Bounds) -> Result<RequestLimits, Invalid> {
    let charge = match proto::Charge::try_from(message.charge) {
        Ok(proto::Charge::Unspecified | proto::Charge::AllOrNothing) => Charge::AllOrNothing,
        Ok(proto::Charge::Independent) => Charge::Independent,
        Err(_) => {
            return Err(Invalid::field_error("limit_spec.charge", format!("unknown charge {}", message.charge)));
        }
    };
    if message.limits.len() > MAX_LEVELS {
        return Err(RequestLimitsError::Count(message.limits.len()).into());
    }
    let mut limits = Vec::with_capacity(message.limits.len());
    // The second limits of legacy buckets come after all others, as in policy files.
    let mut behind = Vec::new();
    for (index, limit) in message.limits.into_iter().enumerate() {
        let (first, second) = self::limit(limit, bounds).map_err(|error| {
            Invalid::field_error(format!("limit_spec.limits[{index}].{}", error.field), error.reason)
        })?;
        limits.push(first);
        behind.extend(second.map(|second| (index, second)));
    }
    let firsts = limits.len();
    let (sources, seconds): (Vec<_>, Vec<_>) = behind.into_iter().unzip();
    limits.extend(seconds);
    let renumbered = |error: RequestLimitsError| error.renumbered(&(0..firsts).chain(sources).collect::<Vec<_>>());
    Ok(RequestLimits::new(limits, charge, key).map_err(renumbered)?)
}

/// Returns a limit. A legacy bucket may become two.
fn limit(message: proto::Limit, bounds: &Bounds) -> Result<(ParsedLimit, Option<ParsedLimit>), ParamError> {
    let proto::Limit { name, depth, shadow, algorithm } = message;
    let algorithm = algorithm.ok_or_else(|| ParamError::new("algorithm", "a limit needs an algorithm"))?;
    let name = Some(name).filter(|name| !name.is_empty());
    let (first, second) = match &algorithm {
        Algorithm::LegacyBucket(bucket) => legacy_bucket(bucket, bounds)?,
        algorithm => (Params::from_proto(algorithm, bounds)?, None),
    };
    let second_name = name.as_deref().filter(|_| second.is_some()).map(interval_name).transpose();
    let second_name = second_name.map_err(|reason| ParamError::new("name", reason))?;
    let parsed = |name, params| ParsedLimit { mark: Mark::default(), name, depth, shadow, lease: None, params };
    Ok((parsed(name, first), second.map(|params| parsed(second_name, params))))
}

fn legacy_bucket(message: &proto::LegacyBucket, bounds: &Bounds) -> Result<(Params, Option<Params>), ParamError> {
    let proto::LegacyBucket { max, duration, min_interval, size, drip_size, drip_rate } = *message;
    let numbers = [
        ("max", max),
        ("duration", duration),
        ("min_interval", min_interval),
        ("size", size),
        ("drip_size", drip_size),
        ("drip_rate", drip_rate),
    ];
    let limits = LegacyBucket::new(numbers).and_then(|bucket| bucket.limits(bounds));
    limits.map_err(|error| ParamError { field: format!("legacy_bucket.{}", error.field), ..error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{FixedWindow, Limit};

    fn message(count: u64, depth: u32) -> Vec<u8> {
        let period = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        let algorithm = Some(Algorithm::FixedWindow(FixedWindow { count, period, ..FixedWindow::default() }));
        LimitSpec { limits: vec![Limit { depth, algorithm, ..Limit::default() }], charge: 0 }.encode_to_vec()
    }

    #[test]
    fn limits_that_are_remembered_are_those_of_the_message() {
        let short = Bounds { max_period: 59_000_000 };
        let keys = [&["user"][..], &["user", "alex"]].map(|segments| Key::new("", segments).unwrap());
        // More than there are slots for, each twice in a row and again later.
        for count in (1..200).chain(1..200).flat_map(|count| [count, count]) {
            for key in &keys {
                for (bounds, depth) in [(Bounds::default(), 0), (short, 0), (Bounds::default(), 2)] {
                    let message = message(count, depth);
                    let text = |spec: Result<Arc<RequestLimits>, Invalid>| format!("{spec:?}");
                    assert_eq!(text(read(&message, key, &bounds)), text(decode(&message, key, &bounds).map(Arc::new)));
                }
            }
        }
        assert!(read(b"\x0a\x01", &keys[0], &short).is_err());
    }
}
