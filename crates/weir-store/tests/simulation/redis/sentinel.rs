//! Sentinels: the master that each of them names, and announcements of promotions.

use super::{PORT, Redis, Role, host, resp::Reply};

/// The channel on which Sentinels announce the promotion of a replica.
const CHANNEL: &str = "+failover-state-wait-promotion";
pub const MASTER: &str = "main";

impl Redis {
    pub fn named_by(&self, sentinel: usize) -> Reply {
        let Role::Sentinel(master) = self.servers[sentinel].role else { panic!("no Sentinel is asked") };
        Reply::Array(vec![Reply::text(&host(master)), Reply::text(&PORT.to_string())])
    }

    pub fn sentinels(&self) -> impl Iterator<Item = usize> + use<> {
        let is_sentinel = |(_, server): &(usize, &super::Server)| matches!(server.role, Role::Sentinel(_));
        let sentinels: Vec<_> = self.servers.iter().enumerate().filter(is_sentinel).map(|(index, _)| index).collect();
        sentinels.into_iter()
    }
}

/// Encodes the message to subscribers when `to` is promoted in place of `from`.
pub fn announcement(from: usize, to: usize) -> Vec<u8> {
    let (from, to) = (host(from), host(to));
    let text = format!("slave {to}:{PORT} {to} {PORT} @ {MASTER} {from} {PORT}");
    let mut out = Vec::new();
    Reply::Push(vec![Reply::text("message"), Reply::text(CHANNEL), Reply::text(&text)]).write(&mut out);
    out
}
