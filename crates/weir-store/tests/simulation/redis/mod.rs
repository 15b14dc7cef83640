//! Redis in this process, in virtual time: servers that speak the protocol and run the real script, Sentinels, and
//! Clusters.

mod accounts;
mod cluster;
mod keyspace;
mod msgpack;
mod resp;
mod script;
mod sentinel;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    rc::Rc,
};

use rmpv::Value;
use weir_core::{domain::Micros, testing::Random};

pub use self::{
    cluster::Migration,
    keyspace::{Granted, Held, Keyspace, MAX_LAG},
    resp::take_command,
    sentinel::{MASTER, announcement},
};
use self::{cluster::Slots, resp::Reply, script::Scripts};
use crate::topology::Topology;

/// The prefix of every key.
pub const PREFIX: &[u8] = b"weir:";

const READONLY: &str = "READONLY You can't write against a read only replica.";

/// A reset that the script has executed.
pub struct Reset {
    pub at: Micros,
    /// The key as the store encodes it, without the common prefix.
    pub path: Vec<u8>,
    pub subtree: bool,
}

/// The current role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Master,
    Replica,
    /// A Sentinel that names this server as the master.
    Sentinel(usize),
}

pub struct Server {
    pub role: Role,
    pub is_up: bool,
    /// Whether the server, while down, ignores connection attempts instead of refusing them.
    pub is_silent: bool,
    /// The time until which commands are delayed.
    pub held_until: Micros,
    /// The script cache.
    cached: HashSet<Vec<u8>>,
}

impl Server {
    fn new(role: Role) -> Self {
        Self { role, is_up: true, is_silent: false, held_until: 0, cached: HashSet::new() }
    }
}

/// A server's state of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub server: usize,
    /// Whether the next command may use a slot that is being imported (ASKING).
    is_asking: bool,
    pub is_subscribed: bool,
}

impl Session {
    pub fn at(server: usize) -> Self {
        Self { server, is_asking: false, is_subscribed: false }
    }
}

pub struct Redis {
    pub keyspace: Rc<RefCell<Keyspace>>,
    pub servers: Vec<Server>,
    pub slots: Option<Slots>,
    scripts: Scripts,
    /// The resets so far, for the observer.
    pub resets: Vec<Reset>,
    /// The keys of refused calls, which may be sent again, for the observer.
    pub refused: Vec<Vec<u8>>,
    /// Times of calls that superseded servers executed, with the servers, for the observer.
    pub superseded: BTreeMap<Micros, usize>,
    pub calls: u64,
}

impl Redis {
    pub fn new(topology: Topology, random: Random) -> Self {
        let roles = topology.roles();
        let keyspace = Rc::new(RefCell::new(Keyspace::new(roles.len(), random)));
        let scripts = Scripts::new(&keyspace).expect("a Lua");
        let slots = topology.shards().map(|shards| Slots::new(shards, roles.len()));
        let servers = roles.into_iter().map(Server::new).collect();
        let (resets, refused, superseded, calls) = Default::default();
        Self { keyspace, servers, slots, scripts, resets, refused, superseded, calls }
    }

    /// Restarts the process of a server. Writes after `since`, if given, are lost.
    pub fn restart(&mut self, server: usize, since: Option<Option<Micros>>) {
        self.servers[server].cached.clear();
        if let Some(since) = since {
            self.keyspace.borrow_mut().lose(server, since);
        }
    }

    /// Whether no server is down or superseded.
    pub fn is_well(&self) -> bool {
        let keyspace = self.keyspace.borrow();
        let is_well = |(index, server): (usize, &Server)| {
            server.is_up && !(server.role == Role::Master && keyspace.is_superseded(index))
        };
        self.servers.iter().enumerate().all(is_well)
    }

    /// Returns the first write that violates an invariant.
    pub fn violation(&mut self) -> Result<(), String> {
        self.keyspace.borrow_mut().violation.take().map_or(Ok(()), Err)
    }

    /// Runs a command of a connection at a given time.
    pub fn run(&mut self, now: Micros, session: &mut Session, words: &[Vec<u8>], out: &mut Vec<u8>) {
        let mut keyspace = self.keyspace.borrow_mut();
        (keyspace.now, keyspace.current) = (now, session.server);
        drop(keyspace);
        self.reply(session, words).write(out);
    }

    fn reply(&mut self, session: &mut Session, words: &[Vec<u8>]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let is_asking = std::mem::take(&mut session.is_asking);
        match &words[..] {
            [b"HELLO", ..] => self.hello(session.server),
            [b"UNWATCH"] => Reply::Simple("OK"),
            [b"PING", number] => Reply::Bulk(number.to_vec()),
            [b"INFO", ..] => Reply::Verbatim("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            [b"SCRIPT", b"LOAD", text] => {
                let sha = self.scripts.compile(text);
                self.servers[session.server].cached.insert(sha.clone());
                Reply::Bulk(sha)
            }
            [b"EVALSHA", sha, count, rest @ ..] => {
                let count: usize = std::str::from_utf8(count).expect("a number").parse().expect("a number");
                let (keys, arguments) = rest.split_at(count);
                let owned = |texts: &[&[u8]]| texts.iter().map(|text| text.to_vec()).collect::<Vec<_>>();
                let (keys, arguments) = (owned(keys), owned(arguments));
                match self.elsewhere(session.server, &keys[0], is_asking) {
                    Some(error) => self.refuse(&keys, error),
                    None => self.script(session.server, sha, &keys, &arguments),
                }
            }
            [b"SCAN", _, b"MATCH", pattern, ..] => {
                let beginning = unescaped(pattern);
                let keys = self.keyspace.borrow().keys_of(session.server);
                let keys = keys.into_iter().filter(|key| key.starts_with(&beginning));
                Reply::Array(vec![Reply::text("0"), Reply::Array(keys.map(Reply::Bulk).collect())])
            }
            [b"UNLINK", key] => match self.elsewhere(session.server, key, is_asking) {
                Some(error) => Reply::Error(error),
                None if self.servers[session.server].role == Role::Replica => Reply::Error(READONLY.to_owned()),
                None => Reply::Number(i64::from(self.keyspace.borrow_mut().remove(key))),
            },
            [b"ASKING"] => {
                session.is_asking = true;
                Reply::Simple("OK")
            }
            [b"CLUSTER", b"SLOTS"] => self.slots.as_ref().expect("a Cluster").told_by(session.server),
            [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", ..] => self.named_by(session.server),
            [b"SUBSCRIBE", channel] => {
                session.is_subscribed = true;
                Reply::Push(vec![Reply::text("subscribe"), Reply::Bulk(channel.to_vec()), Reply::Number(1)])
            }
            _ => panic!("the simulated Redis does not know {}", String::from_utf8_lossy(&words.join(&b' '))),
        }
    }

    /// Returns the error that redirects a command for this key to another server.
    fn elsewhere(&self, server: usize, key: &[u8], is_asking: bool) -> Option<String> {
        let has_key = || self.keyspace.borrow_mut().get(key).is_some();
        let is_master = self.servers[server].role == Role::Master;
        self.slots.as_ref()?.elsewhere(server, is_master, key, is_asking, has_key)
    }

    fn refuse(&mut self, keys: &[Vec<u8>], error: String) -> Reply {
        self.refused.extend(keys.iter().cloned());
        Reply::Error(error)
    }

    fn script(&mut self, server: usize, sha: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
        if !self.servers[server].cached.contains(sha) {
            return self.refuse(keys, "NOSCRIPT No matching script. Please use EVAL.".to_owned());
        }
        self.calls += 1;
        if self.servers[server].role == Role::Replica {
            // Writes fail, so nothing is executed.
            self.refused.extend(keys.iter().cloned());
            self.keyspace.borrow_mut().is_read_only = true;
        } else if self.keyspace.borrow().is_superseded(server) {
            self.superseded.insert(self.keyspace.borrow().now, server);
        }
        let reply = self.scripts.run(sha, keys, arguments);
        let is_read_only = std::mem::take(&mut self.keyspace.borrow_mut().is_read_only);
        match reply {
            Ok(reply) => {
                self.note_reset(&keys[0], &arguments[0]);
                Reply::Bulk(reply)
            }
            Err(_) if is_read_only => Reply::Error(READONLY.to_owned()),
            Err(error) => panic!("the script failed: {error}"),
        }
    }

    fn note_reset(&mut self, key: &[u8], argument: &[u8]) {
        const RESET: u64 = 1;
        let call = msgpack::all(argument).unwrap_or_default();
        if let Some([_, _, task, rest, subtree, ..]) = call.first().and_then(Value::as_array).map(Vec::as_slice)
            && task.as_u64() == Some(RESET)
            && let Some(rest) = rest.as_slice()
        {
            let path = [&key[PREFIX.len()..], rest].concat();
            let at = self.keyspace.borrow().now;
            self.resets.push(Reset { at, path, subtree: subtree.as_u64() == Some(1) });
        }
    }

    fn hello(&self, server: usize) -> Reply {
        let text = Reply::text;
        let (mode, role) = match self.servers[server].role {
            Role::Master => ("standalone", Some("master")),
            Role::Replica => ("standalone", Some("replica")),
            Role::Sentinel(_) => ("sentinel", None),
        };
        let mode = if self.slots.is_some() { "cluster" } else { mode };
        let fields = [("server", "redis"), ("version", "7.2.0"), ("mode", mode)].into_iter();
        let fields = fields.chain(role.map(|role| ("role", role)));
        let fields = fields.map(|(name, value)| (name, text(value)));
        let numbers = [("proto", Reply::Number(3)), ("id", Reply::Number(1)), ("modules", Reply::Array(Vec::new()))];
        Reply::Map(fields.chain(numbers).collect())
    }
}

/// Returns the host name of a server.
pub fn host(server: usize) -> String {
    format!("n{server}")
}

pub const PORT: u16 = 6379;

/// Returns the server with this host name.
pub fn server_at(host: &str) -> usize {
    host.trim_start_matches('n').parse().expect("the number of a server")
}

/// Returns the literal prefix of a pattern.
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
