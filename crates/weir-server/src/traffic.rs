//! Connection lifetime and request rate of a port.

use std::ops::RangeInclusive;

use weir_core::domain::{
    Micros,
    time::{DAY, SECOND},
};
use weir_settings::Time;

/// Maximum request rate: a higher one would bound nothing in practice.
const MAX_REQUESTS: u32 = 10_000_000;

/// Bounds on the lifetime of connections and the rate of requests. 0 means none.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Maximum age of a connection, with a jitter of a tenth in either direction.
    pub max_connection_age: Time,
    /// Timeout for calls in flight at that age.
    pub max_connection_age_grace: Time,
    /// Idle timeout of a connection that has had a request.
    pub idle_timeout: Time,
    /// Maximum number of requests per second of one connection.
    pub max_requests_per_second: u32,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            max_connection_age: Time::seconds(3_600),
            max_connection_age_grace: Time::seconds(30),
            idle_timeout: Time(0),
            max_requests_per_second: 0,
        }
    }
}

impl Traffic {
    /// The bounds of an age or idle timeout that is set, in microseconds.
    pub const AGE: RangeInclusive<Micros> = SECOND / 10..=366 * DAY;
    /// The bounds of `max_connection_age_grace`, in microseconds.
    pub const GRACE: RangeInclusive<Micros> = 0..=DAY;

    /// Checks bounds; `section` is the name of the section of these settings.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(&self, section: &str) -> Result<(), String> {
        let lasts = |time: Time| time.0 == 0 || Self::AGE.contains(&time.0);
        for (holds, otherwise) in [
            (lasts(self.max_connection_age), "max_connection_age must be 100ms to 366d, or 0 for none"),
            (Self::GRACE.contains(&self.max_connection_age_grace.0), "max_connection_age_grace must be 0 to 1d"),
            (lasts(self.idle_timeout), "idle_timeout must be 100ms to 366d, or 0 for none"),
            (
                (0..=MAX_REQUESTS).contains(&self.max_requests_per_second),
                "max_requests_per_second must be 1 to 10000000, or 0 for none",
            ),
        ] {
            if !holds {
                return Err(format!("{section}.{otherwise}"));
            }
        }
        Ok(())
    }
}
