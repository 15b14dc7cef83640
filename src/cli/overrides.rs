//! `weir override set|list|end`, `weir ban`, `weir unban`, `weir overrides`, `weir audit`

mod print;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use prost_types::Timestamp;
use weir_core::{
    algorithm::message::duration,
    domain::{Micros, time::parse_duration},
};
use weir_policy::overrides::FACTORS;

use super::{
    CommandResult, Failure,
    client::Client,
    hint,
    out::{self, print_error, print_line},
};
use crate::proto::{
    EndOverrideRequest, ListAuditRequest, ListOverridesRequest, Override as OverrideMessage, SetOverrideRequest,
    SetOverrideResponse, admin_client::AdminClient, r#override::Change as ChangeMessage,
};

/// Maximum number of changes on a page of `weir audit`.
const PAGE: u32 = 1_000;

/// Change limits for some keys, for a time, over the policy
#[derive(Subcommand)]
pub(super) enum Override {
    Set(SetArgs),
    List(List),
    End(End),
}

impl Override {
    pub(super) fn run(self) -> CommandResult {
        match self {
            Self::Set(command) => command.run(),
            Self::List(command) => command.run(),
            Self::End(command) => command.run(),
        }
    }
}

/// Which keys.
#[derive(Args)]
struct Pattern {
    #[command(flatten)]
    keys: Keys,
    /// The domain
    #[arg(long, default_value = "")]
    domain: String,
}

/// A key, or explicitly all: a shell omits an unquoted variable that is empty.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Keys {
    /// The first segments of the keys, root first, where `*` is any segment; or one argument with `/` between them, in which `\/` is a
    /// slash
    #[arg(value_name = "KEY")]
    key: Vec<String>,
    /// All keys of the domain
    #[arg(long)]
    all_keys: bool,
}

/// Why, and for how long.
#[derive(Args)]
struct Terms {
    /// The reason, for the audit log
    #[arg(long)]
    reason: String,
    /// Duration, such as `1h`. Default: until it is ended
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Micros>,
    /// End time, such as `2026-12-01T00:00:00Z`
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, conflicts_with = "ttl")]
    until: Option<Timestamp>,
    /// Start time. Default: now
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    from: Option<Timestamp>,
    /// Preview the effects without setting it
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Set an override, in place of the one of the same pattern
#[derive(Args)]
pub(super) struct SetArgs {
    #[command(flatten)]
    pattern: Pattern,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    client: Client,
}

/// What it changes.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct ChangeArgs {
    /// Divide the limits, as factors in policies do: 0.1 allows ten times as much
    #[arg(long)]
    factor: Option<f64>,
    /// Multiply the limits: 10 allows ten times as much, as `--factor 0.1`
    #[arg(long, value_name = "TIMES", value_parser = parse_times)]
    times: Option<f64>,
    /// Other parameters, as policy files write limits: `{ name: per-user, gcra: { burst: 99, count: 30, period: 60s } }`
    #[arg(long, value_name = "YAML", allow_hyphen_values = true, value_parser = not_an_option)]
    limits: Option<String>,
    /// Lift the limits
    #[arg(long)]
    unlimited: bool,
    /// Evaluate and count the limits, and refuse nothing
    #[arg(long)]
    shadow: bool,
    /// Refuse every request
    #[arg(long)]
    ban: bool,
}

/// Refuse every request of some keys, for a time
#[derive(Args)]
pub(super) struct Ban {
    #[command(flatten)]
    pattern: Pattern,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    client: Client,
}

/// End a ban, or any other override
#[derive(Args)]
pub(super) struct End {
    #[command(flatten)]
    pattern: Pattern,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

/// List overrides
#[derive(Args)]
pub(super) struct List {
    /// Only patterns that start with these segments
    #[arg(value_name = "KEY")]
    prefix: Vec<String>,
    /// Only those of this domain
    #[arg(long)]
    domain: Option<String>,
    /// Print JSON, a line for each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

/// Show the changes of overrides and their authors, newest first
#[derive(Args)]
pub(super) struct Audit {
    /// Maximum number of changes
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    limit: usize,
    /// Print JSON, a line for each change
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl SetArgs {
    fn run(self) -> CommandResult {
        let change = match self.change {
            ChangeArgs { factor: Some(factor), .. } => ChangeMessage::Factor(factor),
            ChangeArgs { times: Some(times), .. } => ChangeMessage::Factor(1.0 / times),
            ChangeArgs { limits: Some(limits), .. } => ChangeMessage::Limits(limits),
            ChangeArgs { unlimited: true, .. } => ChangeMessage::Unlimited(true),
            ChangeArgs { shadow: true, .. } => ChangeMessage::Shadow(true),
            _ => ChangeMessage::Ban(true),
        };
        set(self.pattern, change, self.terms, &self.client)
    }
}

impl Ban {
    pub(super) fn run(self) -> CommandResult {
        set(self.pattern, ChangeMessage::Ban(true), self.terms, &self.client)
    }
}

fn set(pattern: Pattern, change: ChangeMessage, terms: Terms, client: &Client) -> CommandResult {
    let Terms { reason, ttl, until, from, dry_run, json } = terms;
    let one = OverrideMessage {
        domain: pattern.domain,
        key: segments(pattern.keys.key)?,
        change: Some(change),
        reason,
        start: from,
        end: until,
        ..Default::default()
    };
    let request = SetOverrideRequest { r#override: Some(one), ttl: ttl.map(duration), dry_run };
    let SetOverrideResponse { r#override: set, replaced, effects, keys, more_keys } =
        client.call(async |service| AdminClient::new(service).set_override(request).await)?;
    let set = set.ok_or_else(|| Failure("the service has not said what was set".to_owned()))?;
    if json {
        print_line(print::set_json(&set, replaced.as_ref(), &effects, keys))?;
    } else {
        print_line(print::set_text(&set, replaced.as_ref(), &effects, dry_run))?;
        if let Some(keys) = keys {
            let least = if more_keys { "at least " } else { "" };
            print_line(format!("  keys with a state that it would concern: {least}{keys}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl End {
    pub(super) fn run(self) -> CommandResult {
        let request = EndOverrideRequest { domain: self.pattern.domain, key: segments(self.pattern.keys.key)? };
        let shown = print::pattern(&request.domain, &request.key);
        let ended = self.client.call(async |service| AdminClient::new(service).end_override(request).await)?.ended;
        match (&ended, self.json) {
            (_, true) => print_line(serde_json::json!({ "ended": ended.as_ref().map(print::json) }))?,
            (Some(ended), false) => print_line(format!("ended {}", print::line(ended)))?,
            (None, false) => print_line(format!("there is no override for {shown}"))?,
        }
        Ok(if ended.is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

impl List {
    pub(super) fn run(self) -> CommandResult {
        let (prefix, mut cursor, mut count) = (segments(self.prefix)?, String::new(), 0);
        loop {
            let request =
                ListOverridesRequest { domain: self.domain.clone(), prefix: prefix.clone(), page_size: 0, cursor };
            let page = self.client.call(async |service| AdminClient::new(service).list_overrides(request).await)?;
            for one in &page.overrides {
                if self.json { print_line(print::json(one))? } else { print_line(print::line(one))? }
            }
            (cursor, count) = (page.next_cursor, count + page.overrides.len());
            if cursor.is_empty() || out::is_closed() {
                if count == 0 && !self.json {
                    print_line("no overrides")?;
                }
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

impl Audit {
    pub(super) fn run(self) -> CommandResult {
        let (mut left, mut cursor) = (self.limit, String::new());
        loop {
            // One more than is shown reveals whether there are more.
            let request = ListAuditRequest { page_size: left.saturating_add(1).min(PAGE as usize) as u32, cursor };
            let page = self.client.call(async |service| AdminClient::new(service).list_audit(request).await)?;
            for event in page.events.iter().take(left) {
                if self.json { print_line(print::event_json(event))? } else { print_line(print::event(event))? }
            }
            if page.events.len() > left && !self.json {
                print_error(format_args!("weir: there are more: --limit COUNT"));
            }
            if page.events.len() > left || page.next_cursor.is_empty() || out::is_closed() {
                return Ok(ExitCode::SUCCESS);
            }
            (cursor, left) = (page.next_cursor, left - page.events.len());
        }
    }
}

/// Returns the segments of a key: a single argument is split at its slashes.
///
/// # Errors
/// The key ends within an escape, or a shell has expanded its `*`.
fn segments(key: Vec<String>) -> Result<Vec<String>, Failure> {
    if let [one] = &key[..] {
        return split(one);
    }
    hint::check_pattern_expansion(&key)?;
    Ok(key)
}

/// Splits a key at its slashes. A `\` before a `/` or a `\` makes it a part of the segment.
///
/// # Errors
/// The key ends within an escape.
pub(super) fn split(one: &str) -> Result<Vec<String>, Failure> {
    let (mut segments, mut escaped) = (vec![String::new()], false);
    for letter in one.chars() {
        match letter {
            '\\' if !escaped => escaped = true,
            '/' if !escaped => segments.push(String::new()),
            letter => {
                if escaped && !matches!(letter, '/' | '\\') {
                    segments.last_mut().into_iter().for_each(|last| last.push('\\'));
                }
                segments.last_mut().into_iter().for_each(|last| last.push(letter));
                escaped = false;
            }
        }
    }
    if escaped {
        return Err(Failure(format!(
            r"the key `{one}` ends with a `\` that escapes nothing; write `\\` for a backslash"
        )));
    }
    Ok(segments)
}

fn parse_times(text: &str) -> Result<f64, String> {
    let times = text.parse().ok().filter(|times: &f64| FACTORS.contains(&(1.0 / times)));
    times.ok_or_else(|| format!("--times must be {} to {}, not `{text}`", FACTORS.start(), FACTORS.end()))
}

/// Accepts a YAML list, `- …`, but not the next option, which stands here if an unquoted variable is empty.
fn not_an_option(text: &str) -> Result<String, String> {
    if text.starts_with("--") && !text.starts_with("---") {
        return Err(format!(
            "`{text}` is an option; write limits in YAML, such as `{{ gcra: {{ burst: 4, count: 5, period: 60s }} }}`"
        ));
    }
    Ok(text.to_owned())
}

fn parse_moment(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("`{text}` is not a timestamp; write one as 2026-12-01T00:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_argument_is_split_at_its_slashes() {
        for (written, expected) in [
            (&["user/alex"][..], &["user", "alex"][..]),
            (&[r"net/10.0.0.0\/8"], &["net", "10.0.0.0/8"]),
            (&[r"a\\/b"], &[r"a\", "b"]),
            (&["a/b", "c"], &["a/b", "c"]),
            (&["user"], &["user"]),
        ] {
            assert_eq!(segments(written.iter().map(|text| (*text).to_owned()).collect()).ok().unwrap(), expected);
        }
        assert!(segments(Vec::new()).is_ok_and(|segments| segments.is_empty()));
        let open = segments(vec![r"user\".to_owned()]).err().unwrap().0;
        assert_eq!(open, r"the key `user\` ends with a `\` that escapes nothing; write `\\` for a backslash");
    }
}
