//! The guard as a tower layer, for HTTP and gRPC services.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower_layer::Layer;
use tower_service::Service;

use crate::{Check, Client, Refusal, Verdict};

/// Guards a service: a function maps each request to a check, or to `None` to let it pass unchecked.
///
/// A refused request gets the response of [`Client::guard`]. A refused gRPC call (content type `application/grpc`) gets
/// RESOURCE_EXHAUSTED with `retry-after` and `google.rpc.RetryInfo`, or UNAVAILABLE without a decision.
///
/// ```
/// use weir_client::{Check, Client, GuardLayer, key};
///
/// # fn layers(weir: Client) {
/// let by_user = GuardLayer::new(weir.clone(), key::header::<()>("user", "x-user"));
/// let by_route = GuardLayer::new(weir, key::route::<()>("route", "/trades/{id}"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GuardLayer<K> {
    weir: Client,
    key: K,
}

impl<K> GuardLayer<K> {
    /// Guards with this function from a request to its check. [`key`] has ready-made ones.
    pub fn new(weir: Client, key: K) -> Self {
        Self { weir, key }
    }
}

impl<S, K: Clone> Layer<S> for GuardLayer<K> {
    type Service = GuardService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardService { inner, guard: self.clone() }
    }
}

/// A service behind a [`GuardLayer`].
#[derive(Clone, Debug)]
pub struct GuardService<S, K> {
    inner: S,
    guard: GuardLayer<K>,
}

impl<S, K, B, R> Service<Request<B>> for GuardService<S, K>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    K: Fn(&Request<B>) -> Option<Check>,
    B: Send + 'static,
{
    type Response = Response<Either<R, Full<Bytes>>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Only the polled service is known to be ready, not its clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (weir, check) = (self.guard.weir.clone(), (self.guard.key)(&request));
        Box::pin(async move {
            let Some(check) = check else { return Ok(inner.call(request).await?.map(Either::Left)) };
            match weir.guard(check).await {
                Verdict::Pass(headers) => {
                    let mut response = inner.call(request).await?.map(Either::Left);
                    response.headers_mut().extend(headers);
                    Ok(response)
                }
                Verdict::Refuse(refusal) if is_grpc(&request) => Ok(grpc(&refusal)),
                Verdict::Refuse(refusal) => Ok(http(refusal)),
            }
        })
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE);
    value.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn http<R>(refusal: Refusal) -> Response<Either<R, Full<Bytes>>> {
    let mut response = Response::new(Either::Right(Full::from(refusal.body)));
    *response.status_mut() = refusal.status;
    *response.headers_mut() = refusal.headers;
    response
}

fn grpc<R>(refusal: &Refusal) -> Response<Either<R, Full<Bytes>>> {
    let status = match refusal.status {
        StatusCode::TOO_MANY_REQUESTS => {
            let details = refusal.retry_after.map(|after| ErrorDetails::with_retry_info(Some(after)));
            Status::with_error_details(Code::ResourceExhausted, "rate limit exceeded", details.unwrap_or_default())
        }
        _ => Status::unavailable("no rate-limit decision"),
    };
    let mut response = status.into_http::<Full<Bytes>>().map(Either::Right);
    for name in ["retry-after", "ratelimit", "ratelimit-policy"].map(http::HeaderName::from_static) {
        if let Some(value) = refusal.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Functions from a request to its check, for [`GuardLayer`].
pub mod key {
    use http::{Method, Request};

    use crate::Check;

    /// `[prefix, VALUE]` with the value of this header, such as `["user", "alex"]`, or `-` without it. Trust a header
    /// only if a proxy or authentication before this service sets it.
    pub fn header<B>(prefix: &'static str, name: &'static str) -> impl Fn(&Request<B>) -> Option<Check> + Clone {
        move |request| {
            let value = request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
            Some(Check::new([prefix, value.as_deref().unwrap_or("-")]))
        }
    }

    /// `[prefix, METHOD, PATTERN]`, for a layer on the route with this pattern, such as `/trades/{id}`. The path itself
    /// would give each spelling and each value its own counts. HEAD shares the counts of GET, whose route answers it.
    pub fn route<B>(prefix: &'static str, pattern: &'static str) -> impl Fn(&Request<B>) -> Option<Check> + Clone {
        move |request| {
            let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
            Some(Check::new([prefix, method.as_str(), pattern]))
        }
    }

    /// `[prefix, PRINCIPAL]` with the principal that an authentication layer before this one put into the request's
    /// extensions; a request without one passes.
    pub fn principal<P: AsRef<str> + Clone + Send + Sync + 'static, B>(
        prefix: &'static str,
    ) -> impl Fn(&Request<B>) -> Option<Check> + Clone {
        move |request| Some(Check::new([prefix, request.extensions().get::<P>()?.as_ref()]))
    }
}
