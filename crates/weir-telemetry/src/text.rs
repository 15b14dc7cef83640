//! Prometheus text format.

use std::fmt::Write;

/// Appends the HELP and TYPE lines of a family.
pub fn heading(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends a family of one series.
pub fn single(out: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    heading(out, name, kind, help);
    let _ = writeln!(out, "{name} {value}");
}

/// Escapes a label value.
pub fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Sorts the families of a text by name, and the series of each family. The series of a histogram stay in order, by
/// their bounds.
pub(crate) fn sorted(text: &str) -> String {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let heads = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        if let Some(heads) = heads {
            let name = heads.split(' ').next().unwrap_or_default();
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family { name, headings: Vec::new(), series: Vec::new() });
            }
        }
        let Some(family) = families.last_mut() else { continue };
        if heads.is_some() { family.headings.push(line) } else { family.series.push(line) }
    }
    families.sort_by_key(|family| family.name);
    let mut sorted = String::with_capacity(text.len());
    for mut family in families {
        if !family.headings.iter().any(|line| line.ends_with(" histogram")) {
            family.series.sort_unstable();
        }
        family.headings.iter().chain(&family.series).for_each(|line| {
            let _ = writeln!(sorted, "{line}");
        });
    }
    sorted
}

struct Family<'t> {
    name: &'t str,
    headings: Vec<&'t str>,
    series: Vec<&'t str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_series_are_in_order_and_buckets_by_their_bounds() {
        let text = "# HELP b of b\n# TYPE b counter\nb{x=\"2\"} 1\nb{x=\"1\"} 7\n\n# TYPE c histogram\nc_bucket{le=\"5\"} 1\n\
                    c_bucket{le=\"10\"} 1\nc_sum 3\nc_count 1\n# HELP a of a\n# TYPE a gauge\na 1\n";
        let expected = "# HELP a of a\n# TYPE a gauge\na 1\n# HELP b of b\n# TYPE b counter\nb{x=\"1\"} 7\nb{x=\"2\"} 1\n\
                        # TYPE c histogram\nc_bucket{le=\"5\"} 1\nc_bucket{le=\"10\"} 1\nc_sum 3\nc_count 1\n";
        assert_eq!(sorted(text), expected);
    }
}
