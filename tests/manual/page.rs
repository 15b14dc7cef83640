//! The page: the template's prose, with placeholders filled from the algorithms' folders.

use super::readme::Readme;

/// The prose outside the algorithms' own sections.
pub const TEMPLATE: &str = "tests/manual/template.md";

/// The note in the page that names its sources.
const NOTE: &str = "<!-- Written by ./manual from tests/manual/template.md and crates/weir-core/src/algorithm/*/README.md: change those instead. -->";

/// Fills the placeholders of the template.
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

/// Makes the table of use cases and algorithms.
fn choose(readmes: &[Readme]) -> String {
    let row = |readme: &Readme| format!("| {} | {} |\n", readme.in_short[0], link(&readme.name));
    format!("| you want | take |\n|---|---|\n{}", readmes.iter().map(row).collect::<String>())
}

/// Joins all tables `in short`.
fn compare(readmes: &[Readme]) -> String {
    let row = |readme: &Readme| format!("| {} | {} |\n", link(&readme.name), readme.in_short[1..].join(" | "));
    format!(
        "| algorithm | state | time | in a burst | worst in any window `W` | weak point |\n|---|---|---|---|---|---|\n{}",
        readmes.iter().map(row).collect::<String>()
    )
}

/// Makes a section of every README, with its picture after the first paragraph.
fn sections(readmes: &[Readme]) -> String {
    readmes.iter().map(section).collect()
}

fn section(readme: &Readme) -> String {
    let name = &readme.name;
    let mut blocks: Vec<_> = readme.blocks.iter().map(|block| shifted(block)).collect();
    blocks.insert(2, format!("![{name}: the trace under this limit](algorithms/{name}.svg)"));
    format!("### {name}\n\n{}\n\n", blocks.join("\n\n"))
}

/// Lowers the headings of a block below the section's heading.
fn shifted(block: &str) -> String {
    let is_heading = block.trim_start_matches('#').starts_with(' ') && block.starts_with('#');
    if is_heading { format!("##{block}") } else { block.to_owned() }
}
