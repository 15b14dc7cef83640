//! Tests of decoding. Unusual bytes are written by hand, since no library writes them.

use prost::encoding::{bytes, uint64};
use tonic::Code;
use weir_envoy::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor,
    rate_limit_descriptor::{self, RateLimitOverride},
};

use super::*;
use crate::transport::rls::pb;

/// Encodes a varint field.
fn number(field: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    uint64::encode(field, &value, &mut out);
    out
}

/// Encodes a length-delimited field: a string, or a message of these fields.
fn long(field: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    bytes::encode(field, &content.as_ref().to_vec(), &mut out);
    out
}

fn entry_of(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    long(1, [long(1, key), long(2, value)].concat())
}

/// Encodes a request with one descriptor of these fields.
fn one(descriptor: impl AsRef<[u8]>) -> Vec<u8> {
    [long(1, "d"), long(2, descriptor)].concat()
}

fn read(bytes: impl AsRef<[u8]>) -> RateLimitRequest {
    RateLimitRequest::read(bytes.as_ref()).expect("it is read")
}

fn refused(bytes: impl AsRef<[u8]>) -> bool {
    RateLimitRequest::read(bytes.as_ref()).is_err_and(|status| status.code() == Code::InvalidArgument)
}

/// Returns the only descriptor of a request.
fn only(bytes: impl AsRef<[u8]>) -> Descriptor {
    let [descriptor] = <[_; 1]>::try_from(read(bytes).query.descriptors).expect("one");
    descriptor
}

/// A descriptor's own hits, whether they are a refund, and its limit.
type Terms = (Option<u64>, bool, Option<(u32, i32)>);

/// Encodes a request as Envoy does, with a descriptor for each of these.
fn envoys(hits_addend: u32, descriptors: &[Terms]) -> Vec<u8> {
    let descriptor = |(own, is_negative_hits, limit): &Terms| RateLimitDescriptor {
        entries: vec![rate_limit_descriptor::Entry { key: "k".to_owned(), value: "v".to_owned() }],
        limit: limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit }),
        hits_addend: *own,
        is_negative_hits: *is_negative_hits,
    };
    let descriptors = descriptors.iter().map(descriptor).collect();
    pb::RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend }.encode_to_vec()
}

#[test]
fn hits_default_to_those_of_the_request_and_then_to_one() {
    const MOST: i64 = 1 << 32;
    for (of_all, own, is_negative, expected) in [
        (0, None, false, 1),
        (1, None, false, 1),
        (5, None, false, 5),
        (u32::MAX, None, false, MOST - 1),
        (5, Some(0), false, 0),
        (0, Some(0), true, 0),
        (5, Some(1), false, 1),
        (5, Some(1 << 32), false, MOST),
        (5, Some((1 << 32) + 1), false, MOST),
        (5, Some(u64::MAX), false, MOST),
        (0, None, true, -1),
        (5, None, true, -5),
        (5, Some(2), true, -2),
        (5, Some(u64::MAX), true, -MOST),
    ] {
        let what = format!("{of_all} {own:?} {is_negative}");
        let request = read(envoys(of_all, &[(own, is_negative, None)]));
        assert_eq!(request.query.descriptors[0].hits, expected, "{what}");
        assert_eq!((request.hits_addend, &request.own_hits[..]), (of_all, &[own.is_some()][..]), "{what}");
    }
    // An empty wrapper is the number 0, not an absent one.
    let none = read([one(long(3, [])), number(3, 9)].concat());
    assert_eq!((none.query.descriptors[0].hits, none.own_hits), (0, vec![true]));
}

#[test]
fn a_limit_with_an_unknown_unit_is_ignored() {
    for unit in Unit::ALL {
        let known = (1..=7).filter(|number| {
            let over = only(envoys(0, &[(None, false, Some((4, *number)))])).over;
            over == Some(DescriptorLimit { requests_per_unit: 4, unit })
        });
        assert_eq!(known.count(), 1, "{unit:?}");
    }
    for number in [0, 8, 99, -1, i32::MAX, i32::MIN] {
        assert_eq!(only(envoys(0, &[(None, false, Some((4, number)))])).over, None, "{number}");
    }
    let seconds = DescriptorLimit { requests_per_unit: 0, unit: Unit::Second };
    assert_eq!(only(one(long(2, number(2, 1)))).over, Some(seconds), "a number that is not said is 0");
}

#[test]
fn invalid_utf8_is_decoded_lossily() {
    for (bytes, expected) in [
        (&b"\xff"[..], "\u{fffd}"),
        (b"a\xc3", "a\u{fffd}"),
        (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"\xf4\x90\x80\x80b", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}b"),
        (b"\0\r\n", "\0\r\n"),
        ("\u{1f980}é".as_bytes(), "\u{1f980}é"),
        (b"", ""),
    ] {
        let request = read([long(1, bytes), long(2, entry_of(bytes, bytes))].concat());
        assert_eq!(request.query.domain, expected);
        assert_eq!(request.query.descriptors[0].entries, [(expected.to_owned(), expected.to_owned())]);
    }
    let long_value = "é".repeat(100_000);
    assert_eq!(only(one(entry_of("k", &long_value))).entries[0].1, long_value);
    assert_eq!(only(one(long(1, []))).entries, [(String::new(), String::new())], "an entry may be empty");
}

#[test]
fn decoding_stops_one_above_the_maximum() {
    for (sent, kept) in [(0, 0), (1, 1), (16, 16), (17, 17), (18, 17), (40, 17), (100_000, 17)] {
        assert_eq!(only(one(entry_of("k", "v").repeat(sent))).entries.len(), kept, "{sent} entries");
    }
    for (sent, kept) in [(0, 0), (1_000, 1_000), (1_001, 1_001), (1_002, 1_001), (100_000, 1_001)] {
        let request = read(long(2, entry_of("k", "v")).repeat(sent));
        assert_eq!((request.query.descriptors.len(), request.own_hits.len()), (kept, kept), "{sent} descriptors");
    }
}

#[test]
fn descriptors_that_differ_only_beyond_the_maximum_are_different() {
    let entries = |last: &str, count| {
        let mut sent = entry_of("k", "v").repeat(count);
        sent.extend(entry_of("k", last));
        only(one(sent)).entries
    };
    for count in [17, 18, 40] {
        assert_ne!(entries("a", count), entries("b", count), "{count}");
        assert_ne!(entries("a", count), entries("a", count + 1), "{count}");
        assert_eq!(entries("a", count), entries("a", count), "{count}");
    }
    assert_eq!(entries("a", 16)[16].1, "a");
}

#[test]
fn truncated_messages_are_rejected() {
    let descriptor =
        [entry_of("key", "value"), long(2, [number(1, 2), number(2, 1)].concat()), long(3, number(1, 300))];
    let fields = [long(1, "domain"), number(3, 70_000), long(2, descriptor.concat()), long(2, entry_of("a", "b"))];
    let (bytes, mut ends, mut end) = (fields.concat(), vec![0], 0);
    for field in &fields {
        end += field.len();
        ends.push(end);
    }
    for cut in 0..=bytes.len() {
        assert_eq!(!refused(&bytes[..cut]), ends.contains(&cut), "{cut} of {}", bytes.len());
    }
    // Truncated inside a field that is complete itself.
    for part in &descriptor {
        for cut in 1..part.len() {
            assert!(refused(one(&part[..cut])), "{cut} of {part:?}");
        }
    }
    for cut in 1..long(1, "key").len() {
        assert!(refused(one(long(1, &long(1, "key")[..cut]))), "{cut}");
    }
}

#[test]
fn malformed_messages_are_rejected() {
    for (what, bytes) in [
        ("a length past the end", b"\x0a\x05d".to_vec()),
        ("a length beyond any", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec()),
        ("a number that does not end", [b"\x18".to_vec(), vec![0xff; 11]].concat()),
        ("a group that does not end", b"\xa3\x06\x08\x05".to_vec()),
        ("the end of a group", b"\xa4\x06".to_vec()),
        ("a kind that there is not", b"\x0e".to_vec()),
        ("hits that are a text", long(3, "5")),
        ("a descriptor's hits that are a number", one(number(3, 5))),
        ("a limit that is a number", one(number(2, 5))),
        ("no field of an entry", one(long(1, b"\x0f"))),
    ] {
        assert!(refused(&bytes), "{what}");
    }
    let number_for_key = one(long(1, [number(1, 5), long(2, "v")].concat()));
    assert_eq!(only(number_for_key).entries, [(String::new(), "v".to_owned())], "a number for a key is ignored");
    assert_eq!(read([]), RateLimitRequest::default(), "what is missing is for the call to say");
}
