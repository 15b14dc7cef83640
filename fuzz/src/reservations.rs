//! The calls on reservations, over gRPC.

use futures_util::FutureExt;
use prost::Message;
use weir::{
    proto::{CancelResponse, CommitRequest, CommitResponse, ExtendResponse, ReserveRequest, ReserveResponse},
    transport::{
        api::reservation,
        fields::{Fields, Value},
        message::{CheckMessage, MAX_FIELDS, read_with_check},
    },
};

use super::{
    fixture,
    messages::{is_beyond_bounds, limits, nests_groups},
};

/// The field of `ReserveRequest` with the check.
const CHECK: u32 = 1;

/// A `ReserveRequest` is read as prost reads it, unless it exceeds the bounds, and answered. A reservation is settled
/// once.
pub fn reserve(bytes: &[u8]) {
    let read = read_with_check::<ReserveRequest>(bytes).ok();
    let read = read.and_then(|(mut check, message)| limits(&mut check).map(|limits| ((check, message), limits)));
    match (read, ReserveRequest::decode(bytes)) {
        (Some((read, limits)), Ok(known)) => {
            let mut check = known.check.clone().unwrap_or_default();
            // Compared as text, since there may be a NaN among the numbers.
            assert_eq!(format!("{limits:?}"), format!("{:?}", check.limit_spec.take()));
            let known = (CheckMessage::from(&check), known);
            assert_eq!(format!("{read:?}"), format!("{known:?}"));
        }
        (Some((read, _)), Err(error)) => panic!("{read:?} is read, but: {error}"),
        (None, Ok(known)) => assert!(may_be_refused(bytes), "prost reads {known:?}"),
        (None, Err(_)) => {}
    }
    let (service, actor) = (fixture::checks(), fixture::actor());
    let answer = reservation::reserve(&service, read_with_check(bytes), &actor, |_, answer| answer);
    let Ok(answer) = answer.now_or_never().expect("memory answers at once") else { return };
    let ReserveResponse { decision, hold, .. } = ReserveResponse::decode(&answer[..]).expect("an answer");
    assert_eq!(decision.expect("a decision").allowed, !hold.is_empty());
    if hold.is_empty() {
        return;
    }
    let commit = |actual| {
        let message = CommitRequest { hold: hold.clone(), actual: Some(actual) }.encode_to_vec();
        let answer = reservation::commit(&service, &message, &actor).now_or_never().expect("memory answers at once");
        CommitResponse::decode(&answer.ok().expect("it is there")[..]).expect("an answer")
    };
    let first = commit(3);
    assert!(first.charged == 3 || first == CommitResponse::default(), "{first:?}");
    assert_eq!(commit(7), first, "the first settlement counts");
}

/// Whether a valid request may be rejected because it exceeds the bounds.
fn may_be_refused(bytes: &[u8]) -> bool {
    let Some(fields) = Fields::new(bytes).collect::<Option<Vec<_>>>() else { return nests_groups(bytes) };
    let checks: Vec<_> = fields.iter().filter(|(number, _)| *number == CHECK).collect();
    let is_beyond_bounds =
        |field: &(u32, Value<'_>)| matches!(field, (CHECK, Value::Bytes(check)) if is_beyond_bounds(check));
    fields.len() > MAX_FIELDS || checks.len() > 1 || checks.into_iter().any(is_beyond_bounds)
}

/// Any message, and any text as a hold, settles nothing, since nothing is reserved.
pub fn settle(bytes: &[u8]) {
    let (service, actor) = (fixture::checks(), fixture::actor());
    let text = CommitRequest { hold: String::from_utf8_lossy(bytes).into_owned(), actual: None }.encode_to_vec();
    for message in [bytes, &text] {
        let committed = reservation::commit(&service, message, &actor).now_or_never().expect("memory answers at once");
        if let Ok(answer) = committed {
            let CommitResponse { charged, refunded, overage, .. } =
                CommitResponse::decode(&answer[..]).expect("an answer");
            assert_eq!((charged, refunded, overage), (0, 0, 0));
        }
        let cancelled = reservation::cancel(&service, message, &actor).now_or_never().expect("memory answers at once");
        if let Ok(answer) = cancelled {
            assert_eq!(CancelResponse::decode(&answer[..]).expect("an answer").refunded, 0);
        }
        let extended = reservation::extend(&service, message, &actor).now_or_never().expect("memory answers at once");
        if let Ok(answer) = extended {
            ExtendResponse::decode(&answer[..]).expect("an answer");
        }
    }
}
