//! `Lease`: each message of the stream is served by itself, in order. What belongs to a lease is in the store.

use std::{sync::Arc, time::Instant};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use prost::encoding::encode_varint;
use weir_core::{
    algorithm::message::duration,
    hold::{Grant, Offer},
};
use weir_store::Store;

use super::{answer, call::encoded, stream::Begun};
use crate::{
    limiter::Leasable,
    proto::{CheckResponse, LeaseGrant, LeaseResponse, LeaseTerms},
    telemetry::Transport,
    transport::{
        authentication::ClientName,
        check_service::{Caller, CheckService, LeaseAnswer},
        message::LeaseMessage,
    },
};

/// The tag before the decision of `LeaseResponse`: its field and wire type.
const DECISION: u8 = 3 << 3 | 2;

/// Begins to answer each message of a stream of this client.
pub(super) fn begin<S: Store>(service: CheckService<S>, client: Option<ClientName>) -> impl FnMut(Bytes) -> Begun {
    let shared = Arc::new((service, client));
    move |message| {
        let (shared, since) = (Arc::clone(&shared), Instant::now());
        let answer = async move {
            let (service, client) = &*shared;
            let answer = serve(service, &message, &Caller::new(client.as_ref(), Transport::GrpcLease)).await;
            service.timed(Transport::GrpcLease, since);
            answer
        };
        Begun::Waiting(answer.boxed())
    }
}

async fn serve<S: Store>(service: &CheckService<S>, message: &[u8], caller: &Caller<'_>) -> BytesMut {
    let message = LeaseMessage::read(message);
    let (lease, sequence) = message.as_ref().map_or((0, 0), |message| (message.lease, message.sequence));
    let summary_only = message.as_ref().is_ok_and(|message| message.check.summary_only);
    let encode = |LeaseAnswer { decision, grant, leasable }: LeaseAnswer<'_, '_>| {
        let (terms, not_leasable) = match leasable {
            Leasable::Yes(offer) => (Some(terms(&offer)), String::new()),
            Leasable::No(reason) => (None, reason.to_owned()),
        };
        let grant = grant.as_ref().map(granted);
        let mut out = encoded(&LeaseResponse { lease, sequence, decision: None, grant, terms, not_leasable });
        if let Some(answer) = decision {
            let mut decision = BytesMut::new();
            answer::write(answer, summary_only, &mut decision);
            out.put_u8(DECISION);
            encode_varint(decision.len() as u64, &mut out);
            out.put_slice(&decision);
        }
        out
    };
    service.lease(message, caller, encode).await.unwrap_or_else(|rejected| {
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
