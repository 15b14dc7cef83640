//! Settings of Envoy's quotas: the domains that are divided, and the timing.

use serde::{Deserialize, Serialize};
use weir_core::{domain::time::SECOND, quota::QuotaTiming};
use weir_settings::Time;

/// The settings of Envoy's rate limit quota service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RlqsSettings {
    /// The domains, each with the keys of its buckets in the order of their path. Empty: the service is disabled.
    pub domains: Vec<QuotaDomain>,
    /// Time for which an Envoy uses an assignment that is not renewed.
    pub assignment_ttl: Time,
    /// Time without requests after which an Envoy's bucket is abandoned.
    pub idle_timeout: Time,
    /// Maximum number of buckets.
    pub max_buckets: usize,
}

/// A domain whose limits are divided: `DOMAIN=KEY/KEY`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuotaDomain {
    /// The domain.
    pub domain: String,
    /// The keys of its buckets, in order.
    pub keys: Vec<String>,
}

impl Default for RlqsSettings {
    fn default() -> Self {
        let timing = QuotaTiming::default();
        Self {
            domains: Vec::new(),
            assignment_ttl: Time(timing.ttl),
            idle_timeout: Time(timing.idle),
            max_buckets: 100_000,
        }
    }
}

impl RlqsSettings {
    /// Returns the timing of the divider.
    pub fn timing(&self) -> QuotaTiming {
        QuotaTiming { ttl: self.assignment_ttl.0, idle: self.idle_timeout.0, ..QuotaTiming::default() }
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(&self) -> Result<(), String> {
        if !(10 * SECOND..=50 * SECOND).contains(&self.assignment_ttl.0) {
            return Err("rlqs.assignment_ttl must be 10s to 50s".to_owned());
        }
        if !(30 * SECOND..=86_400 * SECOND).contains(&self.idle_timeout.0) {
            return Err("rlqs.idle_timeout must be 30s to 1d".to_owned());
        }
        if !(1..=1_000_000).contains(&self.max_buckets) {
            return Err("rlqs.max_buckets must be 1 to 1000000".to_owned());
        }
        for (index, QuotaDomain { domain, .. }) in self.domains.iter().enumerate() {
            if self.domains[..index].iter().any(|other| other.domain == *domain) {
                return Err(format!("rlqs.domains has `{}` twice", domain.escape_debug()));
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for QuotaDomain {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{}` is not DOMAIN=KEY or DOMAIN=KEY/KEY", text.escape_debug());
        let (domain, keys) = text.split_once('=').ok_or_else(wrong)?;
        let keys: Vec<String> = keys.split('/').map(str::to_owned).collect();
        if domain.is_empty() || keys.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Self { domain: domain.to_owned(), keys })
    }
}

impl From<QuotaDomain> for String {
    fn from(QuotaDomain { domain, keys }: QuotaDomain) -> Self {
        format!("{domain}={}", keys.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_written_with_the_keys_of_its_buckets() {
        let read = |text: &str| QuotaDomain::try_from(text.to_owned());
        let domain = QuotaDomain { domain: "api".to_owned(), keys: vec!["user".to_owned(), "route".to_owned()] };
        assert_eq!((read("api=user/route"), String::from(domain.clone())), (Ok(domain), "api=user/route".to_owned()));
        for wrong in ["api", "=user", "api=", "api=user//route"] {
            assert!(read(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn settings_out_of_bounds_are_rejected_by_name() {
        let with = |change: fn(&mut RlqsSettings)| {
            let mut settings = RlqsSettings::default();
            change(&mut settings);
            settings.check().err().unwrap_or_default()
        };
        assert_eq!(with(|_| {}), "");
        assert_eq!(with(|it| it.assignment_ttl = Time::seconds(9)), "rlqs.assignment_ttl must be 10s to 50s");
        assert_eq!(with(|it| it.idle_timeout = Time::seconds(29)), "rlqs.idle_timeout must be 30s to 1d");
        assert_eq!(with(|it| it.max_buckets = 0), "rlqs.max_buckets must be 1 to 1000000");
        let twice = |it: &mut RlqsSettings| {
            it.domains = ["a=b", "a=c"].into_iter().filter_map(|text| text.to_owned().try_into().ok()).collect();
        };
        assert_eq!(with(twice), "rlqs.domains has `a` twice");
    }

    #[test]
    fn the_settings_time_the_divider() {
        let (assignment_ttl, idle_timeout) = (Time::seconds(11), Time::seconds(31));
        let settings = RlqsSettings { assignment_ttl, idle_timeout, ..RlqsSettings::default() };
        let QuotaTiming { ttl, idle, .. } = settings.timing();
        assert_eq!((ttl, idle), (11 * SECOND, 31 * SECOND));
    }
}
