//! Limits inside a request: conversions for the messages of `weir.v1`.

use std::time::Duration;

use crate::proto::{self, limit::Algorithm};

/// Converts a duration for a limit, in whole microseconds as the service takes it; the finer part is cut off.
///
/// ```
/// use std::time::Duration;
/// use weir_client::{Check, duration, proto::Gcra};
///
/// let per_second = Gcra { burst: 9, count: 10, period: duration(Duration::from_secs(1)) };
/// let check = Check::new(["ip", "192.0.2.1"]).limits([per_second]);
/// ```
pub fn duration(duration: Duration) -> Option<prost_types::Duration> {
    // The maximum of Protocol Buffers: about 10,000 years.
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).min(315_576_000_000);
    let nanos = i32::try_from(duration.subsec_micros() * 1_000).unwrap_or_default();
    Some(prost_types::Duration { seconds, nanos })
}

impl proto::Limit {
    /// Sets the name of the limit in answers.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the number of leading segments of the key that the limit counts.
    #[must_use]
    pub fn at_depth(mut self, segments: u32) -> Self {
        self.depth = segments;
        self
    }

    /// Puts the limit in shadow mode: evaluated and counted, but never refusing.
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
