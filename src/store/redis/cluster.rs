//! The masters of a Cluster: which one to ask, and where to go when it is another one.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use super::{
    connection::{Connection, Reply},
    encode::Part,
    node::Node,
    reply::Decided,
    retry::Retry,
    slots::{self, SlotMap},
};
use crate::store::{Failure, failure::RefusalCode, url::Address};

/// Times that one request is sent elsewhere.
const MAX_REDIRECTS: u32 = 8;
/// The least time between two looks at the map.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How often to look while something is wrong with a master.
const LOOK_WHEN_DOWN: Duration = Duration::from_millis(200);

/// Makes what a Cluster is asked through.
pub trait Connect: Send + Sync + 'static {
    /// The node at an address, where these slots are to be found.
    fn node(&self, address: &Address, slot: u16) -> Node;

    /// A connection to any node, to ask it about the others.
    fn connection(&self, address: &Address) -> impl Future<Output = Result<Connection, Failure>> + Send;
}

/// A Cluster.
pub struct Cluster<C: Connect> {
    shared: Arc<Shared<C>>,
    task: JoinHandle<()>,
}

struct Shared<C> {
    connect: C,
    seeds: Vec<Address>,
    map: ArcSwap<SlotMap<Node>>,
    /// One change of the map at a time.
    change: Mutex<()>,
    outdated: Notify,
}

impl<C: Connect> Cluster<C> {
    /// A Cluster that is found through `seeds`; a task on `runtime` keeps its map true.
    pub fn start(seeds: Vec<Address>, connect: C, runtime: &Handle) -> Self {
        let (map, change, outdated) = (ArcSwap::default(), Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { connect, seeds, map, change, outdated });
        let task = runtime.spawn(keep(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Every master.
    pub fn masters(&self) -> Vec<Arc<Node>> {
        self.shared.map.load().masters().map(|(_, node)| Arc::clone(node)).collect()
    }

    /// Whether the map is known and all its masters are asked.
    pub fn is_up(&self) -> bool {
        self.shared.is_up()
    }

    /// Asks for one part, whose key is in `slot`. `part` is made anew each time it is sent.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(&self, slot: u16, deadline: Instant, part: impl Fn() -> Part) -> Result<Decided, Failure> {
        let mut retry = Retry::until(deadline);
        let mut ahead = None;
        for _ in 0..=MAX_REDIRECTS {
            let asking = ahead.is_some();
            let Some((address, node)) = ahead.take().or_else(|| self.shared.owner(slot)) else {
                retry.pause(Failure::Connect("the Cluster's slots are not known yet".into())).await?;
                continue;
            };
            let failure = match node.ask(part(), deadline, asking).await {
                Ok(decided) => return Ok(decided),
                Err(failure) => failure,
            };
            match self.shared.redirected(slot, &failure, &address) {
                Some(elsewhere) => ahead = elsewhere,
                None => retry.pause(self.shared.doubted(failure)).await?,
            }
        }
        Err(Failure::Connect("the Cluster's nodes do not agree on who serves the slot".into()))
    }

    /// Runs the script beside the lanes on the master of a key in `slot`, until `deadline`. On the Cluster's runtime.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn script(&self, slot: u16, key: &[u8], call: &[u8], deadline: Instant) -> Result<Reply, Failure> {
        let mut retry = Retry::until(deadline);
        for _ in 0..=MAX_REDIRECTS {
            let Some((address, node)) = self.shared.owner(slot) else {
                retry.pause(Failure::Connect("the Cluster's slots are not known yet".into())).await?;
                continue;
            };
            let failure = match node.script(key, call, false).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            match self.shared.redirected(slot, &failure, &address) {
                Some(None) => {}
                Some(Some((_, node))) => return node.script(key, call, true).await,
                None => retry.pause(self.shared.doubted(failure)).await?,
            }
        }
        Err(Failure::Connect("the Cluster's nodes do not agree on who serves the slot".into()))
    }
}

impl<C: Connect> Drop for Cluster<C> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Place = (Address, Arc<Node>);

impl<C: Connect> Shared<C> {
    fn owner(&self, slot: u16) -> Option<Place> {
        let map = self.map.load();
        let found = map.owner(slot).map(|node| (node.address().clone(), Arc::clone(node)));
        if found.is_none() {
            self.outdated.notify_one();
        }
        found
    }

    fn is_up(&self) -> bool {
        let map = self.map.load();
        map.owner(0).is_some() && map.masters().all(|(_, node)| node.is_up())
    }

    /// Where a request is to be sent that was sent elsewhere: `Some(None)` where the map tells it by now, `None` where the
    /// failure is no redirection.
    fn redirected(&self, slot: u16, failure: &Failure, asked: &Address) -> Option<Option<Place>> {
        let Failure::Refused(error) = failure else { return None };
        let moved = error.code == RefusalCode::Moved;
        if !moved && error.code != RefusalCode::Ask {
            return None;
        }
        let address = slots::redirect(&error.text, asked)?;
        debug!(slot, to = %address, moved, "redirected");
        let node = self.node(&address, slot, moved);
        if moved {
            self.outdated.notify_one();
            return Some(None);
        }
        Some(Some((address, node)))
    }

    /// After a failure the map may be what is wrong.
    fn doubted(&self, failure: Failure) -> Failure {
        self.outdated.notify_one();
        failure
    }

    /// The node at an address, which from now on `serves` the slot.
    fn node(&self, address: &Address, slot: u16, serves: bool) -> Arc<Node> {
        let _change = self.change.lock();
        let map = self.map.load();
        if let Some(node) = map.at(address)
            && !serves
        {
            return Arc::clone(node);
        }
        let mut next = SlotMap::clone(&map);
        next.give(serves.then_some(slot).into_iter(), address, || Arc::new(self.connect.node(address, slot)));
        let node = next.at(address).map(Arc::clone);
        self.map.store(Arc::new(next));
        node.unwrap_or_else(|| Arc::new(self.connect.node(address, slot)))
    }

    /// Asks one node after the other for the map until one tells it.
    async fn look(&self) -> Result<(), Failure> {
        let mut known: Vec<_> =
            self.map.load().masters().map(|(address, node)| (!node.is_up(), address.clone())).collect();
        // Those that answer first.
        known.sort_by_key(|(down, _)| *down);
        let mut last = Failure::Connect("no node of the Cluster is known".into());
        for address in known.iter().map(|(_, address)| address).chain(&self.seeds) {
            match self.ranges(address).await {
                Ok(ranges) => {
                    self.take(ranges);
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn ranges(&self, address: &Address) -> Result<Vec<slots::Range>, Failure> {
        let mut connection = self.connect.connection(address).await?;
        let reply = connection.command(&[b"CLUSTER", b"SLOTS"]).await?;
        match slots::ranges(&reply, address) {
            Some(ranges) if !ranges.is_empty() => Ok(ranges),
            Some(_) => Err(Failure::Server("the Cluster serves no slot".into())),
            None => Err(Failure::Server("the reply to CLUSTER SLOTS cannot be read".into())),
        }
    }

    /// Makes the map anew; the nodes that it had stay those that they are.
    fn take(&self, ranges: Vec<slots::Range>) {
        let _change = self.change.lock();
        let (before, mut next) = (self.map.load(), SlotMap::default());
        for (first, last, address) in ranges {
            let make = || before.at(&address).map_or_else(|| Arc::new(self.connect.node(&address, first)), Arc::clone);
            next.give(first..=last, &address, make);
        }
        let names = |map: &SlotMap<Node>| map.masters().map(|(address, _)| address.clone()).collect::<Vec<_>>();
        if names(&before) != names(&next) {
            let masters: Vec<_> = next.masters().map(|(address, _)| address.to_string()).collect();
            info!(masters = masters.join(", "), "the Cluster's masters");
        }
        self.map.store(Arc::new(next));
    }
}

/// Looks at the map whenever it may be out of date, and while a master is not well.
async fn keep<C: Connect>(shared: Arc<Shared<C>>) {
    loop {
        if let Err(failure) = shared.look().await {
            warn!(error = &failure as &dyn std::error::Error, "no node of the Cluster tells who serves what");
        }
        sleep(LOOK_PAUSE).await;
        tokio::select! {
            () = shared.outdated.notified() => {}
            () = sleep(LOOK_WHEN_DOWN), if !shared.is_up() => {}
        }
    }
}
