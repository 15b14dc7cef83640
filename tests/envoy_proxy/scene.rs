//! Upstream, Weir and Envoy together.

use std::{fs, net::SocketAddr};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    client::Client,
    config::Wanted,
    proxy::Proxy,
    support::server::{Server, Setup},
    upstream::Upstream,
};

/// The configuration of a scene.
pub struct Wish {
    policies: TempDir,
    variables: Vec<(&'static str, &'static str)>,
    proxy: Wanted,
}

impl Wish {
    /// Configures a proxy with the domain `shop`, whose policy is a file of descriptors in the format of
    /// envoyproxy/ratelimit, and these rate limits. Without a decision it refuses.
    pub fn new(descriptors: &str, rate_limits: Vec<Value>) -> Self {
        let policies = tempfile::tempdir().expect("a directory");
        let text = format!("domain: shop\ndescriptors:\n{descriptors}");
        fs::write(policies.path().join("limits.yaml"), text).expect("written");
        let proxy = Wanted { domain: "shop".to_owned(), rate_limits, over: None, deny_without_decision: true };
        Self { policies, variables: Vec::new(), proxy }
    }

    /// Sets a variable of Weir.
    pub fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Enables the headers of envoyproxy/ratelimit on the service's answers.
    pub fn ratelimit_headers(self) -> Self {
        self.env("WEIR_ENVOY__HEADERS", "ratelimit")
    }

    /// Sets the limit that the proxy sends for `overridden` descriptors.
    pub fn over(mut self, limit: Value) -> Self {
        self.proxy.over = Some(limit);
        self
    }

    /// Lets requests through without a decision.
    pub fn open_without_decision(mut self) -> Self {
        self.proxy.deny_without_decision = false;
        self
    }

    /// Starts everything.
    pub fn start(self) -> Scene {
        let upstream = Upstream::start();
        let weir = serve(&self, None);
        let address: SocketAddr = weir.grpc.parse().expect("an address");
        let proxy = Proxy::start(&self.proxy.config(address, upstream.address).to_string());
        Scene { wish: self, upstream, weir: Some(weir), address, proxy }
    }
}

fn serve(wish: &Wish, address: Option<SocketAddr>) -> Server {
    let mut setup = Setup::new().limits(wish.policies.path().to_owned());
    for (name, value) in &wish.variables {
        setup = setup.env(name, value);
    }
    if let Some(address) = address {
        setup = setup.env("WEIR_GRPC__LISTEN", &address.to_string());
    }
    setup.start()
}

/// The running parts, stopped on drop.
pub struct Scene {
    wish: Wish,
    /// The upstream of the proxy.
    pub upstream: Upstream,
    weir: Option<Server>,
    address: SocketAddr,
    pub proxy: Proxy,
}

impl Scene {
    pub fn client(&self) -> Client {
        Client::connect(&self.proxy.address)
    }

    pub fn weir(&self) -> &Server {
        self.weir.as_ref().expect("it is not killed")
    }

    /// Kills the service with SIGKILL.
    pub fn kill_weir(&mut self) {
        self.weir = None;
    }

    /// Restarts the service at its address.
    pub fn restart_weir(&mut self) {
        self.weir = Some(serve(&self.wish, Some(self.address)));
    }
}
