//! The settings of a control plane.

use std::{ops::RangeInclusive, path::PathBuf};

use serde::{Deserialize, Serialize};
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use weir_core::domain::{
    Micros,
    time::{DAY, SECOND},
};
use weir_server::dial::{Address, Destination, HTTP_2, Hints, Trust};
use weir_settings::{Secret, Time, ensure, file::is_set, tls::TlsSettings};

/// The scheme of a control plane in `limits`: `xds://HOST:PORT`.
pub const SCHEME: &str = "xds://";

/// The settings of the client of the control plane that `limits` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct XdsSettings {
    /// `node.id` of every request, by which control planes choose the policy.
    pub node_id: String,
    /// `node.metadata`: entries `name=value`.
    pub node_metadata: Vec<String>,
    /// Metadata of the call: entries `name: value`.
    pub headers: Vec<Secret>,
    /// TLS of the connection.
    pub tls: TlsSettings,
    /// Maximum size of a response, in bytes.
    pub max_message_bytes: usize,
    /// The backoff between attempts to connect.
    pub backoff: BackoffSettings,
    /// The behaviour of a start without a policy.
    pub start: Start,
    /// The file that keeps the last policy, for starts while the control plane is unreachable; empty: none.
    pub last_policy_file: PathBuf,
}

/// The backoff between attempts to connect: it doubles, with jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackoffSettings {
    /// The first delay.
    pub initial: Time,
    /// The longest delay.
    pub max: Time,
}

/// The behaviour of a start without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The ports stay closed until there is a policy.
    #[default]
    Wait,
    /// The ports open. Readiness fails, and checks fail with UNAVAILABLE, until there is a policy.
    NotReady,
    /// Like [`Start::NotReady`], but readiness does not fail.
    Ready,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { initial: Time(500_000), max: Time::seconds(30) }
    }
}

impl Default for XdsSettings {
    fn default() -> Self {
        Self {
            node_id: "default".to_owned(),
            node_metadata: Vec::new(),
            headers: Vec::new(),
            tls: TlsSettings::default(),
            max_message_bytes: 64 << 20,
            backoff: BackoffSettings::default(),
            start: Start::default(),
            last_policy_file: PathBuf::new(),
        }
    }
}

impl XdsSettings {
    /// The bounds of `backoff`, in microseconds.
    pub const BACKOFF: RangeInclusive<Micros> = SECOND / 100..=DAY;
    /// The bounds of `max_message_bytes`.
    pub const MESSAGE_BYTES: RangeInclusive<usize> = 1_024..=64 << 20;

    /// Checks the settings, for the control plane at `address`. Does not read files.
    ///
    /// # Errors
    /// A message that names the setting.
    pub fn check(&self, address: Option<&str>) -> Result<(), String> {
        if let Some(address) = address {
            self.address(address)?;
        }
        let TlsSettings { cert, key, .. } = &self.tls;
        if let (false, Some(set)) = (self.tls.enabled, self.tls.first_set()) {
            return Err(format!("xds.tls.{set} is set but TLS is not enabled: set xds.tls.enabled: true"));
        }
        ensure(is_set(cert) == is_set(key), "xds.tls.cert and xds.tls.key: either both are set or none")?;
        let bytes = self.max_message_bytes;
        ensure(Self::MESSAGE_BYTES.contains(&bytes), "xds.max_message_bytes must be 1024 to 67108864")?;
        let BackoffSettings { initial, max } = &self.backoff;
        let delays = initial.0 <= max.0 && [initial, max].iter().all(|delay| Self::BACKOFF.contains(&delay.0));
        ensure(delays, "xds.backoff.initial must be 10ms to xds.backoff.max, which must be at most 1d")?;
        self.metadata().try_for_each(|pair| pair.map(drop))?;
        self.header_pairs().try_for_each(|pair| pair.map(drop))
    }

    /// Returns the control plane, and how to connect to it. Reads files.
    ///
    /// # Errors
    /// A message that names the setting or the file.
    pub fn destination(&self, address: &str) -> Result<Destination, String> {
        let hints = Hints {
            requires_tls: |_| "set xds.tls.enabled: true (and xds.tls.ca for a CA of your own)".to_owned(),
            without_tls: "set xds.tls.enabled: false",
            ca: "xds.tls.ca",
            server_name: "xds.tls.server_name",
        };
        let trust = Trust { paths: self.tls.paths(), server_name: &self.tls.server_name, alpn: HTTP_2, hints };
        Destination::new(&self.address(address)?, trust).map_err(|why| format!("xds.tls: {why}"))
    }

    fn address(&self, address: &str) -> Result<Address, String> {
        let scheme = if self.tls.enabled { "https" } else { "http" };
        let wrong = |why| format!("limits: {why}; write {SCHEME}host:port");
        if address.contains(['/', '@']) {
            return Err(wrong(format!("`{SCHEME}{address}` is not the address of a control plane")));
        }
        if !address.contains(':') {
            return Err(wrong(format!("`{SCHEME}{address}` has no port")));
        }
        format!("{scheme}://{address}").parse().map_err(wrong)
    }

    /// Returns names and values of [`Self::node_metadata`].
    pub(super) fn metadata(&self) -> impl Iterator<Item = Result<(&str, &str), String>> {
        self.node_metadata
            .iter()
            .map(|pair| pair.split_once('=').ok_or_else(|| format!("xds.node_metadata: `{pair}` is not name=value")))
    }

    /// Returns names and values of [`Self::headers`]. An error does not show a value, which may be a token.
    pub(super) fn header_pairs(
        &self,
    ) -> impl Iterator<Item = Result<(MetadataKey<Ascii>, MetadataValue<Ascii>), String>> {
        self.headers.iter().map(|header| {
            let (name, value) = header.reveal().split_once(':').ok_or("xds.headers: an entry is not `name: value`")?;
            let name = name.trim();
            let key = MetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes());
            let value = MetadataValue::try_from(value.trim());
            match (key, value) {
                (Ok(key), Ok(value)) => Ok((key, value)),
                (Err(_), _) => Err(format!("xds.headers: `{}` is not a header name", name.escape_debug())),
                (_, Err(_)) => Err(format!("xds.headers: the value of {name} has characters that no header can hold")),
            }
        })
    }
}
