//! The report of a comparison, as text or JSON.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use serde_json::{Value, json};

use super::{
    Candidate, Comparison,
    difference::Treatment,
    differing_keys::{KeyDifferences, Name as Key},
};
use crate::{
    cli::{
        out::on_one_line,
        render::human_duration,
        simulate::{simulation::print_json, timestamps::at_text},
    },
    limiter::totals::{LimitTotals, Name},
};

impl<S> Comparison<S> {
    /// Prints totals, limits, and the keys that are treated differently.
    pub(crate) fn report(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.print.json { self.report_json(out) } else { self.report_text(out) }
    }

    fn report_json(&self, out: &mut dyn Write) -> io::Result<()> {
        print_json(
            out,
            &json!({ "kind": "total", "requests": self.requests, "resets": self.resets, "differ": self.counts.sum(),
                "how": self.counts, "a": self.a.total(), "b": self.b.total(),
                "keys": { "differ": self.differing.count(), "let_go": self.differing.dropped() } }),
        )?;
        for (name, [a, b]) in self.limits() {
            let (a, b) = (self.a.did(name, a), self.b.did(name, b));
            print_json(out, &json!({ "kind": "limit", "domain": name.0, "limit": name.1, "a": a, "b": b }))?;
        }
        for ((domain, key), differences) in self.differing.top(self.print.top) {
            let KeyDifferences { counts, line, at, kind, limit, missed_at_most } = differences;
            print_json(
                out,
                &json!({ "kind": "key", "domain": domain, "key": key, "differ": counts.sum(), "how": counts,
                    "missed_at_most": missed_at_most,
                    "first": { "line": line, "at_us": at, "how": kind, "limit": limit } }),
            )?;
        }
        Ok(())
    }

    /// Returns the limits that have counts under either policy.
    fn limits(&self) -> Vec<(&Name, [Option<LimitTotals>; 2])> {
        let (a, b) = (self.a.totals.by_name(), self.b.totals.by_name());
        let names: BTreeSet<&Name> = a.keys().chain(b.keys()).copied().collect();
        names.into_iter().map(|name| (name, [&a, &b].map(|totals| totals.get(name).copied()))).collect()
    }

    fn report_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "A: {}\nB: {}", self.a.name, self.b.name)?;
        let differ = match self.counts.sum() {
            0 => "none is treated differently".to_owned(),
            some => format!("{some} are treated differently: {}", self.counts.text()),
        };
        writeln!(out, "{} requests, of which {differ}", self.requests)?;
        for (letter, side) in [("A", &self.a), ("B", &self.b)] {
            let Candidate { allowed, refused, invalid, first_invalid, .. } = side;
            write!(out, "{letter}: {allowed} allowed, {refused} refused")?;
            if let Some((line, error)) = first_invalid {
                write!(out, ", {invalid} not valid, the first in line {line}: {}", on_one_line(error))?;
            }
            writeln!(out)?;
        }
        self.print_limits(out)?;
        self.print_keys(out)
    }

    fn print_limits(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows =
            vec![["limit", "A allowed", "A refused", "B allowed", "B refused", "differences"].map(str::to_owned)];
        for (name, [a, b]) in self.limits() {
            let counts = |totals: Option<LimitTotals>| {
                totals.map_or(["-".to_owned(), "-".to_owned()], |totals| {
                    [totals.allowed.to_string(), totals.refused.to_string()]
                })
            };
            let ([a_allowed, a_refused], [b_allowed, b_refused]) = (counts(a), counts(b));
            let decided = self.a.decided(name) + self.b.decided(name);
            let limit = if name.0.is_empty() { name.1.clone() } else { format!("{}: {}", name.0, name.1) };
            rows.push([limit, a_allowed, a_refused, b_allowed, b_refused, decided.to_string()]);
        }
        if rows.len() == 1 {
            return writeln!(out, "no limit applies to any of them");
        }
        let widths: [usize; 6] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
        writeln!(out)?;
        for [limit, numbers @ ..] in &rows {
            write!(out, "{limit:0$}", widths[0])?;
            for (number, width) in numbers.iter().zip(&widths[1..]) {
                write!(out, "  {number:>width$}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn print_keys(&self, out: &mut dyn Write) -> io::Result<()> {
        let (all, top) = (self.differing.count(), self.differing.top(self.print.top));
        if all == 0 {
            return Ok(());
        }
        let which = if top.len() < all { format!("; the {} that do most", top.len()) } else { String::new() };
        let at_least = if self.differing.dropped() > 0 { "at least " } else { "" };
        writeln!(out, "\nkeys that are treated differently: {at_least}{all}{which}")?;
        if self.differing.dropped() > 0 {
            writeln!(
                out,
                "(more than are kept at once: those that differ least were dropped {} times, so a key may have \
                 differed before it is first counted here, at most as often as is said)",
                self.differing.dropped()
            )?;
        }
        for ((domain, key), differences) in top {
            writeln!(out, "  {}", key_line(&(domain.clone(), key.clone()), differences))?;
        }
        Ok(())
    }
}

impl<S> Candidate<S> {
    fn total(&self) -> Value {
        let first_invalid = self.first_invalid.as_ref().map(|(line, error)| json!({ "line": line, "error": error }));
        json!({ "policy": self.name, "allowed": self.allowed, "refused": self.refused, "invalid": self.invalid,
            "first_invalid": first_invalid })
    }

    fn decided(&self, name: &Name) -> u64 {
        self.decided.get(name).copied().unwrap_or_default()
    }

    fn did(&self, name: &Name, totals: Option<LimitTotals>) -> Value {
        let Some(totals) = totals else { return Value::Null };
        let mut did = json!(totals);
        did["decided_differences"] = self.decided(name).into();
        did
    }
}

fn key_line((domain, key): &Key, differences: &KeyDifferences) -> String {
    let KeyDifferences { counts, line, at, kind, limit, missed_at_most } = differences;
    let missed = if *missed_at_most > 0 { format!(" (and at most {missed_at_most} before)") } else { String::new() };
    let which = if counts.kinds() > 1 { format!(", {}", kind.text()) } else { String::new() };
    let by = match (kind.decided_by(), limit) {
        (Some(side), Some(limit)) => format!(", by {limit} of {side:?}"),
        _ => String::new(),
    };
    let key = key_text(domain, key);
    format!("{key}: {}{missed}; first in line {line} {}{which}{by}", counts.text(), at_text(*at))
}

/// Formats a key on one line.
pub(super) fn key_text(domain: &str, key: &[String]) -> String {
    let path = key.join(" / ");
    let text = if domain.is_empty() { path } else { format!("{domain}: {path}") };
    on_one_line(&text).into_owned()
}

/// Formats the treatment of a request.
pub(super) fn treatment_text(treatment: &Treatment<'_>) -> String {
    match treatment {
        Treatment::Allowed { wait_us: 0, .. } => "allows it".to_owned(),
        Treatment::Allowed { wait_us, limit } => {
            let by = limit.map(|limit| format!(" ({limit})")).unwrap_or_default();
            format!("allows it after {}{by}", human_duration(*wait_us))
        }
        Treatment::Refused { retry_after_us: Some(retry), limit } => {
            format!("refuses it ({limit}, retry after {})", human_duration(*retry))
        }
        Treatment::Refused { retry_after_us: None, limit } => format!("refuses it ({limit}, for ever)"),
        Treatment::Invalid { error } => format!("has no answer: {}", on_one_line(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_printed_as_text() {
        let allowed = |wait_us| Treatment::Allowed { wait_us, limit: Some("l") };
        let refused = |retry_after_us| Treatment::Refused { retry_after_us, limit: "l" };
        for (treatment, text) in [
            (allowed(0), "allows it"),
            (allowed(2_000_000), "allows it after 2s (l)"),
            (refused(Some(9)), "refuses it (l, retry after 0.000009s)"),
            (refused(None), "refuses it (l, for ever)"),
            (Treatment::Invalid { error: "why".to_owned() }, "has no answer: why"),
        ] {
            assert_eq!(treatment_text(&treatment), text);
        }
    }

    #[test]
    fn control_characters_in_keys_are_escaped() {
        let key = ["ip".to_owned(), "a\u{1b}[2Jb\nc".to_owned()];
        assert_eq!(key_text("api", &key), "api: ip / a\\u001b[2Jb\\nc");
        assert_eq!(key_text("", &key[..1]), "ip");
    }
}
