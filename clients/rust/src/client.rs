use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinSet, time::timeout};
use tonic::Request;

use crate::{
    BreakerSettings, BreakerState, Check, Decision, Error, OnFailure, Reset, Together,
    breaker::Breaker,
    call::{Caller, Failure, MAX_DEADLINE, Repeat, unary},
    check::charges,
    lease::{self, Leases, Route},
    net::{Connection, Dialer, Pool},
    proto::{CheckAllRequest, CheckBatchRequest, CheckRequest, CheckResponse},
    telemetry::{Telemetry, observe_breaker},
    token::Token,
};

const DEADLINE: Duration = Duration::from_millis(50);

/// A client of a service. Clones share it.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) caller: Arc<Caller>,
    pub(crate) deadline: Duration,
    on_failure: Option<OnFailure>,
    coalesce: bool,
    lease: bool,
    leases: Arc<Leases>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) logged: crate::guard::Logged,
    /// Tasks of the connections and the leases, which end with the client.
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("breaker", &self.breaker_state()).finish_non_exhaustive()
    }
}

/// The options of a client.
#[derive(Clone)]
#[must_use = "options do nothing until the client is built"]
pub struct Builder {
    target: String,
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    deadline: Duration,
    on_failure: Option<OnFailure>,
    retries: u32,
    breaker: BreakerSettings,
    coalesce: bool,
    lease: bool,
}

impl Builder {
    /// Enables TLS, or mTLS. Default: none.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets a bearer token. Use TLS with it, except on loopback.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets a file with the bearer token, which is read again at most once a second.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Sets the time limit of a call, with its retries: at most a day. Default: 50 ms.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(MAX_DEADLINE);
        self
    }

    /// Sets the fallback when the service does not decide. Default: the call fails, and [`Client::guard`] lets requests
    /// pass.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = Some(on_failure);
        self
    }

    /// Sets how often an unanswered call is retried within its deadline. A retry waits for a connection; with 0, a call
    /// without one fails immediately, and checks carry no `request_id`, which saves the service a record for each.
    /// Default: 1.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Configures the circuit breaker. Default: it opens after 5 consecutive outages, for 1 s.
    pub fn breaker(mut self, breaker: BreakerSettings) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sends concurrent checks over one stream of each connection. Default: off.
    pub fn coalesce(mut self, coalesce: bool) -> Self {
        self.coalesce = coalesce;
        self
    }

    /// Lets units that this client holds decide checks of hot keys, if the policy allows leases. Default: off.
    /// [`Check::lease`] overrides this for one check.
    ///
    /// A key is leased from its third check within 100 ms on. Only checks of one unit or more that the policy decides
    /// use leases: not those with their own limits, a factor, a `max_wait` or a `request_id`, and no dry runs. At most
    /// 10,000 keys are leased. Close such a client with [`Client::close`], which returns the held units.
    pub fn lease(mut self, lease: bool) -> Self {
        self.lease = lease;
        self
    }

    /// Builds the client. It connects in the background, on the current runtime.
    ///
    /// # Errors
    /// The target, the token or a file is invalid, or there is no Tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        if Handle::try_current().is_err() {
            return Err(Error::Configuration("a client needs a Tokio runtime".to_owned()));
        }
        let target = self.target.parse()?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.config().map_err(|error| Error::Configuration(error.to_string()))?;
        }
        let token = match (&self.token, self.token_file) {
            (Some(token), None) => Token::fixed(token)?,
            (None, Some(path)) => Token::file(path)?,
            (None, None) => Token::None,
            (Some(_), Some(_)) => return Err(Error::Configuration("a token and a token file are given".to_owned())),
        };
        let dialer = Dialer {
            #[cfg(feature = "tls")]
            tls: self.tls,
        };
        let mut tasks = JoinSet::new();
        let pool = Pool::open(target, dialer, &mut tasks);
        let caller = Arc::new(Caller { pool, breaker: Breaker::new(self.breaker), token, retries: self.retries });
        observe_breaker(&self.target, &caller);
        let telemetry = Arc::new(Telemetry::new());
        let leases = Leases::start(Arc::clone(&caller), Arc::clone(&telemetry), self.deadline, &mut tasks);
        let inner = Inner {
            caller,
            deadline: self.deadline,
            on_failure: self.on_failure,
            coalesce: self.coalesce,
            lease: self.lease,
            leases,
            telemetry,
            logged: crate::guard::Logged::default(),
            tasks: Mutex::new(tasks),
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

impl Client {
    /// Makes a client with the default options. It does not wait for the service.
    ///
    /// # Errors
    /// The target is invalid, or there is no Tokio runtime.
    pub fn new(target: impl Into<String>) -> Result<Self, Error> {
        Self::builder(target).build()
    }

    /// Configures a client of `host:port`, `dns:///host:port`, `unix:PATH`, or several of these, separated by commas.
    /// Calls go to all resolved servers, round-robin.
    pub fn builder(target: impl Into<String>) -> Builder {
        Builder {
            target: target.into(),
            #[cfg(feature = "tls")]
            tls: None,
            token: None,
            token_file: None,
            deadline: DEADLINE,
            on_failure: None,
            retries: 1,
            breaker: BreakerSettings::default(),
            coalesce: false,
            lease: false,
        }
    }

    /// Decides one key.
    ///
    /// # Errors
    /// Neither the service nor [`OnFailure`] decided; errors that are not an [outage](Error::is_outage) are always
    /// returned.
    pub async fn check(&self, check: impl Into<Check>) -> Result<Decision, Error> {
        let check = check.into();
        let is_leased = check.lease.unwrap_or(self.inner.lease) && check.is_leasable();
        match if is_leased { self.inner.leases.decide(&check) } else { Route::Ordinary(None) } {
            Route::Here(decision) => Ok(decision),
            route => self.check_by_service(check, route).await,
        }
    }

    async fn check_by_service(&self, check: Check, route: Route) -> Result<Decision, Error> {
        let inner = &*self.inner;
        let domain = check.request.domain.clone();
        let decide = async {
            let on_failure = self.on_failure(&check).unwrap_or_default();
            let answer = match route {
                Route::Requested(answer) => {
                    let since = Instant::now();
                    let deadline = check.deadline.unwrap_or(inner.deadline);
                    // The stream of leases may wait for earlier requests with longer deadlines.
                    let answer = match timeout(deadline, answer).await {
                        Ok(answer) => answer.unwrap_or_else(|_| Err(Error::closed())),
                        Err(_) => Err(lease::late()),
                    };
                    match answer {
                        Ok(None) => self.ordinary(check.deadline(deadline.saturating_sub(since.elapsed()))).await,
                        Ok(Some(answer)) => Ok(answer),
                        Err(error) => Err(error),
                    }
                }
                Route::Ordinary(Some(report)) => {
                    let answer = self.ordinary(check).await;
                    answer.inspect(|answer| inner.leases.checked(&report, answer))
                }
                _ => self.ordinary(check).await,
            };
            answer.map(Decision::from).or_else(|error| Decision::fallback(on_failure, error))
        };
        inner.telemetry.observe(&domain, decide).await
    }

    /// Sends a check in a unary call, or over the stream of coalesced checks.
    async fn ordinary(&self, check: Check) -> Result<CheckResponse, Error> {
        let check = self.prepared(check);
        let (deadline, coalesce) = (check.deadline, self.inner.coalesce);
        let repeat = Repeat::from(&*check.request);
        let attempt = |connection: Connection, request| async move {
            if coalesce {
                connection.check_coalesced(request).await
            } else {
                Ok(connection.client().check(request).await?.into_inner())
            }
        };
        self.call(deadline, check.into_request(), repeat, attempt).await
    }

    /// Decides up to 1,000 independent checks, with an answer for each, in order. Deadline and [`OnFailure`] are the
    /// client's.
    pub async fn check_batch(&self, checks: impl IntoIterator<Item: Into<Check>>) -> Vec<Result<Decision, Error>> {
        let checks: Vec<_> = checks.into_iter().map(|check| self.prepared(check.into()).into_request()).collect();
        let charged_twice = |check| Repeat::from(check) == Repeat::IfUnsent;
        let repeat = if checks.iter().any(charged_twice) { Repeat::IfUnsent } else { Repeat::Safe };
        let domains = domains(&checks);
        let call = self.call(None, CheckBatchRequest { checks }, repeat, unary!(check_batch));
        let on_failure = self.inner.on_failure.unwrap_or_default();
        let decide = |result: Result<CheckResponse, Error>| match result {
            Ok(CheckResponse { error: Some(error), .. }) => Decision::fallback(on_failure, error.into()),
            Ok(response) => Ok(response.into()),
            Err(error) => Decision::fallback(on_failure, error),
        };
        let results: Vec<_> = match call.await {
            Ok(response) => response.results.into_iter().map(|response| decide(Ok(response))).collect(),
            Err(error) => domains.iter().map(|_| decide(Err(error.clone()))).collect(),
        };
        for (domain, result) in domains.iter().zip(&results) {
            let decided = result.as_ref().ok();
            self.inner.telemetry.count(domain, decided.map(|decision| (decision.allowed, &decision.source)));
        }
        results
    }

    /// Decides 1 to 32 checks of one domain together: all are charged or none. The call has no `request_id`, so if it
    /// charges, it is retried only if it certainly was not executed. Deadline and [`OnFailure`] are the client's.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn check_all(&self, checks: impl IntoIterator<Item: Into<Check>>) -> Result<Together, Error> {
        let checks: Vec<_> = checks.into_iter().map(|check| check.into().into_request()).collect();
        let repeat = if checks.iter().any(charges) { Repeat::IfUnsent } else { Repeat::Safe };
        let domains = domains(&checks);
        let answer = self.call(None, CheckAllRequest { checks }, repeat, unary!(check_all)).await;
        let all = answer.map(Together::from).or_else(|error| {
            let Decision { allowed, source, .. } =
                Decision::fallback(self.inner.on_failure.unwrap_or_default(), error)?;
            Ok(Together { allowed, decisions: Vec::new(), source })
        });
        for (index, domain) in domains.iter().enumerate() {
            let allowed = |all: &Together| all.decisions.get(index).map_or(all.allowed, |decision| decision.allowed);
            self.inner.telemetry.count(domain, all.as_ref().ok().map(|all| (allowed(all), &all.source)));
        }
        all
    }

    /// Deletes the state of a key, and with [`subtree`](Reset::subtree) also of all keys below it. Returns whether
    /// there was any.
    ///
    /// # Errors
    /// The service did not confirm the reset.
    pub async fn reset(&self, reset: impl Into<Reset>) -> Result<bool, Error> {
        let answer = self.call(None, reset.into().request, Repeat::Safe, unary!(reset)).await?;
        // Older services report only the key itself.
        Ok(answer.removed.unwrap_or(answer.existed))
    }

    /// Returns the explicitly set fallback for this check, if any.
    pub(crate) fn on_failure(&self, check: &Check) -> Option<OnFailure> {
        check.on_failure.or(self.inner.on_failure)
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker_state(&self) -> BreakerState {
        self.inner.caller.breaker.state()
    }

    /// Returns the leased units, for at most the deadline of a call, and closes all connections, of clones too. Calls
    /// in flight may fail, later calls fail. Dropping the last clone only closes the connections: leased units count as
    /// spent.
    pub async fn close(&self) {
        self.inner.leases.close().await;
        self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// Makes a call with this deadline, or the client's.
    pub(crate) async fn call<M: Clone, T, F: Future<Output = Result<T, Failure>>>(
        &self,
        deadline: Option<Duration>,
        message: M,
        repeat: Repeat,
        attempt: impl Fn(Connection, Request<M>) -> F,
    ) -> Result<T, Error> {
        self.inner.caller.call(message, deadline.unwrap_or(self.inner.deadline), repeat, attempt).await
    }

    /// Adds an ID to a check if it may be retried.
    pub(crate) fn prepared(&self, check: Check) -> Check {
        if self.inner.caller.retries > 0 { check.repeatable() } else { check }
    }
}

fn domains(checks: &[CheckRequest]) -> Vec<String> {
    checks.iter().map(|check| check.domain.clone()).collect()
}
