//! Splits the messages of a quota stream as they arrive. Envoy reports all its buckets in one message, and its clients
//! decide how many these are and how long their ids. A bound on the message would end the stream, and Envoy would send the
//! same message on each new one. Several messages with a part of the fields each mean the same, so no more than one report
//! is held.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::encoding::{WireType, decode_key, decode_varint};
use tracing::warn;

use crate::{telemetry::RlqsRejections, transport::incomplete_calls::PREFIX_BYTES};

/// Maximum size of a report, with its key and length. The headers of a request, and so the id of a bucket, have at most 60
/// KiB by Envoy's default.
pub const MAX_REPORT_BYTES: usize = 64 << 10;
/// Maximum size of the key and the length of a field, or of its key and its varint.
const MAX_FIELD_HEAD_BYTES: usize = 20;
/// A message that no decoder accepts: an incomplete key.
const MALFORMED: &[u8] = &[0xff];

/// A body whose messages are split: no message has more than [`MAX_REPORT_BYTES`]. Larger reports are dropped.
pub(super) struct SplitMessages<B> {
    body: B,
    rejections: Arc<RlqsRejections>,
    position: Position,
    /// The incomplete prefix of a message, or head of a field.
    head: BytesMut,
    /// Bytes of the message after `head`, and after the field at the position.
    missing: usize,
    /// Received bytes that are not split yet: a list of their parts would be much larger, if messages are small.
    rest: Bytes,
    /// Bytes to yield before more are split.
    ready: Option<Bytes>,
}

/// The position in the body.
enum Position {
    /// In the prefix of a message.
    Prefix,
    /// Between two fields, or in the head of one.
    Fields,
    /// In content that is passed, with this much to come.
    Passed(usize),
    /// In a report that is dropped, with this much to come.
    Dropped(usize),
    /// After a malformed field, which ends the stream.
    Malformed,
}

impl<B> SplitMessages<B> {
    pub(super) fn new(body: B, rejections: Arc<RlqsRejections>) -> Self {
        let (head, rest) = (BytesMut::new(), Bytes::new());
        Self { body, rejections, position: Position::Prefix, head, missing: 0, rest, ready: None }
    }

    /// Returns the next bytes of the messages; `None` if more must be received for them.
    fn split_next(&mut self) -> Option<Bytes> {
        let mut next = self.ready.take();
        while next.is_none() && !self.rest.is_empty() {
            let rest = &mut self.rest;
            next = match &mut self.position {
                Position::Prefix => {
                    let missing = PREFIX_BYTES - self.head.len();
                    self.head.put(rest.split_to(missing.min(rest.len())));
                    self.start_message()
                }
                Position::Fields => {
                    let most = rest.len().min(self.missing).min(MAX_REPORT_BYTES);
                    let whole = if self.head.is_empty() { whole_fields(&rest[..most]) } else { 0 };
                    if whole > 0 {
                        self.missing -= whole;
                        let fields = rest.split_to(whole);
                        self.end_field();
                        Some(self.start(whole, fields))
                    } else {
                        self.head.put(rest.split_to(1));
                        self.missing -= 1;
                        self.start_field()
                    }
                }
                Position::Passed(missing) => {
                    let passed = rest.split_to(rest.len().min(*missing));
                    *missing -= passed.len();
                    if *missing == 0 {
                        self.end_field();
                    }
                    Some(passed)
                }
                Position::Dropped(missing) => {
                    *missing -= rest.split_to(rest.len().min(*missing)).len();
                    if *missing == 0 {
                        self.end_field();
                    }
                    None
                }
                Position::Malformed => {
                    *rest = Bytes::new();
                    None
                }
            };
        }
        next
    }

    /// Starts a message once its prefix is complete. Returns its first bytes, if known.
    fn start_message(&mut self) -> Option<Bytes> {
        let [flags, length @ ..] = &self.head[..] else { return None };
        let length = <[u8; 4]>::try_from(length).ok()?;
        let (is_compressed, length) = (*flags != 0, u32::from_be_bytes(length) as usize);
        let prefix = self.head.split().freeze();
        if is_compressed || length == 0 {
            // Compressed messages are rejected by their prefix.
            self.pass(length);
            Some(prefix)
        } else {
            (self.position, self.missing) = (Position::Fields, length);
            None
        }
    }

    /// Starts a field once its head is complete. Returns the first bytes of its message, if it is passed.
    fn start_field(&mut self) -> Option<Bytes> {
        let length = content_bytes(&mut &self.head[..]);
        let is_complete = length.is_some();
        if !is_complete && self.head.len() < MAX_FIELD_HEAD_BYTES && self.missing > 0 {
            return None;
        }
        let head = self.head.split().freeze();
        match length.filter(|length| *length <= self.missing) {
            None => {
                // The session rejects it. It might accept the head: a group is decoded as an unknown field.
                self.position = Position::Malformed;
                Some(self.start(MALFORMED.len(), Bytes::from_static(MALFORMED)))
            }
            Some(length) if head.len() + length > MAX_REPORT_BYTES => {
                if self.rejections.large.count() {
                    warn!(max_bytes = MAX_REPORT_BYTES, "reports are dropped: their buckets get no assignment");
                }
                self.missing -= length;
                self.position = Position::Dropped(length);
                None
            }
            Some(length) => {
                self.missing -= length;
                self.pass(length);
                Some(self.start(head.len() + length, head))
            }
        }
    }

    /// Starts a message of `length` with these bytes. Returns its prefix.
    fn start(&mut self, length: usize, bytes: Bytes) -> Bytes {
        let mut prefix = BytesMut::with_capacity(PREFIX_BYTES);
        prefix.put_u8(0);
        // At most `MAX_REPORT_BYTES`.
        prefix.put_u32(length as u32);
        self.ready = Some(bytes);
        prefix.freeze()
    }

    fn pass(&mut self, length: usize) {
        self.position = Position::Passed(length);
        if length == 0 {
            self.end_field();
        }
    }

    fn end_field(&mut self) {
        self.position = if self.missing == 0 { Position::Prefix } else { Position::Fields };
    }
}

/// Returns the size of the complete fields at the start.
fn whole_fields(bytes: &[u8]) -> usize {
    let (mut rest, mut whole) = (bytes, 0);
    while let Some(length) = content_bytes(&mut rest)
        && let Some((_, after)) = rest.split_at_checked(length)
    {
        (rest, whole) = (after, bytes.len() - after.len());
    }
    whole
}

/// Takes the head of a field. Returns the size of the field after it; `None` if it is incomplete or malformed, or of a
/// group, which no message here has.
fn content_bytes(bytes: &mut &[u8]) -> Option<usize> {
    let (_, kind) = decode_key(bytes).ok()?;
    match kind {
        WireType::Varint => decode_varint(bytes).ok().map(|_| 0),
        WireType::SixtyFourBit => Some(8),
        WireType::ThirtyTwoBit => Some(4),
        WireType::LengthDelimited => decode_varint(bytes).ok()?.try_into().ok(),
        WireType::StartGroup | WireType::EndGroup => None,
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for SplitMessages<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            if let Some(bytes) = self.split_next() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => self.rest = bytes,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_none() && self.rest.is_empty() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use proptest::prelude::*;
    use prost::Message;
    use weir_envoy::envoy::service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
    };
    use weir_telemetry::Registry;

    use super::*;

    fn split(registry: &Registry) -> SplitMessages<()> {
        SplitMessages::new((), Arc::new(RlqsRejections::new(registry)))
    }

    fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
        [&[flags], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
    }

    fn reports(domain: &str, users: &[String]) -> RateLimitQuotaUsageReports {
        let usage = |user: &String| BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: [("user".to_owned(), user.clone())].into() }),
            num_requests_allowed: 300,
            ..BucketQuotaUsage::default()
        };
        RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages: users.iter().map(usage).collect() }
    }

    /// Returns the bytes to yield after these are received.
    fn received(split: &mut SplitMessages<()>, bytes: Bytes) -> Vec<u8> {
        split.rest = bytes;
        std::iter::from_fn(|| split.split_next()).flatten().collect()
    }

    /// Returns the messages in these bytes.
    fn messages(bytes: Vec<u8>) -> Vec<Bytes> {
        let mut bytes = Bytes::from(bytes);
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(bytes.get_u8(), 0);
            let length = bytes.get_u32() as usize;
            messages.push(bytes.split_to(length));
        }
        messages
    }

    proptest! {
        #[test]
        fn the_parts_of_messages_mean_the_same(
            lengths in prop::collection::vec(prop::collection::vec(0..200_usize, 0..6), 1..5),
            cuts in prop::collection::vec(1..60_usize, 1..50),
        ) {
            let user = |length: &usize| "u".repeat(*length);
            let sent = lengths.iter().map(|lengths| reports("shop", &lengths.iter().map(user).collect::<Vec<_>>()));
            let sent: Vec<_> = sent.collect();
            let mut bytes: Bytes = sent.iter().flat_map(|sent| framed(0, &sent.encode_to_vec())).collect();
            let mut split = split(&Registry::default());
            let mut passed = Vec::new();
            for cut in cuts.into_iter().cycle() {
                passed.extend(received(&mut split, bytes.split_to(cut.min(bytes.len()))));
                if bytes.is_empty() {
                    break;
                }
            }
            let parts = messages(passed);
            let usages = parts.iter().flat_map(|part| {
                RateLimitQuotaUsageReports::decode(part.clone()).unwrap().bucket_quota_usages
            });
            let whole = sent.iter().flat_map(|sent| sent.bucket_quota_usages.clone());
            prop_assert!(usages.eq(whole));
            let first = RateLimitQuotaUsageReports::decode(parts[0].clone()).unwrap();
            prop_assert_eq!(first.domain, "shop");
        }
    }

    #[test]
    fn a_report_beyond_the_bound_is_dropped_and_those_beside_it_pass() {
        let registry = Registry::default();
        let mut split = split(&registry);
        let users = ["a".to_owned(), "b".repeat(MAX_REPORT_BYTES), "c".repeat(60 << 10), "d".to_owned()];
        let bytes = Bytes::from(framed(0, &reports("shop", &users).encode_to_vec()));
        let mut passed = Vec::new();
        for start in (0..bytes.len()).step_by(16 << 10) {
            passed.extend(received(&mut split, bytes.slice(start..bytes.len().min(start + (16 << 10)))));
            assert!(split.head.len() <= MAX_FIELD_HEAD_BYTES);
        }
        let parts = messages(passed);
        assert!(parts.iter().all(|part| part.len() <= MAX_REPORT_BYTES));
        let parts = parts.into_iter().map(|part| RateLimitQuotaUsageReports::decode(part).unwrap());
        let usages: Vec<_> = parts.flat_map(|part| part.bucket_quota_usages).collect();
        assert_eq!(usages, reports("", &[&users[..1], &users[2..]].concat()).bucket_quota_usages);
        assert!(registry.render().contains("weir_rlqs_rejected_total{reason=\"large\"} 1\n"));
    }

    #[test]
    fn a_malformed_or_empty_message_stays_what_it_is() {
        let valid = b"\x0a\x04shop";
        // A field beyond its message, an incomplete group and a complete one, a number that never ends, and a head that
        // is cut off.
        for malformed in [&b"\x0a\x05shop"[..], b"\x13\x08\x01", b"\x1b\x08\x01\x1c", &[0xff; 40], b"\x0a"] {
            let bytes = [framed(0, &[valid, malformed].concat()), framed(0, valid)].concat();
            for piece in 1..=bytes.len() {
                let mut split = split(&Registry::default());
                let pieces = bytes.chunks(piece).map(Bytes::copy_from_slice);
                let parts = messages(pieces.flat_map(|piece| received(&mut split, piece)).collect());
                assert_eq!((parts.len(), &parts[0][..]), (2, &valid[..]), "{malformed:?} in pieces of {piece}");
                assert!(RateLimitQuotaUsageReports::decode(parts[1].clone()).is_err(), "{malformed:?}");
            }
        }
        let mut split = split(&Registry::default());
        let bytes = [framed(0, b""), framed(1, b"gzip")].concat();
        assert_eq!(received(&mut split, bytes.clone().into()), bytes);
    }

    #[test]
    fn many_small_messages_are_split_one_by_one() {
        let message = framed(0, b"\x18\x00");
        let count = (16 << 10) / message.len();
        let mut split = split(&Registry::default());
        split.rest = message.repeat(count).into();
        for number in 1..=count {
            assert!(split.split_next().is_some() && split.split_next().is_some());
            assert_eq!((split.rest.len(), split.ready.is_some()), ((count - number) * message.len(), false));
        }
        assert!(split.split_next().is_none());
    }
}
