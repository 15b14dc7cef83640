//! A Redis Cluster: masters and replicas, slot migrations, failovers.

use std::{process::Command, time::Duration};

use crc16::{State, XMODEM};

use super::{Options, Reply, Server, eventually, sentinel::follows};

/// Number of keys that one `MIGRATE` moves.
const KEYS_AT_ONCE: &str = "100";

/// Number of masters, the least that a Cluster may have.
const MASTERS: usize = 3;

/// The size and settings of a Cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Number of replicas of each master.
    pub replicas: usize,
    /// Settings of every node's `redis.conf`.
    pub settings: Vec<(String, String)>,
}

/// A running Cluster. Nodes are identified by their index in `nodes`.
pub struct Cluster {
    /// All nodes. After the start, masters come before replicas.
    pub nodes: Vec<Server>,
    ids: Vec<String>,
}

/// One line of `CLUSTER NODES`.
struct Line {
    id: String,
    is_master: bool,
    master: String,
    slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// Starts a Cluster, and waits until every node reports it as ok and every replica is in sync.
    pub fn start(options: &ClusterOptions) -> Self {
        // Without replicas there is no failover to wait for, but on a busy machine a node may not run for a second.
        let timeout_ms = if options.replicas > 0 { "1000" } else { "60000" };
        let mut node =
            Options::node().set("cluster-node-timeout", timeout_ms).set("cluster-replica-validity-factor", "0");
        for (name, value) in &options.settings {
            node = node.set(name, value);
        }
        let count = MASTERS * (1 + options.replicas);
        let nodes: Vec<_> = (0..count).map(|_| Server::start(node.clone())).collect();
        create(&nodes, options.replicas);
        let ids = nodes.iter().map(|node| node.cli(&["CLUSTER", "MYID"])).collect();
        let cluster = Self { nodes, ids };
        cluster.wait_until_ok(count);
        for node in cluster.nodes.iter().filter(|node| node.info("role").as_deref() == Ok("slave")) {
            follows(node);
        }
        cluster
    }

    /// Returns its `store.url`, with two of the nodes, without user and password.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().take(2).map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Returns the hash slot of a key.
    pub fn slot(&self, key: &[u8]) -> u16 {
        let after = |text: &[u8], brace| text.iter().position(|byte| *byte == brace);
        let tag = after(key, b'{').map(|at| &key[at + 1..]).and_then(|rest| Some(&rest[..after(rest, b'}')?]));
        State::<XMODEM>::calculate(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % 16_384
    }

    /// Returns the node that serves a slot, once all running nodes agree.
    pub fn owner(&self, slot: u16) -> usize {
        let serves = |line: &Line| line.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        eventually("a slot's owner", || self.find(serves))
    }

    /// Returns the nodes that serve slots.
    pub fn masters(&self) -> Vec<usize> {
        let lines = eventually("a node that answers", || self.table());
        lines.iter().filter(|line| !line.slots.is_empty()).filter_map(|line| self.by_id(&line.id)).collect()
    }

    /// Moves a slot with its keys.
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        while migration.move_some(KEYS_AT_ONCE) > 0 {}
        migration.finish();
    }

    /// Begins the migration of a slot: from now on its owner answers ASK for keys that it does not have.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.owner(slot);
        let migration = Migration { cluster: self, slot, from, to };
        if from != to {
            migration.set(to, &["IMPORTING", &self.ids[from]]);
            migration.set(from, &["MIGRATING", &self.ids[to]]);
        }
        migration
    }

    /// Kills a master (SIGKILL) and waits until one of its replicas serves its slots and all running nodes agree.
    /// Returns the new master.
    pub fn fail_over(&mut self, master: usize) -> usize {
        let id = self.ids[master].clone();
        let lines = eventually("a node that answers", || self.table());
        let replicas: Vec<_> = lines.iter().filter(|line| line.master == id).map(|line| line.id.clone()).collect();
        self.nodes[master].kill();
        // The exact slots are not compared: a node may not know yet of those that have moved just before.
        let takes_over = |line: &Line| replicas.contains(&line.id) && line.is_master && !line.slots.is_empty();
        let new = eventually("a replica takes over", || self.find(takes_over));
        self.wait_until_ok(self.nodes.len());
        new
    }

    /// Waits until every running node knows `known` nodes and finds all slots served.
    pub fn wait_until_ok(&self, known: usize) {
        for node in &self.nodes {
            eventually("the Cluster is content", || {
                if !node.is_running() {
                    return Ok(());
                }
                let info = node.try_cli(&["CLUSTER", "INFO"])?;
                let content =
                    info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{known}\r"));
                content.then_some(()).ok_or(info)
            });
        }
    }

    /// Returns the node whose line matches, if all running nodes agree.
    fn find(&self, is_it: impl Fn(&Line) -> bool) -> Result<usize, String> {
        let mut found = None;
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            let line = table_of(node)?.into_iter().find(&is_it).ok_or("none")?;
            let index = self.by_id(&line.id).ok_or("not ours")?;
            if *found.get_or_insert(index) != index {
                return Err("nodes do not agree".to_owned());
            }
        }
        found.ok_or_else(|| "no node lives".to_owned())
    }

    fn table(&self) -> Result<Vec<Line>, String> {
        let node = self.nodes.iter().find(|node| node.is_running()).ok_or("no node lives")?;
        table_of(node)
    }

    fn by_id(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|own| own == id)
    }
}

/// The migration of a slot.
pub struct Migration<'c> {
    cluster: &'c Cluster,
    slot: u16,
    /// The old owner.
    pub from: usize,
    /// The new owner.
    pub to: usize,
}

impl Migration<'_> {
    /// Moves at most `most` of the slot's keys, and returns their number.
    pub fn move_some(&self, most: &str) -> usize {
        let from = &self.cluster.nodes[self.from];
        let slot = self.slot.to_string();
        let Reply::Array(keys) = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, most]) else { panic!("no keys") };
        if keys.is_empty() || self.from == self.to {
            return 0;
        }
        let port = self.cluster.nodes[self.to].port().to_string();
        let mut command: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
        command.extend(keys.iter().map(|key| match key {
            Reply::BulkString(key) => key.as_slice(),
            other => panic!("{other:?} is no key"),
        }));
        from.command(&command);
        keys.len()
    }

    /// Assigns the slot to its new owner. Its keys must have moved.
    pub fn finish(self) {
        self.assign([self.to, self.from], Duration::ZERO);
    }

    /// As [`Self::finish`], but the old owner knows `ahead` of the new one: meanwhile each names the other one.
    pub fn finish_source_first(self, ahead: Duration) {
        self.assign([self.from, self.to], ahead);
    }

    fn assign(&self, [first, second]: [usize; 2], ahead: Duration) {
        let Self { cluster, slot, from, to } = self;
        let others = cluster.masters().into_iter().filter(|node| node != from && node != to);
        self.set(first, &["NODE", &cluster.ids[*to]]);
        std::thread::sleep(ahead);
        for node in std::iter::once(second).chain(others) {
            self.set(node, &["NODE", &cluster.ids[*to]]);
        }
        assert_eq!(cluster.owner(*slot), *to);
    }

    /// Moves the keys back, and leaves the slot with its old owner. Meanwhile a key may be on neither node, so no
    /// client may request it.
    pub fn move_back(self) {
        self.set(self.from, &["STABLE"]);
        let back = Migration { cluster: self.cluster, slot: self.slot, from: self.to, to: self.from };
        while back.move_some(KEYS_AT_ONCE) > 0 {}
        self.set(self.to, &["STABLE"]);
    }

    fn set(&self, node: usize, words: &[&str]) {
        let slot = self.slot.to_string();
        self.cluster.nodes[node].cli(&[&["CLUSTER", "SETSLOT", &slot], words].concat());
    }
}

fn create(nodes: &[Server], replicas: usize) {
    let mut command = Command::new("redis-cli");
    command.args(["--cluster", "create"]).args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
    command.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes", "--user", "harness", "--pass", "-"]);
    let run = command.output().expect("redis-cli is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(run.status.success(), "{}{}", text(&run.stdout), text(&run.stderr));
}

fn table_of(node: &Server) -> Result<Vec<Line>, String> {
    node.try_cli(&["CLUSTER", "NODES"])?.lines().map(|line| parsed(line).ok_or_else(|| line.to_owned())).collect()
}

/// Parses `id address flags master ping pong epoch link slots…`; migrating slots are in brackets and skipped.
fn parsed(line: &str) -> Option<Line> {
    let mut words = line.split(' ');
    let (id, _address, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let slots = words.skip(4).filter(|slots| !slots.starts_with('[')).map(|slots| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    Some(Line {
        id: id.to_owned(),
        is_master: flags.split(',').any(|flag| flag == "master"),
        master: master.to_owned(),
        slots: slots.collect::<Option<_>>()?,
    })
}
