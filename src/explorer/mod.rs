//! The explorer: a page at `/ui` and the endpoints that it reads. It stores nothing itself;
//! [`routes`](crate::transport::routes) controls access.

mod key;
mod live;
mod policy;
mod quotas;
mod simulate;
mod traffic;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::map_response,
    response::Response,
    routing::{get, post},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::Instant,
};
use weir_policy::{Rules, lint};
use weir_store::AnyStore;

use crate::{
    auth::{Role, Roles},
    limiter::Limiter,
    transport::{
        http::{JSON, Sites, body, problem::Problem, response},
        rlqs::Quotas,
    },
};

/// Maximum size of a request body, which may contain a draft of a policy.
const MAX_BODY_BYTES: usize = 64 << 10;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The page and its files: path, content type and text.
const FILES: [(&str, &str, &str); 19] = [
    ("/ui", "text/html; charset=utf-8", include_str!("page/explorer.html")),
    ("/ui/explorer.css", "text/css; charset=utf-8", include_str!("page/explorer.css")),
    ("/ui/explorer.js", JAVASCRIPT, include_str!("page/explorer.js")),
    ("/ui/page.js", JAVASCRIPT, include_str!("page/page.js")),
    ("/ui/theme.js", JAVASCRIPT, include_str!("page/theme.js")),
    ("/ui/route.js", JAVASCRIPT, include_str!("page/route.js")),
    ("/ui/draw.js", JAVASCRIPT, include_str!("page/draw.js")),
    ("/ui/health.js", JAVASCRIPT, include_str!("page/health.js")),
    ("/ui/history.js", JAVASCRIPT, include_str!("page/history.js")),
    ("/ui/chart.js", JAVASCRIPT, include_str!("page/chart.js")),
    ("/ui/tree.js", JAVASCRIPT, include_str!("page/tree.js")),
    ("/ui/keys.js", JAVASCRIPT, include_str!("page/keys.js")),
    ("/ui/overrides.js", JAVASCRIPT, include_str!("page/overrides.js")),
    ("/ui/state.js", JAVASCRIPT, include_str!("page/state.js")),
    ("/ui/reset.js", JAVASCRIPT, include_str!("page/reset.js")),
    ("/ui/quotas.js", JAVASCRIPT, include_str!("page/quotas.js")),
    ("/ui/usage.js", JAVASCRIPT, include_str!("page/usage.js")),
    ("/ui/simulation.js", JAVASCRIPT, include_str!("page/simulation.js")),
    ("/ui/traffic.js", JAVASCRIPT, include_str!("page/traffic.js")),
];

/// The security headers of every response below `/ui`: no resources from other origins, no embedding in other pages.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The explorer of one service.
#[derive(Clone)]
pub struct Explorer(Arc<Service>);

struct Service {
    limiter: Arc<Limiter<AnyStore>>,
    /// The quotas, if limits are divided among Envoys.
    quotas: Option<Arc<Quotas<AnyStore>>>,
    rules: Rules,
    sites: Sites,
    started: Instant,
    /// Permits one simulation at a time.
    simulating: Arc<Semaphore>,
    /// Permits one search of the policy at a time.
    searching: Arc<Semaphore>,
}

impl Explorer {
    /// Returns an explorer of the policy in force, the counters of `limiter`, and the assignments of `quotas`. Drafts
    /// of policies are read by `rules`; `sites` are the sites that may host its page.
    pub fn new(
        limiter: Arc<Limiter<AnyStore>>,
        quotas: Option<Arc<Quotas<AnyStore>>>,
        rules: Rules,
        sites: Sites,
    ) -> Self {
        let (started, one) = (Instant::now(), || Arc::new(Semaphore::new(1)));
        Self(Arc::new(Service { limiter, quotas, rules, sites, started, simulating: one(), searching: one() }))
    }

    /// Runs work that takes a while on a separate thread: the control thread must notice signals, revocations and
    /// overrides immediately. It keeps its turn until it ends, even if its client has disconnected.
    async fn run_apart<T: Send + 'static>(
        self,
        turn: OwnedSemaphorePermit,
        run: impl FnOnce(&Service) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let run = spawn_blocking(move || {
            let done = run(&self.0);
            drop(turn);
            done
        });
        run.await.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ""))?
    }

    /// Returns the routes of the page and of the endpoints that it reads.
    pub fn routes(self) -> Router {
        let files = FILES.into_iter().fold(Router::new(), |routes, (path, kind, text)| {
            routes.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }))
        });
        files
            .route("/ui/", get(|| async { (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "../ui")]) }))
            .route("/ui/api/session", get(session))
            .route("/ui/api/policy", post(policy::serve))
            .route("/ui/api/live", post(live::serve))
            .route("/ui/api/key", post(key::serve))
            .route("/ui/api/quotas", post(quotas::serve))
            .route("/ui/api/simulate", post(simulate::serve))
            .route("/ui/api/traffic", post(traffic::serve))
            .layer(map_response(guarded))
            .with_state(self)
    }
}

type Reply = Result<Response, Problem>;

/// Returns the client's roles.
async fn session(Extension(roles): Extension<Roles>) -> Response {
    let roles: Vec<_> = Role::ALL.iter().filter(|role| roles.has(**role)).map(|role| role.name()).collect();
    json_reply(&json!({ "roles": roles, "weir": env!("CARGO_PKG_VERSION") }))
}

async fn guarded(mut response: Response) -> Response {
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Reads the body of a request as JSON.
async fn read<T: DeserializeOwned>(explorer: &Explorer, request: Request) -> Result<T, Problem> {
    let text = body::read(request, MAX_BODY_BYTES, &explorer.0.sites).await?;
    serde_json::from_str(&text).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}

fn json_reply(answer: &impl Serialize) -> Response {
    response(StatusCode::OK, JSON, answer)
}

fn no_domain(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no policy defines the {}", lint::shown(name)))
}
