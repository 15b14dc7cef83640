//! Why a request to a shared store has no answer, and whether it may be sent again.

use std::sync::Arc;

use thiserror::Error;

/// Why one request to a shared store has no answer. Cheap to clone: one cause may concern a whole batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No connection can be made.
    #[error("no connection: {0}")]
    Connect(Arc<str>),
    /// The connection was gone before anything was written to it.
    #[error("the connection was closed before the request was sent")]
    Closed,
    /// The node has failed of late, so it is not asked.
    #[error("the server has failed of late and is not asked: {0}")]
    BreakerOpen(Arc<str>),
    /// More requests wait than may.
    #[error("too many requests wait")]
    QueueFull,
    /// Others went before the request, and its time was up: there is more to do than the server can. It may have been sent.
    #[error("too much waits for the time that the request has")]
    Shed,
    /// The time was up before the request was sent.
    #[error("no time was left to send the request")]
    Late,
    /// The server refused to run the request.
    #[error("the server refused: {text}")]
    Refused {
        /// The kind of refusal.
        code: RefusalCode,
        /// The server's words.
        text: Arc<str>,
    },
    /// The server answered with an error that does not say whether it ran the request.
    #[error("the server failed: {0}")]
    Server(Arc<str>),
    /// The request was sent and may have been carried out.
    #[error("the reply is lost: {0}")]
    Lost(Arc<str>),
    /// The value stored under the key cannot be decoded.
    #[error("the stored state cannot be used: {0}")]
    Corrupt(Arc<str>),
}

/// The codes of refusals, as servers write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// The key's slot is served elsewhere.
    Moved,
    /// The key has moved ahead of its slot.
    Ask,
    /// Some keys of a slot under way are not there yet.
    TryAgain,
    /// The cluster does not serve the slot.
    ClusterDown,
    /// The replica has lost its master.
    MasterDown,
    /// The server is a replica.
    ReadOnly,
    /// The server reads its data.
    Loading,
    /// The server runs a script that takes long.
    Busy,
    /// The server does not have the script.
    NoScript,
    /// Credentials are missing.
    NoAuth,
    /// Credentials are wrong.
    WrongPass,
    /// The user may not do this.
    NoPerm,
    /// The server has no memory left.
    Oom,
    /// Too few replicas, or the disk fails: writes are refused.
    NoWrites,
    /// The script was not told the calendar's window in which the server's clock is.
    Clock,
}

/// Most bytes of a server's or a connection's text that are kept: it goes to logs, and may be as long as its sender likes.
const MAX_TEXT_BYTES: usize = 1_024;

/// A text from outside, cut where it is too long for a log.
pub(crate) fn cut(text: &str) -> Arc<str> {
    let bytes = text.len();
    if bytes <= MAX_TEXT_BYTES {
        return text.into();
    }
    let kept = (0..=MAX_TEXT_BYTES).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    format!("{kept}… ({bytes} bytes)").into()
}

/// The text of an error about a missing right of a script's user, which has no code before version 7.2.
const SCRIPT_USER: &str = "The user executing the script";

impl RefusalCode {
    fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(code, ..)| *code == word).map(|(_, code, _)| *code)
    }

    fn label(self) -> &'static str {
        // Codes come from the table alone, so each is found.
        Self::WORDS.iter().find(|(_, code, _)| *code == self).map_or("server", |(.., label)| label)
    }

    /// The code in an error of a command that a script runs. It stands first, or, with older servers, behind the place in
    /// the script.
    fn of_command(text: &str) -> Option<Self> {
        if text.contains(SCRIPT_USER) {
            return Some(Self::NoPerm);
        }
        text.split([' ', ':', '-']).take(8).find_map(Self::of)
    }

    /// Each code as servers write it, and its label in metrics.
    const WORDS: [(&'static str, Self, &'static str); 16] = [
        ("MOVED", Self::Moved, "moved"),
        ("ASK", Self::Ask, "ask"),
        ("TRYAGAIN", Self::TryAgain, "try_again"),
        ("CLUSTERDOWN", Self::ClusterDown, "cluster_down"),
        ("MASTERDOWN", Self::MasterDown, "master_down"),
        ("READONLY", Self::ReadOnly, "read_only"),
        ("LOADING", Self::Loading, "loading"),
        ("BUSY", Self::Busy, "busy"),
        ("NOSCRIPT", Self::NoScript, "no_script"),
        ("NOAUTH", Self::NoAuth, "auth"),
        ("WRONGPASS", Self::WrongPass, "auth"),
        ("NOPERM", Self::NoPerm, "no_permission"),
        ("OOM", Self::Oom, "out_of_memory"),
        ("NOREPLICAS", Self::NoWrites, "no_writes"),
        ("MISCONF", Self::NoWrites, "no_writes"),
        ("CLOCK", Self::Clock, "clock"),
    ];
}

impl Failure {
    /// The meaning of a server's error: its first word is a code.
    pub fn of_server(text: &str) -> Self {
        let code = RefusalCode::of(text.split(' ').next().unwrap_or_default());
        let code = code.or_else(|| text.contains(SCRIPT_USER).then_some(RefusalCode::NoPerm));
        let refused = |code| Self::Refused { code, text: cut(text) };
        code.map_or_else(|| Self::Server(cut(text)), refused)
    }

    /// The meaning of the error of one plan in a script call. Nothing of the plan was written.
    pub(crate) fn of_script(text: &str) -> Self {
        let refused = |code| Self::Refused { code, text: cut(text) };
        RefusalCode::of_command(text).map_or_else(|| Self::Corrupt(cut(text)), refused)
    }

    /// The meaning of the error of one plan in a script call that had written before.
    pub(crate) fn of_script_that_wrote(text: &str) -> Self {
        Self::Lost(cut(text))
    }

    /// Whether a plan of a script failed after it had written because the server refused what follows, as without a right:
    /// so it would each further plan, and each would stay charged without an answer.
    pub(crate) fn is_refusal_after_write(&self) -> bool {
        matches!(self, Self::Lost(text) if RefusalCode::of_command(text).is_some())
    }

    /// Whether the request was not carried out, for sure, and may be if it is sent again.
    pub fn may_be_sent_again(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Closed | Self::Refused { .. })
    }

    /// Whether the request was not carried out, for sure.
    pub fn is_without_effect(&self) -> bool {
        self.may_be_sent_again() || matches!(self, Self::BreakerOpen(_) | Self::QueueFull | Self::Late)
    }

    /// Whether there is too much to do: that says nothing of the server.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::QueueFull | Self::Shed)
    }

    /// The refusal's code, where it is one.
    pub fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Its label in metrics.
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
            Self::Refused { code, .. } => code.label(),
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
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "corrupt"),
            ("user_script:97: attempt to perform arithmetic on a nil value", "corrupt"),
            ("user_script:63: Bad data format in input.", "corrupt"),
            ("CLOCK no window is told for 1790000000000000 us since the epoch", "clock"),
        ] {
            assert_eq!(Failure::of_script(text).kind(), kind, "{text}");
        }
    }
}
