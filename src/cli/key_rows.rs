//! The usage of keys, as a table, as lines of JSON or as CSV.

use std::{borrow::Cow, io};

use clap::Args;
use serde_json::{Value, json};
use weir_core::{algorithm::message::micros, domain::Micros};

use super::{
    out::{on_one_line, print_line},
    render::human_duration,
};
use crate::proto::{HotKey, KeyUsage};

/// The columns of CSV, which are also the members of JSON.
const COLUMNS: &str =
    "domain,key,limit_name,known,used,limit,remaining,reset_after_seconds,outstanding,at_limit,shadow";

/// How rows are printed.
#[derive(Args)]
pub(super) struct Format {
    /// Print JSON, a line for each
    #[arg(long)]
    pub json: bool,
    /// Print CSV with a line of names; a key is its segments with `/` between them, as in the audit log
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

impl Format {
    /// Prints the header of the rows.
    pub(super) fn head(&self) -> io::Result<()> {
        match (self.json, self.csv) {
            (true, _) => Ok(()),
            (_, true) => print_line(COLUMNS),
            _ => print_line(format!(
                "{:>12} {:>12} {:>6} {:>12} {:>11}  key  limit",
                "used", "limit", "share", "full in", "outstanding"
            )),
        }
    }

    /// Prints one row.
    pub(super) fn row(&self, row: &KeyUsage) -> io::Result<()> {
        match (self.json, self.csv) {
            (true, _) => print_line(as_json(row)),
            (_, true) => print_line(csv(row)),
            _ => print_line(line(row)),
        }
    }
}

impl Format {
    /// Prints the header of hot keys.
    pub(super) fn hot_head(&self) -> io::Result<()> {
        match (self.json, self.csv) {
            (true, _) => Ok(()),
            (_, true) => print_line("domain,key,limit_name,refused_per_second,per_second,error_per_second,shadow"),
            _ => print_line(format!("{:>12} {:>12} {:>12}  key  limit", "refused/s", "checks/s", "error/s")),
        }
    }

    /// Formats a hot key.
    pub(super) fn hot_key(&self, hot: &HotKey) -> String {
        let HotKey { domain, key, limit_name, shadow, per_second, error_per_second, refused_per_second, .. } = hot;
        if self.json {
            let members = json!({
                "domain": domain,
                "key": key,
                "limit_name": limit_name,
                "refused_per_second": refused_per_second,
                "per_second": per_second,
                "error_per_second": error_per_second,
                "shadow": shadow,
            });
            return members.to_string();
        }
        if self.csv {
            let texts = [domain, &joined(key), limit_name].map(|text| quoted(text).into_owned()).join(",");
            return format!("{texts},{refused_per_second},{per_second},{error_per_second},{shadow}");
        }
        let name = shown_name(domain, key, limit_name, *shadow);
        format!("{refused_per_second:>12.1} {per_second:>12.1} {error_per_second:>12.1}  {name}")
    }
}

/// Returns the used fraction of the limit, 0 to 1.
pub(super) fn share(row: &KeyUsage) -> f64 {
    if row.limit == 0 { 0.0 } else { row.used as f64 / row.limit as f64 }
}

fn reset_micros(row: &KeyUsage) -> Micros {
    row.reset_after.as_ref().and_then(micros).unwrap_or_default()
}

fn reset_seconds(row: &KeyUsage) -> f64 {
    reset_micros(row) as f64 / 1e6
}

/// Joins the segments with `/`; within a segment, `/` and `\` are escaped by a `\`.
pub(super) fn joined(key: &[String]) -> String {
    let segment = |segment: &String| segment.replace('\\', r"\\").replace('/', r"\/");
    key.iter().map(segment).collect::<Vec<_>>().join("/")
}

fn as_json(row: &KeyUsage) -> Value {
    let KeyUsage {
        domain, key, hashed, limit_name, known, limit, used, remaining, outstanding, at_limit, shadow, ..
    } = row;
    let mut members = json!({ "domain": domain, "key": key, "limit_name": limit_name, "known": known });
    if !hashed.is_empty() {
        members["hashed"] = json!(hashed);
    }
    if *known {
        let numbers = [
            ("used", json!(used)),
            ("limit", json!(limit)),
            ("remaining", json!(remaining)),
            ("reset_after_seconds", json!(reset_seconds(row))),
            ("outstanding", json!(outstanding)),
            ("at_limit", json!(at_limit)),
            ("shadow", json!(shadow)),
        ];
        numbers.into_iter().for_each(|(name, number)| members[name] = number);
    }
    members
}

fn csv(row: &KeyUsage) -> String {
    let KeyUsage { domain, key, limit_name, known, limit, used, remaining, outstanding, at_limit, shadow, .. } = row;
    let texts = [domain, &joined(key), limit_name].map(|text| quoted(text).into_owned()).join(",");
    if !known {
        return format!("{texts},false,,,,,,,");
    }
    let reset = reset_seconds(row);
    format!("{texts},true,{used},{limit},{remaining},{reset},{outstanding},{at_limit},{shadow}")
}

/// Quotes a text for CSV (RFC 4180). A text that a spreadsheet would run as a formula gets a leading apostrophe, which
/// makes it text.
fn quoted(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        return quoted(&format!("'{text}")).into_owned().into();
    }
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\"")).into();
    }
    text.into()
}

fn line(row: &KeyUsage) -> String {
    let KeyUsage { domain, key, limit_name, known, limit, used, outstanding, shadow, .. } = row;
    let name = shown_name(domain, key, limit_name, *shadow);
    if !known {
        return format!("{:>12} {:>12} {:>6} {:>12} {:>11}  {name}", "?", "?", "", "", "");
    }
    let (share, reset) = (format!("{:.0}%", 100.0 * share(row)), human_duration(reset_micros(row)));
    format!("{used:>12} {limit:>12} {share:>6} {reset:>12} {outstanding:>11}  {name}")
}

/// Formats domain, key and limit on one line.
pub(super) fn shown_name(domain: &str, key: &[String], limit_name: &str, shadow: bool) -> String {
    let domain = if domain.is_empty() { String::new() } else { format!("{domain}: ") };
    let shadow = if shadow { " (shadow)" } else { "" };
    on_one_line(&format!("{domain}{}  {limit_name}{shadow}", joined(key))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_quoted_for_csv_and_harmless_on_a_terminal() {
        let key = ["user", "a/b", "x,\"y\"\u{1b}[2J"].map(str::to_owned).to_vec();
        let row = KeyUsage {
            key,
            limit_name: "l".to_owned(),
            known: true,
            limit: 4,
            used: 1,
            remaining: 3,
            ..Default::default()
        };
        assert_eq!(csv(&row), "\n,\"user/a\\/b/x,\"\"y\"\"\u{1b}[2J\",l,true,1,4,3,0,0,false,false".trim_start());
        assert!(line(&row).contains("25%") && !line(&row).contains('\u{1b}'));
        let unknown = KeyUsage { known: false, ..row };
        assert_eq!(csv(&unknown).matches(',').count(), COLUMNS.matches(',').count() + 1, "and one within the key");
        assert!(as_json(&unknown).get("used").is_none());
        assert_eq!([quoted("=1+2"), quoted("-a,b"), quoted("a=b")], ["'=1+2", "\"'-a,b\"", "a=b"]);
    }
}
