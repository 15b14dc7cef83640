//! The page: the template's prose, with what the folders say in its places.

use super::readme::Readme;

/// The prose that belongs to no single algorithm.
pub const TEMPLATE: &str = "tests/manual/template.md";

/// The line that tells where to change the page.
const NOTE: &str = "<!-- Written by ./manual from tests/manual/template.md and crates/weir-core/src/algorithm/*/README.md: change those instead. -->";

/// Fills the template's places.
pub fn compose(template: &str, readmes: &[Readme]) -> String {
    let mut page = template.to_owned();
    for (place, text) in
        [("{{choose}}", choose(readmes)), ("{{compare}}", compare(readmes)), ("{{algorithms}}", sections(readmes))]
    {
        assert_eq!(page.matches(place).count(), 1, "{place} in {TEMPLATE}");
        page = page.replace(place, text.trim_end());
    }
    assert!(!page.contains("{{"), "a place in {TEMPLATE} that is not known");
    format!("{NOTE}\n{page}")
}

fn link(name: &str) -> String {
    format!("[`{name}`](#{name})")
}

/// What one wants, and which algorithm gives it.
fn choose(readmes: &[Readme]) -> String {
    let row = |readme: &Readme| format!("| {} | {} |\n", readme.in_short[0], link(&readme.name));
    format!("| you want | take |\n|---|---|\n{}", readmes.iter().map(row).collect::<String>())
}

/// All tables `in short` as one.
fn compare(readmes: &[Readme]) -> String {
    let row = |readme: &Readme| format!("| {} | {} |\n", link(&readme.name), readme.in_short[1..].join(" | "));
    format!(
        "| algorithm | state | time | at once | worst in any window `W` | weak point |\n|---|---|---|---|---|---|\n{}",
        readmes.iter().map(row).collect::<String>()
    )
}

/// Every README as a section, its picture behind its first paragraph.
fn sections(readmes: &[Readme]) -> String {
    readmes.iter().map(section).collect()
}

fn section(readme: &Readme) -> String {
    let name = &readme.name;
    let mut blocks: Vec<_> = readme.blocks.iter().map(|block| shifted(block)).collect();
    blocks.insert(2, format!("![{name}: the trace under this limit](algorithms/{name}.svg)"));
    format!("### {name}\n\n{}\n\n", blocks.join("\n\n"))
}

/// A block whose headings, if it has any, are below a section's.
fn shifted(block: &str) -> String {
    let is_heading = block.trim_start_matches('#').starts_with(' ') && block.starts_with('#');
    if is_heading { format!("##{block}") } else { block.to_owned() }
}
