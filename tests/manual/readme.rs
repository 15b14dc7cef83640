//! The README of an algorithm, which must have a fixed structure.

/// The rows of the table `in short`, by their first cells.
const IN_SHORT: [&str; 6] = ["you want", "state", "time", "in a burst", "worst in any window `W`", "weak point"];
/// The sections after the table of parameters, and whether each is required.
const SECTIONS: [(&str, bool); 5] =
    [("Guarantee.", true), ("Costs.", true), ("State.", true), ("Refund.", true), ("Known as.", false)];

/// The parsed README of one algorithm.
pub struct Readme {
    pub name: String,
    /// Its paragraphs and tables, without the heading.
    pub blocks: Vec<String>,
    /// The second cells of the table `in short`, in the order of [`IN_SHORT`].
    pub in_short: Vec<String>,
    /// The parameters in its table.
    pub parameters: Vec<String>,
    /// Their descriptions, in the same order.
    pub meanings: Vec<String>,
}

impl Readme {
    /// Parses the README of `name`. The error describes the missing part.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut blocks = text.trim_end().split("\n\n").map(str::to_owned);
        let heading = format!("# {name}");
        if blocks.next().as_deref() != Some(&heading) {
            return Err(format!("begins with the line `{heading}` and an empty one"));
        }
        let blocks: Vec<_> = blocks.collect();
        check_order(name, &blocks)?;
        if let Some(link) = text.split("](").skip(1).find(|link| !link.starts_with("https://")) {
            let link: String = link.chars().take_while(|letter| *letter != ')').collect();
            return Err(format!("has the link `{link}`, which leads nowhere from the manual or from rustdoc"));
        }
        let in_short = rows(&blocks, "| in short | |")?;
        let labels: Vec<_> = in_short.iter().map(|(label, _)| label.as_str()).collect();
        if labels != IN_SHORT {
            return Err(format!("the table `in short` has the rows {IN_SHORT:?}, not {labels:?}"));
        }
        let parameters = rows(&blocks, "| parameter | meaning | bounds |")?;
        let (parameters, meanings): (Vec<_>, Vec<_>) = parameters.into_iter().unzip();
        Ok(Self {
            name: name.to_owned(),
            in_short: in_short.into_iter().map(|(_, text)| text).collect(),
            parameters: parameters.iter().map(|label| label.trim_matches('`').to_owned()).collect(),
            meanings,
            blocks,
        })
    }
}

/// Checks that the required blocks are present and in order. There may be others between them.
fn check_order(name: &str, blocks: &[String]) -> Result<(), String> {
    let opening = format!("`{name}: {{ ");
    let sections = SECTIONS.map(|(section, required)| (format!("**{section}**"), required));
    let wanted = [
        (opening, true),
        ("| in short | |".to_owned(), true),
        ("**Choose it** ".to_owned(), true),
        ("| parameter | meaning | bounds |".to_owned(), true),
    ];
    let mut from = 0;
    for (start, required) in wanted.into_iter().chain(sections) {
        match blocks[from..].iter().position(|block| block.starts_with(&start)) {
            Some(at) => from += at + 1,
            None if required => {
                return Err(format!("lacks a block that begins with `{start}`, or has it out of order"));
            }
            None => {}
        }
    }
    match blocks.get(1) {
        Some(intro) if intro.starts_with(|first: char| first.is_alphanumeric() || first == '`') => Ok(()),
        _ => Err("has a paragraph behind its first line of code".to_owned()),
    }
}

/// Returns the first and second cells of the rows of the table with this header.
fn rows(blocks: &[String], header: &str) -> Result<Vec<(String, String)>, String> {
    let table = blocks.iter().find(|block| block.starts_with(header)).ok_or(format!("has no table `{header}`"))?;
    let cells = |row: &str| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let whole = cells.len() == header.trim_matches('|').split('|').count() && row.ends_with('|');
        let mut cells = cells.into_iter();
        let pair = cells.next().zip(cells.next()).filter(|(_, second)| whole && !second.is_empty());
        pair.ok_or(format!("`{row}` is not a row of `{header}`"))
    };
    table.lines().skip(2).map(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# x\n\n`x: { a: 1 }`\n\nWhat it is.\n\n| in short | |\n|---|---|\n| you want | A |\n| state | B |\n\
        | time | C |\n| in a burst | D |\n| worst in any window `W` | E |\n| weak point | F |\n\n**Choose it** when.\n\n\
        | parameter | meaning | bounds |\n|---|---|---|\n| `a` | b | c |\n\n**Guarantee.** G\n\n**Costs.** C\n\n\
        **State.** S\n\n**Refund.** R\n";

    #[test]
    fn a_valid_readme_is_parsed() {
        let readme = Readme::parse("x", GOOD).expect("of the form");
        assert_eq!(readme.in_short, ["A", "B", "C", "D", "E", "F"]);
        assert_eq!(readme.parameters, ["a"]);
        assert_eq!(readme.blocks.len(), 9);
    }

    #[test]
    fn a_malformed_readme_is_rejected() {
        for (part, instead) in [
            ("# x\n", "# y\n"),
            ("`x: { a: 1 }`", "`y: { a: 1 }`"),
            ("What it is.\n\n", ""),
            ("| time | C |\n", ""),
            ("| state | B |", "| state | |"),
            ("| state | B |", "| state | B | C |"),
            ("| in short | |", "| short | |"),
            ("**Choose it** when.\n\n", ""),
            ("**Costs.** C\n\n**State.** S", "**State.** S\n\n**Costs.** C"),
            ("| parameter |", "| name |"),
            ("What it is.", "What it is, unlike [y](../y/README.md)."),
            ("What it is.", "![What it is](x.svg)."),
        ] {
            assert!(GOOD.contains(part), "{part}");
            assert!(Readme::parse("x", &GOOD.replace(part, instead)).is_err(), "passes with {instead:?} for {part:?}");
        }
    }
}
