//! Replies of the servers of a shared store.

use weir_core::domain::aggregate;
use weir_store::{
    Failure,
    redis::{
        command::error_text,
        hello::{Hello, ServerMode},
        reply::{AnswerFields, Answers, MAX_TIME},
        slots::{self, SLOTS, SlotMap},
    },
    url::Address,
};

use deadpool_redis::redis::{Parser, Value};

/// Number of levels of each part of an answer, and the kind of its other content.
const PARTS: [(u32, AnswerFields); 6] = [
    (1, AnswerFields::Decisions),
    (2, AnswerFields::Changes),
    (0, AnswerFields::Decisions),
    (3, AnswerFields::LeftCharged),
    (4, AnswerFields::Reservation),
    (16, AnswerFields::Decisions),
];

/// The input is a sequence of replies. Each one is parsed or reported as unexpected.
pub fn reply(bytes: &[u8]) {
    for reply in replies(bytes) {
        answers(&reply);
        map(&reply);
        if let Ok(hello) = Hello::read(&reply) {
            let _ = hello.check(ServerMode::Standalone, true);
        }
        if let Value::ServerError(error) = &reply {
            // A command that the server may have executed is never sent again.
            let text = error_text(error);
            let failure = Failure::of_server(&text);
            assert_eq!(failure.may_be_sent_again(), failure.error_code().is_some(), "{text}");
            let _ = slots::redirect(&text, &asked());
        }
    }
}

/// The answer of the script, inside a reply.
pub fn answer(bytes: &[u8]) {
    answers(&Value::BulkString(bytes.to_vec()));
}

/// Replies to `CLUSTER SLOTS` become maps in which each slot has one owner.
pub fn cluster_slots(bytes: &[u8]) {
    replies(bytes).iter().for_each(map);
}

fn asked() -> Address {
    Address::Tcp { host: "192.0.2.1".to_owned(), port: 6379 }
}

fn replies(mut bytes: &[u8]) -> Vec<Value> {
    let mut parser = Parser::new();
    std::iter::from_fn(|| parser.parse_value(&mut bytes).ok()).collect()
}

fn answers(reply: &Value) {
    let _ = Answers::reset(reply);
    let Ok(mut answers) = Answers::new(reply) else { return };
    for (levels, tells) in PARTS {
        let Ok(decided) = answers.next(levels, tells, levels % 2 == 0) else { continue };
        assert_eq!(decided.decisions.len(), levels as usize);
        let all = aggregate(decided.decisions.iter().map(|decision| (decision, false))).decision;
        let optional = [all.retry_after, all.next_after].map(Option::unwrap_or_default);
        for time in [decided.at, all.reset_after, all.wait].into_iter().chain(optional) {
            assert!((0..=MAX_TIME).contains(&time), "{decided:?}");
        }
    }
}

fn map(reply: &Value) {
    let Some(ranges) = slots::ranges(reply, &asked()) else { return };
    let mut map = SlotMap::default();
    for (first, last, address) in &ranges {
        map.give(*first..=*last, address, || address.clone().into());
    }
    let owners = (0..=u16::MAX).filter_map(|slot| map.owner(slot)).collect::<Vec<_>>();
    assert_eq!(owners.len(), map.covered());
    assert!(owners.len() <= SLOTS && owners.iter().all(|owner| map.at(owner).is_some()));
}
