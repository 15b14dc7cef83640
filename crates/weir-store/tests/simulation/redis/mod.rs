//! A Redis in this process, in virtual time: it speaks the protocol and runs the real script.

mod keyspace;
mod msgpack;
mod resp;
mod script;

use std::{cell::RefCell, collections::HashSet, rc::Rc};

use weir_core::{domain::Micros, testing::Random};

pub use self::{
    keyspace::{Keyspace, MAX_LAG},
    resp::take_command,
};
use self::{msgpack::Item, resp::Reply, script::Scripts};

/// What every key begins with.
pub const PREFIX: &[u8] = b"weir:";

/// A reset that the script has carried out.
pub struct Reset {
    pub at: Micros,
    /// The key as the store names it, without the prefix of all keys.
    pub path: Vec<u8>,
    pub subtree: bool,
}

/// A server.
pub struct Redis {
    pub keyspace: Rc<RefCell<Keyspace>>,
    scripts: Scripts,
    /// The scripts that the server has in its cache.
    cached: HashSet<Vec<u8>>,
    /// The resets so far, for the observer.
    pub resets: Vec<Reset>,
    /// The keys of calls that were refused, so that they may be sent again, for the observer.
    pub refused: Vec<Vec<u8>>,
    pub calls: u64,
}

impl Redis {
    pub fn new(random: Random) -> Self {
        let keyspace = Rc::new(RefCell::new(Keyspace::new(random)));
        let scripts = Scripts::new(&keyspace).expect("a Lua");
        let (cached, resets, refused, calls) = Default::default();
        Self { keyspace, scripts, cached, resets, refused, calls }
    }

    /// The process starts anew: what was written after `since` is lost, if that is given.
    pub fn restart(&mut self, since: Option<Option<Micros>>) {
        self.cached.clear();
        if let Some(since) = since {
            self.keyspace.borrow_mut().lose(since);
        }
    }

    /// Runs a command at a moment.
    pub fn run(&mut self, now: Micros, words: &[Vec<u8>], out: &mut Vec<u8>) {
        self.keyspace.borrow_mut().now = now;
        self.reply(words).write(out);
    }

    fn reply(&mut self, words: &[Vec<u8>]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match &words[..] {
            [b"HELLO", ..] => hello(),
            [b"UNWATCH"] => Reply::Simple("OK"),
            [b"PING", number] => Reply::Bulk(number.to_vec()),
            [b"INFO", ..] => Reply::Verbatim("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            [b"SCRIPT", b"LOAD", text] => {
                let sha = self.scripts.compile(text);
                self.cached.insert(sha.clone());
                Reply::Bulk(sha)
            }
            [b"EVALSHA", sha, count, rest @ ..] => {
                let count: usize = std::str::from_utf8(count).expect("a number").parse().expect("a number");
                let (keys, arguments) = rest.split_at(count);
                let owned = |texts: &[&[u8]]| texts.iter().map(|text| text.to_vec()).collect::<Vec<_>>();
                self.script(sha, &owned(keys), &owned(arguments))
            }
            [b"SCAN", _, b"MATCH", pattern, ..] => {
                let beginning = unescaped(pattern);
                let keys = self.keyspace.borrow().keys().into_iter().filter(|key| key.starts_with(&beginning));
                Reply::Array(vec![Reply::text("0"), Reply::Array(keys.map(Reply::Bulk).collect())])
            }
            [b"UNLINK", key] => Reply::Number(i64::from(self.keyspace.borrow_mut().remove(key))),
            _ => panic!("the simulated Redis does not know {}", String::from_utf8_lossy(&words.join(&b' '))),
        }
    }

    fn script(&mut self, sha: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
        if !self.cached.contains(sha) {
            self.refused.extend(keys.iter().cloned());
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
        }
        self.calls += 1;
        self.note_reset(&keys[0], &arguments[0]);
        match self.scripts.run(sha, keys, arguments) {
            Ok(reply) => Reply::Bulk(reply),
            Err(error) => panic!("the script failed: {error}"),
        }
    }

    fn note_reset(&mut self, key: &[u8], argument: &[u8]) {
        const RESET: Item = Item::Number(1.0);
        let call = Item::all(argument).unwrap_or_default();
        if let Some([_, _, RESET, Item::Text(rest), subtree, ..]) = call.first().and_then(Item::items) {
            let path = [&key[PREFIX.len()..], rest].concat();
            let at = self.keyspace.borrow().now;
            self.resets.push(Reset { at, path, subtree: *subtree == Item::Number(1.0) });
        }
    }
}

fn hello() -> Reply {
    let text = Reply::text;
    Reply::Map(vec![
        ("server", text("redis")),
        ("version", text("7.2.0")),
        ("proto", Reply::Number(3)),
        ("id", Reply::Number(1)),
        ("mode", text("standalone")),
        ("role", text("master")),
        ("modules", Reply::Array(Vec::new())),
    ])
}

/// The beginning that a pattern matches.
fn unescaped(pattern: &[u8]) -> Vec<u8> {
    let mut bytes = pattern.iter();
    let mut beginning = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => beginning.extend(bytes.next()),
            b'*' => break,
            byte => beginning.push(*byte),
        }
    }
    beginning
}
