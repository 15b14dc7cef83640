//! Failures of requests to a shared store, and whether a retry is safe.

use std::sync::Arc;

use thiserror::Error;

/// Failure of one request to a shared store. Cheap to clone, since one cause may fail a whole batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No connection could be made.
    #[error("no connection: {0}")]
    Connect(Arc<str>),
    /// The connection was closed before anything was written to it.
    #[error("the connection was closed before the request was sent")]
    Closed,
    /// The circuit breaker is open, so no request was sent.
    #[error("circuit breaker open: {0}")]
    BreakerOpen(Arc<str>),
    /// The queue is full.
    #[error("too many requests wait")]
    QueueFull,
    /// The deadline passed while other requests were sent first: the server is overloaded. The request may have been
    /// sent.
    #[error("the queue takes longer than the request may wait")]
    Shed,
    /// The deadline passed before the request was sent.
    #[error("deadline exceeded before the request was sent")]
    Late,
    /// The server rejected the request without running it.
    #[error("the server rejected the command: {text}")]
    Rejected {
        /// The error code.
        code: ErrorCode,
        /// The server's error text.
        text: Arc<str>,
    },
    /// The server answered with an error that does not say whether it ran the request, or in a form that cannot be read.
    #[error("the server failed: {0}")]
    Server(Arc<str>),
    /// The request was sent and may have been executed, but there is no reply.
    #[error("the reply is lost: {0}")]
    Lost(Arc<str>),
    /// The value stored under the key cannot be decoded.
    #[error("the stored state cannot be used: {0}")]
    Corrupt(Arc<str>),
}

/// Redis error codes of requests that the server did not run. [`Self::Clock`] is the script's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// Another server serves the key's hash slot.
    Moved,
    /// The hash slot is migrating and the key has already moved.
    Ask,
    /// The hash slot is migrating and only some of the request's keys have moved.
    TryAgain,
    /// The Cluster does not serve the hash slot.
    ClusterDown,
    /// The replica has lost its connection to the master.
    MasterDown,
    /// The server is a replica.
    ReadOnly,
    /// The server is loading its data.
    Loading,
    /// The server is running a slow script.
    Busy,
    /// The request's keys are in several hash slots.
    CrossSlot,
    /// The server has not cached the script.
    NoScript,
    /// The client is not authenticated.
    NoAuth,
    /// The credentials are wrong.
    WrongPass,
    /// The ACL user lacks a permission.
    NoPerm,
    /// The server's `maxmemory` is reached.
    Oom,
    /// Writes are rejected: too few replicas, or the disk fails.
    NoWrites,
    /// The script's arguments lack the calendar window that contains the server's time.
    Clock,
}

/// Most bytes kept of an error text from a server or a connection: it goes to logs, and its sender chooses its length.
const MAX_TEXT_BYTES: usize = 1_024;

/// Truncates an error text to [`MAX_TEXT_BYTES`].
pub(crate) fn cut(text: &str) -> Arc<str> {
    let bytes = text.len();
    if bytes <= MAX_TEXT_BYTES {
        return text.into();
    }
    let kept = (0..=MAX_TEXT_BYTES).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    format!("{kept}… ({bytes} bytes)").into()
}

/// Parts of the error texts for a missing permission of a script's user, where they have no code: of Redis 7.0, and of
/// Valkey.
const SCRIPT_USER: [&str; 2] = ["The user executing the script", "ACL failure in script"];

fn is_missing_permission(text: &str) -> bool {
    SCRIPT_USER.iter().any(|part| text.contains(part))
}

impl ErrorCode {
    fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(code, ..)| *code == word).map(|(_, code, _)| *code)
    }

    fn label(self) -> &'static str {
        // Every code is in the table, so the fallback is never used.
        Self::WORDS.iter().find(|(_, code, _)| *code == self).map_or("server", |(.., label)| label)
    }

    /// Finds the code in the error of a command run by a script: at the start, or with older servers after the position
    /// in the script.
    fn of_command(text: &str) -> Option<Self> {
        if is_missing_permission(text) {
            return Some(Self::NoPerm);
        }
        text.split([' ', ':', '-']).take(8).find_map(Self::of)
    }

    /// Each code in the Redis protocol, and its label in metrics.
    const WORDS: [(&'static str, Self, &'static str); 18] = [
        ("MOVED", Self::Moved, "moved"),
        ("ASK", Self::Ask, "ask"),
        ("TRYAGAIN", Self::TryAgain, "try_again"),
        ("CLUSTERDOWN", Self::ClusterDown, "cluster_down"),
        ("MASTERDOWN", Self::MasterDown, "master_down"),
        ("READONLY", Self::ReadOnly, "read_only"),
        ("LOADING", Self::Loading, "loading"),
        ("BUSY", Self::Busy, "busy"),
        ("CROSSSLOT", Self::CrossSlot, "cross_slot"),
        ("NOSCRIPT", Self::NoScript, "no_script"),
        ("NOAUTH", Self::NoAuth, "auth"),
        // In protected mode the server rejects connections from other hosts.
        ("DENIED", Self::NoAuth, "auth"),
        ("WRONGPASS", Self::WrongPass, "auth"),
        ("NOPERM", Self::NoPerm, "no_permission"),
        ("OOM", Self::Oom, "out_of_memory"),
        ("NOREPLICAS", Self::NoWrites, "no_writes"),
        ("MISCONF", Self::NoWrites, "no_writes"),
        ("CLOCK", Self::Clock, "clock"),
    ];
}

impl Failure {
    /// Classifies a server's error by the code that is its first word.
    pub fn of_server(text: &str) -> Self {
        let code = ErrorCode::of(text.split(' ').next().unwrap_or_default());
        let code = code.or_else(|| is_missing_permission(text).then_some(ErrorCode::NoPerm));
        let rejected = |code| Self::Rejected { code, text: cut(text) };
        code.map_or_else(|| Self::Server(cut(text)), rejected)
    }

    /// Classifies the error of one plan in a script call. Nothing of the plan was written.
    pub(crate) fn of_script(text: &str) -> Self {
        let rejected = |code| Self::Rejected { code, text: cut(text) };
        ErrorCode::of_command(text).map_or_else(|| Self::Corrupt(cut(text)), rejected)
    }

    /// Classifies the error of one plan in a script call that failed after a write.
    pub(crate) fn of_script_that_wrote(text: &str) -> Self {
        Self::Lost(cut(text))
    }

    /// Whether a plan failed after it had written because the server rejected a later command, such as for a missing
    /// permission. Every further plan would fail the same way and stay charged without an answer.
    pub(crate) fn is_rejection_after_write(&self) -> bool {
        matches!(self, Self::Lost(text) if ErrorCode::of_command(text).is_some())
    }

    /// Whether the request certainly was not executed, and a retry may succeed.
    pub fn may_be_sent_again(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Closed => true,
            Self::Rejected { code, .. } => *code != ErrorCode::CrossSlot,
            _ => false,
        }
    }

    /// Whether the request certainly was not executed.
    pub fn is_without_effect(&self) -> bool {
        self.may_be_sent_again()
            || matches!(self, Self::Rejected { .. } | Self::BreakerOpen(_) | Self::QueueFull | Self::Late)
    }

    /// Whether the cause is overload, which does not make the server unhealthy.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::QueueFull | Self::Shed)
    }

    /// Returns the server's error code, if it rejected the request.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Rejected { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the label in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Closed => "closed",
            Self::BreakerOpen(_) => "breaker_open",
            Self::QueueFull => "queue_full",
            Self::Shed => "shed",
            Self::Late => "late",
            Self::Server(_) => "server",
            Self::Lost(_) => "lost",
            Self::Corrupt(_) => "corrupt",
            Self::Rejected { code, .. } => code.label(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_are_classified() {
        for (text, kind, again) in [
            ("MOVED 3999 127.0.0.1:6381", "moved", true),
            ("OOM command not allowed when used memory > 'maxmemory'.", "out_of_memory", true),
            ("WRONGPASS invalid username-password pair or user is disabled.", "auth", true),
            ("NOAUTH Authentication required.", "auth", true),
            ("DENIED Redis is running in protected mode because protected mode is enabled", "auth", true),
            ("CROSSSLOT Keys in request don't hash to the same slot", "cross_slot", false),
            ("ERR unknown command 'OOM'", "server", false),
            ("", "server", false),
        ] {
            let failure = Failure::of_server(text);
            assert_eq!((failure.kind(), failure.may_be_sent_again()), (kind, again), "{text}");
        }
    }

    #[test]
    fn server_error_texts_are_truncated() {
        let long = "€".repeat(1 << 20);
        for text in [format!("MOVED {long}"), format!("ERR {long}"), long.clone()] {
            for failure in [Failure::of_server(&text), Failure::of_script(&text), Failure::of_script_that_wrote(&text)]
            {
                let shown = failure.to_string();
                assert!(shown.len() < MAX_TEXT_BYTES + 100 && shown.ends_with(" bytes)"), "{} bytes", shown.len());
            }
        }
        assert_eq!(&*cut("ERR short"), "ERR short");
    }

    #[test]
    fn script_errors_are_classified() {
        for (text, kind) in [
            ("READONLY You can't write against a read only replica.", "read_only"),
            ("@user_script: 123: -READONLY You can't write against a read only replica.", "read_only"),
            ("user_script:412: OOM command not allowed when used memory > 'maxmemory'.", "out_of_memory"),
            ("ERR The user executing the script can't run this command or subcommand", "no_permission"),
            ("ERR ACL failure in script: User app has no permissions to run the 'time' command", "no_permission"),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "corrupt"),
            ("user_script:97: attempt to perform arithmetic on a nil value", "corrupt"),
            ("user_script:63: Bad data format in input.", "corrupt"),
            ("CLOCK no window is told for 1790000000000000 us since the epoch", "clock"),
        ] {
            assert_eq!(Failure::of_script(text).kind(), kind, "{text}");
        }
    }
}
