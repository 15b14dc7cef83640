//! Wiring, from settings to a running service, and its shutdown.

mod error;
mod export;
mod fd_limit;
mod host;
mod http;
mod last_policy;
mod memory_bound;
mod outcome;
mod policy;
mod ports;
mod readiness;
mod reload;
mod security;
mod service_manager;
mod snapshots;
mod source;
mod store_log;
mod sweep;
mod validate;

use std::{path::PathBuf, pin::pin, sync::Arc};

use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
};
use tracing::{info, warn};
use weir_policy::{Loaded, watch::watch as watch_policy};
use weir_server::{Connected, ConnectionSettings, Drain, RuntimeKind, Server, Workers, metrics::ListenerMetrics};
use weir_settings::file::follow_links;
use weir_store::{
    AnyStore,
    memory::{MemoryStats, WhenFull},
};

pub use error::AppError;
use export::SpanExport;
use futures_util::future::BoxFuture;
pub use outcome::RunOutcome;
use outcome::{needed, panicked};
use parking_lot::Mutex;
use policy::PolicyReloader;
use ports::{MAX_METRICS_CONNECTIONS, Ports, listen, metrics_port, permits, start_workers};
use readiness::Readiness;
use reload::FileReloader;
use security::Security;
use service_manager::notify;
use snapshots::{Snapshots, open_overrides, open_store};
use source::Source;
pub use validate::{Certificates, validate};

use crate::{
    config::{AdminRule, ResetRule, Settings},
    explorer::Explorer,
    limiter::Limiter,
    monitoring::HealthAndMetrics,
    overrides::OverrideService,
    telemetry::{HotKeys, Metrics},
    transport::{
        Guarded, HttpPort, Unauthenticated,
        admin::{AdminService, ReplicaRegistry},
        api::Services,
        check_service::CheckService,
        grpc::GrpcPort,
        http::Sites,
        observer::RequestObserver,
        rlqs::{QuotaMode, Quotas},
    },
    xds::Start,
};

/// A service whose parts are wired and whose sockets listen.
pub struct App {
    settings: Settings,
    limiter: Arc<Limiter<AnyStore>>,
    /// The tasks that reload files.
    reloads: Vec<BoxFuture<'static, ()>>,
    snapshots: Arc<Snapshots>,
    overrides: Arc<OverrideService>,
    quotas: Option<Arc<Quotas<AnyStore>>>,
    replicas: Arc<ReplicaRegistry>,
    readiness: Readiness,
    security: Security,
    drain: Drain,
    span_export: Option<SpanExport>,
    /// The threads that serve checks: gRPC, then HTTP.
    workers: [Workers; 2],
    grpc: Server<Guarded<GrpcPort<AnyStore>>>,
    http: Server<Guarded<HttpPort>>,
    /// The port of `/metrics` and the probes alone.
    metrics: Option<Server<Guarded<HttpPort>>>,
}

impl App {
    /// Loads the policy and the snapshot, wires the parts, and listens. With `start_empty` the snapshot is set aside
    /// instead of loaded, and the file of overrides if it is damaged. Each change of `hangups` reloads the files.
    ///
    /// # Errors
    /// [`AppError`] names the cause.
    pub async fn bind(
        mut settings: Settings,
        start_empty: bool,
        hangups: &watch::Receiver<()>,
    ) -> Result<Self, AppError> {
        let files = if settings.control_plane().is_some() { PathBuf::new() } else { settings.limits.clone() };
        let metrics = Metrics::with_settings(&settings.metrics);
        let policy_files = FileReloader::new("limits", watch_policy(&files), hangups, metrics.read_timeouts("limits"));
        let (source, Loaded { policy, empty, hash, .. }) = Source::open(&settings, &metrics).await?;
        metrics.max_keys(settings.store.max_keys);
        if policy.is_awaited() {
            warn!(path = %settings.limits.display(), "no policy yet: checks fail until the control plane sends one");
        } else {
            metrics.policy_loaded();
            metrics.policy_in_force(&hash);
            info!(
                path = %settings.limits.display(),
                hash,
                domains = policy.domains().count(),
                limits = policy.limit_count(),
                "policy loaded"
            );
        }
        fd_limit::raise([settings.grpc.max_connections, settings.http.max_connections, MAX_METRICS_CONNECTIONS]);
        let mut security = Security::open(&settings, &metrics, hangups)?;
        // Processes that reach one file by several links lock the same file.
        settings.store.snapshot.path = follow_links(&settings.store.snapshot.path);
        let (memory, snapshot_lock) = open_store(&settings.store, &policy, start_empty)?;
        let store = AnyStore::start(memory, &settings.store, metrics.registry()).map_err(AppError::Threads)?;
        let limiter = Limiter::new(store, policy, Arc::clone(&metrics));
        let ui = &settings.http.ui;
        let limiter =
            if ui.enabled { limiter.sampling(HotKeys::new(ui.max_hot_keys), ui.recent_checks()) } else { limiter };
        let limiter = Arc::new(limiter);
        let documents = open_overrides(&settings.store, limiter.store(), start_empty)?;
        let overrides = Arc::new(OverrideService::new(documents, Arc::clone(&limiter), settings.bounds()));
        let monitoring = monitoring(&limiter, &metrics, settings.store.when_full.name());

        let drain = Drain::default();
        let (span_export, spans) = SpanExport::start(&settings.tracing, &metrics).map_err(AppError::Setting)?;
        let is_shared = limiter.store().shared().is_some();
        let observer = RequestObserver::new(spans, is_shared);
        let mut service = CheckService::new(Arc::clone(&limiter), settings.bounds());
        service.is_observed = observer.observes_all();
        service.repeat_window = settings.idempotency.window.0;
        let [grpc_metrics, http_metrics] = ["grpc", "http"].map(|name| ListenerMetrics::new(metrics.registry(), name));
        let with_permits = |setting: usize, metrics: &ListenerMetrics| {
            service.clone().with_permits(permits(setting, is_shared, metrics))
        };
        let sites = Sites::new(&ui.hosts, security.authentication("http").is_some());
        let quota_mode = QuotaMode {
            is_shared,
            passes_when_full: !is_shared && settings.store.when_full == WhenFull::Allow,
            is_shadow: settings.envoy.shadow_mode,
        };
        let quotas =
            (!settings.rlqs.domains.is_empty()).then(|| Quotas::new(Arc::clone(&limiter), &settings.rlqs, quota_mode));
        let explorer = ui
            .enabled
            .then(|| Explorer::new(Arc::clone(&limiter), quotas.clone(), settings.policy_rules(), sites.clone()));
        // Separate workers, so that HTTP load does not delay gRPC.
        let grpc_workers = start_workers("weir-worker", settings.grpc.workers, settings.grpc.runtime)?;
        let http_workers = start_workers("weir-http", settings.http.workers, RuntimeKind::PerCore)?;
        let grpc_listener = listen("grpc.listen", &settings.grpc.listen, &grpc_workers).await?;
        let replicas = Arc::new(ReplicaRegistry::new(Arc::clone(&limiter), host::address(&grpc_listener.address())));
        let admin = AdminService::new(Arc::clone(&limiter), Arc::clone(&replicas), Arc::clone(&overrides));
        let admin = Arc::new(admin);
        let services = Services {
            checks: with_permits(settings.http.max_concurrent_requests, &http_metrics),
            admin: Arc::clone(&admin),
        };
        let pages = http::routes(&settings, services, monitoring.clone(), explorer, sites)?;
        let (calls, health) = {
            let envoy = settings.envoy.clone();
            let checks = with_permits(settings.grpc.max_concurrent_requests, &grpc_metrics);
            let services = Services { checks, admin };
            GrpcPort::new(services, drain.clone(), &settings.grpc, envoy, quotas.clone(), &grpc_metrics).await
        };
        let unauthenticated = Unauthenticated {
            local_operators: settings.admin == AdminRule::Local,
            resets: settings.reset == ResetRule::Allow,
            keeps_connections: true,
        };
        let ports = Ports { drain: &drain, security: Some(&security), observer: Some(observer), unauthenticated };
        let grpc = ConnectionSettings {
            name: "grpc",
            http2_only: true,
            max_connections: settings.grpc.max_connections,
            max_streams: settings.grpc.max_streams,
            traffic: settings.grpc.traffic(),
        };
        let grpc = ports.server(grpc_listener, calls, &grpc_workers, grpc, grpc_metrics);
        let http = ConnectionSettings {
            name: "http",
            http2_only: false,
            max_connections: settings.http.max_connections,
            max_streams: 128,
            traffic: settings.http.traffic(),
        };
        let http_listener = listen("http.listen", &settings.http.listen, &http_workers).await?;
        let max_body_bytes = settings.grpc.max_message_bytes;
        let pages = HttpPort::new(pages, max_body_bytes, &http_metrics, Connected::new(drain.clone()));
        let http = ports.server(http_listener, pages, &http_workers, http, http_metrics);
        let metrics_port = metrics_port(&settings, &monitoring, &metrics, &http_workers, &drain).await?;
        let requires_store = settings.store.redis.required_for_readiness;
        let readiness = Readiness { monitoring, health, requires_store, state: Arc::default() };
        let policies = PolicyReloader { limiter: Arc::clone(&limiter), empty };
        let mut reloads = std::mem::take(&mut security.reloads);
        reloads.extend(source.follow(policies, &settings, policy_files, readiness.clone()));
        let snapshots = Snapshots {
            limiter: Arc::clone(&limiter),
            settings: settings.store.snapshot.clone(),
            writing: Mutex::new(snapshot_lock),
        };
        let snapshots = Arc::new(snapshots);
        let (workers, metrics) = ([grpc_workers, http_workers], metrics_port);
        Ok(Self {
            settings,
            limiter,
            reloads,
            snapshots,
            overrides,
            quotas,
            replicas,
            readiness,
            security,
            drain,
            span_export,
            workers,
            grpc,
            http,
            metrics,
        })
    }

    /// Returns the addresses of gRPC and HTTP, with the ports that the system assigned.
    pub fn addresses(&self) -> (String, String) {
        (self.grpc.listener.address(), self.http.listener.address())
    }

    /// Serves until `shutdown` completes or a part of the service panics, then drains.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> RunOutcome {
        let (grpc, http) = self.addresses();
        self.security.warn_of_open([("grpc", &grpc), ("http", &http)]);
        let metrics = self.metrics.as_ref().map(|port| port.listener.address());
        info!(grpc, http, metrics, store = %self.settings.store.url, workers = self.workers[0].count(), "serving");
        let is_shared = self.limiter.store().shared().is_some();
        let awaits_policy = self.limiter.policy().policy.is_awaited();
        if awaits_policy && self.settings.xds.start == Start::NotReady {
            self.readiness.report_awaited_policy(true).await;
        }
        if is_shared {
            self.readiness.await_store().await;
        }
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            // A ban must hold from the first request on, if the store answers.
            () = self.overrides.refresh() => {}
            () = &mut shutdown => {
                info!("stopped during startup");
                // Dropping the span export waits for its thread.
                let _ = spawn_blocking(|| drop(self)).await;
                return RunOutcome::Gracefully;
            }
        }
        let ports = [Some(self.grpc.start()), Some(self.http.start()), self.metrics.map(Server::start)];
        let mut serving: JoinSet<()> = ports.into_iter().flatten().map(needed).collect();
        notify("READY=1");
        let mut background: JoinSet<()> = self.reloads.into_iter().collect();
        background.spawn(sweep::run(Arc::clone(&self.limiter)));
        background.spawn(Arc::clone(&self.snapshots).run());
        background.spawn(Arc::clone(&self.replicas).run());
        background.spawn(self.overrides.run());
        if let Some(quotas) = self.quotas.clone() {
            background.spawn(quotas.run());
        }
        let when_full = self.settings.store.when_full.name();
        background.spawn(store_log::run(Arc::clone(&self.limiter), when_full, self.settings.store.max_keys));
        let mut following = JoinSet::new();
        if is_shared {
            let timeout = self.settings.store.redis.command_timeout.duration();
            following.spawn(self.readiness.clone().follow_store(Arc::clone(&self.limiter), timeout));
        }
        let panicked = tokio::select! {
            () = shutdown => false,
            () = panicked([&mut background, &mut serving, &mut following], self.limiter.store().shared()) => true,
        };
        // It must report nothing after this.
        following.shutdown().await;
        self.readiness.report_draining().await;
        info!("draining: readiness fails, calls are still served");
        // Last: it blocks while the service manager does not read.
        notify("STOPPING=1");
        tokio::time::sleep(self.settings.shutdown.delay.duration()).await;
        self.drain.close();
        // The accept loops end when listeners close.
        while serving.join_next().await.is_some() {}
        if !self.drain.finish(self.settings.shutdown.timeout.duration()).await {
            warn!("shutdown timeout: unfinished calls were closed");
        }
        background.abort_all();
        if let Some(quotas) = self.quotas {
            quotas.finish().await;
        }
        // Joining threads would block this runtime.
        let _ = spawn_blocking(|| self.workers.map(Workers::stop)).await;
        if let Some(shared) = self.limiter.store().shared() {
            shared.shut_down().await;
        }
        self.replicas.finish().await;
        // No decision is made any more, so none is lost.
        let saved = self.snapshots.write().await;
        // Last, as it may wait for the collector.
        if let Some(span_export) = self.span_export {
            span_export.finish().await;
        }
        info!("stopped");
        match (panicked, saved) {
            (true, _) => RunOutcome::Panicked,
            (false, true) => RunOutcome::Gracefully,
            (false, false) => RunOutcome::NotSaved,
        }
    }
}

/// Returns the pages of metrics, with the gauges of the stores as they are at each scrape, and the probes.
fn monitoring(limiter: &Arc<Limiter<AnyStore>>, metrics: &Arc<Metrics>, when_full: &'static str) -> HealthAndMetrics {
    let store = Arc::clone(limiter);
    HealthAndMetrics::new(Arc::clone(metrics), move |metrics| {
        let MemoryStats { keys, capacity_misses, expired, evicted, left_out } = store.store().memory().stats();
        let evictions = [("expired", expired), ("evicted", evicted), ("snapshot", left_out)];
        metrics.memory(keys, &evictions, (when_full, capacity_misses));
        if let Some(shared) = store.store().shared() {
            shared.redis().report_servers();
        }
    })
}
