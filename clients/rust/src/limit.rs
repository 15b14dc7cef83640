//! Limits of a request's own: the messages of `weir.v1`, made easier to write.

use std::time::Duration;

use crate::proto::{self, limit::Algorithm};

/// A duration of a limit: the service takes whole microseconds, and the finer part is dropped.
///
/// ```
/// use std::time::Duration;
/// use weir_client::{Check, duration, proto::Gcra};
///
/// let per_second = Gcra { burst: 9, count: 10, period: duration(Duration::from_secs(1)) };
/// let check = Check::new(["ip", "192.0.2.1"]).limits([per_second]);
/// ```
pub fn duration(duration: Duration) -> Option<prost_types::Duration> {
    // As far as a duration of Protocol Buffers goes: 10,000 years.
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).min(315_576_000_000);
    let nanos = i32::try_from(duration.subsec_micros() * 1_000).unwrap_or_default();
    Some(prost_types::Duration { seconds, nanos })
}

impl proto::Limit {
    /// With a name, which answers show.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Covering the first segments of the key.
    #[must_use]
    pub fn at_depth(mut self, segments: u32) -> Self {
        self.depth = segments;
        self
    }

    /// Evaluated and counted, but never refusing.
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        self.shadow = true;
        self
    }
}

macro_rules! algorithms {
    ($($name:ident)*) => { $(
        impl From<proto::$name> for proto::Limit {
            fn from(algorithm: proto::$name) -> Self {
                Self { algorithm: Some(Algorithm::$name(algorithm)), ..Self::default() }
            }
        }
    )* };
}

algorithms! {
    Gcra TokenBucket LeakyBucket LeakyQueue FixedWindow SlidingLog SlidingWindow SlidingBuckets Decay SmoothBursty WarmingUp Cycle
    LegacyBucket Concurrency
}
