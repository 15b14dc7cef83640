//! The messages of `weir.v1`, over gRPC.

use std::pin::pin;

use bytes::Bytes;
use futures_util::FutureExt;
use prost::Message;
use weir::{
    proto::{
        CheckBatchRequest, CheckBatchResponse, CheckRequest, CheckResponse, LimitSpec, ResetRequest, ResetResponse,
    },
    transport::{
        api::{batch, call},
        fields::{Fields, Value},
        message::{self, CheckMessage, MAX_FIELDS},
    },
};

use super::fixture;

/// The field of a check with its limits.
const LIMIT_SPEC: u32 = 3;

/// A `CheckRequest` is read as prost reads it, unless it exceeds the bounds, and answered.
pub fn check(bytes: &[u8]) {
    compare(bytes);
    let service = fixture::checks();
    let answer = call::check(&service, Bytes::copy_from_slice(bytes));
    if let Ok(answer) = answer.now_or_never().expect("memory answers at once") {
        CheckResponse::decode(&answer[..]).expect("an answer");
    }
}

/// A `CheckBatchRequest` has the checks that prost finds in it, and is answered check by check.
pub fn batch(bytes: &[u8]) {
    let read: Option<Vec<_>> = message::batch(bytes).ok().map(Iterator::collect);
    if let Ok(known) = CheckBatchRequest::decode(bytes) {
        match &read {
            Some(checks) => {
                let checks: Vec<_> =
                    checks.iter().map(|check| CheckRequest::decode(*check).expect("a check")).collect();
                assert_eq!(format!("{checks:?}"), format!("{:?}", known.checks));
            }
            None => assert!(nests_groups(bytes), "prost reads {known:?}"),
        }
    }
    let checks = read.unwrap_or_default();
    checks.iter().for_each(|check| compare(check));
    let service = fixture::checks();
    let mut answers = pin!(batch::check_batch(&service, Bytes::copy_from_slice(bytes)));
    // A large batch yields between its parts.
    let answers = (0..=checks.len()).find_map(|_| answers.as_mut().now_or_never());
    if let Ok(answers) = answers.expect("memory answers at once") {
        let answers = CheckBatchResponse::decode(&answers[..]).expect("answers");
        assert_eq!(answers.results.len(), checks.len());
    }
}

/// A `ResetRequest` is read as prost reads it, unless it exceeds the bounds, and carried out.
pub fn reset(bytes: &[u8]) {
    match (message::read::<ResetRequest>(bytes), ResetRequest::decode(bytes)) {
        (Ok(read), Ok(known)) => assert_eq!(read, known),
        (Ok(read), Err(error)) => panic!("{read:?} is read, but: {error}"),
        (Err(_), Ok(known)) => {
            let fields = Fields::new(bytes).count_up_to(MAX_FIELDS);
            assert!(fields.map_or_else(|| nests_groups(bytes), |fields| fields > MAX_FIELDS), "prost reads {known:?}");
        }
        (Err(_), Err(_)) => {}
    }
    let (service, actor) = (fixture::checks(), fixture::actor());
    let done = call::reset(&service, bytes, &actor);
    if let Ok(done) = done.now_or_never().expect("memory answers at once") {
        let done = ResetResponse::decode(&done[..]).expect("an answer");
        assert!(!done.existed, "nobody has asked anything");
    }
}

fn compare(bytes: &[u8]) {
    let after_malformed = Fields::new(bytes).skip_while(Option::is_some).nth(1);
    assert_eq!(after_malformed, None);
    let read = CheckMessage::read(bytes).ok().and_then(|mut read| limits(&mut read).map(|limits| (read, limits)));
    match (read, CheckRequest::decode(bytes)) {
        (Some((read, limits)), Ok(mut known)) => {
            // Compared as text, since there may be a NaN among the numbers.
            assert_eq!(format!("{limits:?}"), format!("{:?}", known.limit_spec.take()));
            assert_eq!(format!("{read:?}"), format!("{:?}", CheckMessage::from(&known)));
        }
        (Some((read, _)), Err(error)) => panic!("{read:?} is read, but: {error}"),
        (None, Ok(known)) => assert!(is_beyond_bounds(bytes), "prost reads {known:?}"),
        (None, Err(_)) => {}
    }
}

/// Takes the limits out of a check and decodes them with prost, for comparison; `None`: prost does not decode them.
pub fn limits(check: &mut CheckMessage<'_>) -> Option<Option<LimitSpec>> {
    check.limit_spec.take().map(|spec| LimitSpec::decode(&*spec)).transpose().ok()
}

/// Whether a valid check may be rejected because it exceeds the bounds.
pub fn is_beyond_bounds(bytes: &[u8]) -> bool {
    let Some(fields) = Fields::new(bytes).collect::<Option<Vec<_>>>() else { return nests_groups(bytes) };
    let limits = fields.iter().map(|field| match field {
        (LIMIT_SPEC, Value::Bytes(spec)) => Fields::new(spec).count_up_to(MAX_FIELDS),
        _ => Some(0),
    });
    let limits = limits.sum::<Option<usize>>();
    fields.len() > MAX_FIELDS || limits.map_or_else(|| nests_groups(bytes), |limits| limits > MAX_FIELDS)
}

/// Whether groups may be nested so deep that the start of prost's count matters: it reads 100 levels, messages
/// included.
pub fn nests_groups(bytes: &[u8]) -> bool {
    const START: u8 = 3;
    bytes.iter().filter(|byte| **byte & 7 == START).count() > 90
}
