//! A master with a replica, monitored by Sentinels.

use super::{Options, Server, eventually};

/// The name of the master in Sentinel.
pub(crate) const MASTER: &str = "mymaster";

/// Number of Sentinels, and how many must agree.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// Two data servers, one of which is the master, and their Sentinels.
pub struct Sentinels {
    /// The data servers.
    pub data: [Server; 2],
    /// The Sentinels.
    pub sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts all servers, and waits until the Sentinels know each other and the replica is in sync. A server that does
    /// not answer for `down_after_ms` is down for a Sentinel.
    pub fn start(down_after_ms: u32) -> Self {
        let master = Server::start(Options::port());
        let replica = Server::start(Options::port().set("replicaof", &format!("127.0.0.1 {}", master.port())));
        follows(&replica);
        let watching = Options::sentinel()
            .set("sentinel monitor", &format!("{MASTER} 127.0.0.1 {} {QUORUM}", master.port()))
            .set("sentinel down-after-milliseconds", &format!("{MASTER} {down_after_ms}"))
            .set("sentinel failover-timeout", &format!("{MASTER} 1000"));
        let sentinels = (0..SENTINELS).map(|_| Server::start(watching.clone())).collect();
        let all = Self { data: [master, replica], sentinels };
        for sentinel in &all.sentinels {
            // By default Sentinels poll every ten seconds, which is long for a test.
            sentinel.cli(&["SENTINEL", "DEBUG", "INFO-PERIOD", "300", "PUBLISH-PERIOD", "300", "ASK-PERIOD", "300"]);
        }
        for sentinel in &all.sentinels {
            eventually("Sentinels know of each other and the replica", || {
                let seen = |name| field(sentinel, name);
                let (others, replicas) = (seen("num-other-sentinels")?, seen("num-slaves")?);
                let known = others == (SENTINELS - 1).to_string() && replicas == "1";
                known.then_some(()).ok_or_else(|| format!("{others} others, {replicas} replicas"))
            });
        }
        all
    }

    /// Returns its `store.url`, without user and password.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redis-sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// Returns the data server that the Sentinels report as master.
    pub fn master(&self) -> usize {
        let port = master_port(&self.sentinels[0]).expect("a Sentinel answers");
        self.data.iter().position(|server| server.port().to_string() == port).expect("one of ours")
    }

    /// Kills the master, and waits until the replica has taken over and every Sentinel reports it. Returns the killed
    /// server.
    pub fn fail_over(&mut self) -> usize {
        let old = self.master();
        self.data[old].kill();
        self.wait_for_master(1 - old);
        old
    }

    /// Makes the Sentinels swap the roles while both servers run: the old master becomes a read-only replica. Returns
    /// the old master.
    pub fn switch(&self) -> usize {
        let old = self.promote_the_other();
        eventually("the old master is a replica", || self.data[old].info("role").and_then(|role| is(&role, "slave")));
        old
    }

    /// Like [`Self::switch`], but the old master remains a master for minutes; clients must not connect to it.
    pub fn switch_with_stale_master(&self) -> usize {
        for sentinel in &self.sentinels {
            // Sentinels wait for four publish periods before they reconfigure it.
            sentinel.cli(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "60000"]);
        }
        self.promote_the_other()
    }

    fn promote_the_other(&self) -> usize {
        let old = self.master();
        eventually("a failover begins", || self.sentinels[0].try_cli(&["SENTINEL", "FAILOVER", MASTER]));
        self.wait_for_master(1 - old);
        old
    }

    fn wait_for_master(&self, new: usize) {
        let server = &self.data[new];
        eventually("the replica is promoted", || server.info("role").and_then(|role| is(&role, "master")));
        for sentinel in &self.sentinels {
            eventually("every Sentinel names the new master", || {
                master_port(sentinel).and_then(|port| is(&port, &server.port().to_string()))
            });
        }
    }
}

fn master_port(sentinel: &Server) -> Result<String, String> {
    let address = sentinel.try_cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?;
    Ok(address.lines().nth(1).unwrap_or_default().to_owned())
}

/// Returns a field of a Sentinel's information about the master.
fn field(sentinel: &Server, name: &str) -> Result<String, String> {
    let fields = sentinel.try_cli(&["SENTINEL", "MASTER", MASTER])?;
    let mut fields = fields.lines().skip_while(|line| *line != name);
    fields.nth(1).map(str::to_owned).ok_or_else(|| format!("no {name}"))
}

/// Waits until a replica is in sync with its master.
pub(super) fn follows(replica: &Server) {
    eventually("the replica follows", || replica.info("master_link_status").and_then(|status| is(&status, "up")));
}

pub(super) fn is(seen: &str, expected: &str) -> Result<(), String> {
    if seen == expected { Ok(()) } else { Err(seen.to_owned()) }
}
