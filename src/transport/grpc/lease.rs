//! `Lease`: each message of the stream is served separately, and answered in order. The state of a lease is in the
//! store.

use std::{sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use weir_core::{
    algorithm::message::duration,
    hold::{Grant, Offer},
};
use weir_server::Permit;
use weir_store::Store;

use crate::{
    proto::{CheckResponse, LeaseGrant, LeaseRequest, LeaseResponse, LeaseTerms},
    transport::{
        api::answer,
        audit::Actor,
        check_service::{CheckService, LeaseAnswer, PendingAnswer},
        fields::put_bytes,
        message::{encoded, read_with_check},
    },
};

/// The field number of the decision in `LeaseResponse`.
const DECISION: u32 = 3;

/// Returns a function that starts to answer each message of a client's stream, and holds its permit.
pub(super) fn handler<S: Store>(
    service: CheckService<S>,
    actor: Actor,
    permit: Permit,
) -> impl FnMut(Bytes) -> PendingAnswer<'static, BytesMut> {
    let shared = Arc::new((service, actor, permit));
    move |message| {
        let (shared, since) = (Arc::clone(&shared), Instant::now());
        let answer = async move {
            let (service, actor, _) = &*shared;
            let answer = serve(service, &message, actor).await;
            service.timed(actor.transport, since);
            answer
        };
        PendingAnswer::Waiting(answer.boxed())
    }
}

async fn serve<S: Store>(service: &CheckService<S>, message: &[u8], actor: &Actor) -> BytesMut {
    let message = read_with_check::<LeaseRequest>(message);
    let (lease, sequence) = message.as_ref().map_or((0, 0), |(_, message)| (message.lease, message.sequence));
    let summary_only = message.as_ref().is_ok_and(|(check, _)| check.summary_only);
    let encode = |LeaseAnswer { decision, grant, leasable }: LeaseAnswer<'_, '_>| {
        let (terms, not_leasable) = match leasable {
            Ok(offer) => (Some(terms(&offer)), String::new()),
            Err(reason) => (None, reason.to_owned()),
        };
        let grant = grant.as_ref().map(granted);
        let mut out = encoded(&LeaseResponse { lease, sequence, decision: None, grant, terms, not_leasable });
        if let Some(answer) = decision {
            let mut decision = BytesMut::new();
            answer::write(answer, summary_only, &mut decision);
            put_bytes(DECISION, &decision, &mut out);
        }
        out
    };
    service.lease(message, actor, encode).await.unwrap_or_else(|rejected| {
        let decision = Some(CheckResponse { error: Some(rejected.into()), ..CheckResponse::default() });
        encoded(&LeaseResponse { lease, sequence, decision, ..LeaseResponse::default() })
    })
}

fn terms(offer: &Offer) -> LeaseTerms {
    let Offer { generation, terms } = offer;
    let (ttl, hold_off) = (Some(duration(terms.ttl)), Some(duration(terms.hold_off)));
    LeaseTerms { generation: *generation, ttl, hold_off, scarce: terms.scarce }
}

fn granted(grant: &Grant) -> LeaseGrant {
    let Grant { units, free, is_kept, is_recalled, refused_for, .. } = *grant;
    LeaseGrant { units, free, is_kept, is_recalled, refused_for: Some(duration(refused_for)) }
}
