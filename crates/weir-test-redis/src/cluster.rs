//! A Cluster: its masters and replicas, slots that move, a master that dies.

use std::process::Command;

use crc16::{State, XMODEM};

use super::{Options, Reply, Server, eventually, sentinel::follows};

/// Keys that one `MIGRATE` moves.
const KEYS_AT_ONCE: &str = "100";

/// What a Cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Masters; at least three.
    pub masters: usize,
    /// Replicas of each.
    pub replicas: usize,
    /// Lines of every node's `redis.conf`.
    pub settings: Vec<(String, String)>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { masters: 3, replicas: 0, settings: Vec::new() }
    }
}

/// A Cluster. Nodes are known by their place in `nodes`.
pub struct Cluster {
    /// All nodes. At first the masters come before the replicas.
    pub nodes: Vec<Server>,
    ids: Vec<String>,
}

/// What one node says of another.
struct Line {
    id: String,
    is_master: bool,
    master: String,
    slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// Starts it, and waits until every node is content and every replica follows.
    pub fn start(options: &ClusterOptions) -> Self {
        let mut node = Options::node().set("cluster-node-timeout", "1000").set("cluster-replica-validity-factor", "0");
        for (name, value) in &options.settings {
            node = node.set(name, value);
        }
        let count = options.masters * (1 + options.replicas);
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

    /// Its form of `store.url`, naming two of the nodes; without user and password.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().take(2).map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The slot of a key.
    pub fn slot(&self, key: &[u8]) -> u16 {
        let after = |text: &[u8], brace| text.iter().position(|byte| *byte == brace);
        let tag = after(key, b'{').map(|at| &key[at + 1..]).and_then(|rest| Some(&rest[..after(rest, b'}')?]));
        State::<XMODEM>::calculate(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % 16_384
    }

    /// The node that serves a slot, as the nodes that live say.
    pub fn owner(&self, slot: u16) -> usize {
        let serves = |line: &Line| line.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        eventually("a slot's owner", || self.find(serves))
    }

    /// The nodes that serve slots.
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

    /// Begins to move a slot: from here on its owner answers ASK for keys it does not have.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.owner(slot);
        let migration = Migration { cluster: self, slot, from, to };
        if from != to {
            migration.set(to, &["IMPORTING", &self.ids[from]]);
            migration.set(from, &["MIGRATING", &self.ids[to]]);
        }
        migration
    }

    /// Kills a master (SIGKILL) and waits until a replica of it serves its slots and all who live agree. Tells which.
    pub fn fail_over(&mut self, master: usize) -> usize {
        let id = self.ids[master].clone();
        let lines = eventually("a node that answers", || self.table());
        let replicas: Vec<_> = lines.iter().filter(|line| line.master == id).map(|line| line.id.clone()).collect();
        self.nodes[master].kill();
        // Which slots it serves, a node may not know yet that have moved just before.
        let takes_over = |line: &Line| replicas.contains(&line.id) && line.is_master && !line.slots.is_empty();
        let new = eventually("a replica takes over", || self.find(takes_over));
        self.wait_until_ok(self.nodes.len());
        new
    }

    /// Waits until every node that lives knows `known` nodes and finds all slots served.
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

    /// The node with this line, as every node that lives says.
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

/// A slot on its way.
pub struct Migration<'c> {
    cluster: &'c Cluster,
    slot: u16,
    /// Where it was.
    pub from: usize,
    /// Where it goes.
    pub to: usize,
}

impl Migration<'_> {
    /// Moves up to `most` of the slot's keys, and tells how many.
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

    /// Gives the slot to its new owner; its keys must have moved.
    pub fn finish(self) {
        let Self { cluster, from, to, .. } = self;
        let others = cluster.masters().into_iter().filter(|node| *node != from && *node != to);
        for node in [to, from].into_iter().chain(others) {
            self.set(node, &["NODE", &cluster.ids[to]]);
        }
        assert_eq!(cluster.owner(self.slot), to);
    }

    /// Brings back the keys that have moved, and leaves the slot where it was. Meanwhile a key may be in neither place,
    /// so no client may ask for it.
    pub fn give_back(self) {
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

/// `id address flags master ping pong epoch link slots…`; slots on their way stand in brackets.
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
