//! What servers of a shared store say.

use std::io::Cursor;

use futures_util::FutureExt;
use tokio::io::{join, sink};
use weir::{
    domain::aggregate,
    store::{
        Failure,
        redis::{
            connection::{Connection, Reply},
            greeting::{Greeting, Mode},
            reply::{Answers, MAX_TIME},
            slots::{self, SLOTS, SlotMap},
        },
        url::Address,
    },
};

/// Levels of the parts that are answered, and whether they tell what they have written.
const PARTS: [(u32, bool); 4] = [(1, false), (2, true), (0, false), (16, false)];

/// Bytes are replies one after the other until they are none, and each is understood or told to be something else.
pub fn reply(bytes: &[u8]) {
    for reply in replies(bytes) {
        answers(&reply);
        map(&reply);
        if let Ok(greeting) = Greeting::read(&reply) {
            let _ = greeting.check(&asked(), Mode::Standalone, true);
        }
        if let Reply::Error(text) = &reply {
            // What is no refusal for sure is never sent again.
            let failure = Failure::of_server(text);
            assert_eq!(failure.may_be_sent_again(), failure.refusal().is_some(), "{text}");
            let _ = slots::redirect(text, &asked());
        }
    }
}

/// What the script answers, as it stands within a reply.
pub fn answer(bytes: &[u8]) {
    answers(&Reply::BulkString(bytes.to_vec()));
}

/// Replies to `CLUSTER SLOTS` become maps, whose slots each have one owner.
pub fn cluster_slots(bytes: &[u8]) {
    replies(bytes).iter().for_each(map);
}

fn asked() -> Address {
    Address::Tcp { host: "192.0.2.1".to_owned(), port: 6379 }
}

fn replies(bytes: &[u8]) -> Vec<Reply> {
    let mut connection = Connection::new(Box::new(join(Cursor::new(bytes.to_vec()), sink())));
    let mut replies = Vec::new();
    while let Ok(reply) = connection.receive().now_or_never().expect("all is there") {
        replies.push(reply);
    }
    assert!(!connection.is_usable(), "once it has failed it is not used");
    replies
}

fn answers(reply: &Reply) {
    let _ = Answers::reset(reply);
    let Ok(mut answers) = Answers::new(reply) else { return };
    for (levels, tells) in PARTS {
        let Ok(decided) = answers.next(levels, tells) else { continue };
        assert_eq!(decided.decisions.len(), levels as usize);
        let all = aggregate(decided.decisions.iter().map(|decision| (decision, false)));
        for time in [decided.at, all.reset_after, all.wait, all.retry_after.unwrap_or_default()] {
            assert!((0..=MAX_TIME).contains(&time), "{decided:?}");
        }
    }
}

fn map(reply: &Reply) {
    let Some(ranges) = slots::ranges(reply, &asked()) else { return };
    let mut map = SlotMap::default();
    for (first, last, address) in &ranges {
        map.give(*first..=*last, address, || address.clone().into());
    }
    let owners = (0..=u16::MAX).filter_map(|slot| map.owner(slot)).collect::<Vec<_>>();
    assert_eq!(owners.len(), map.covered());
    assert!(owners.len() <= SLOTS && owners.iter().all(|owner| map.at(owner).is_some()));
}
