//! Compares docs/cookbook-code.md with the code of `recipes` and its output under the cookbook's policies.

use std::{cell::RefCell, fmt::Write as _, fs, mem, path::Path};

use crate::support::{self, Setup};

thread_local! {
    static PRINTED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Replaces the standard library's macro, to capture a recipe's output.
macro_rules! println {
    ($($argument:tt)*) => {
        crate::cookbook::print(format_args!($($argument)*))
    };
}

mod recipes;

fn print(line: std::fmt::Arguments<'_>) {
    PRINTED.with_borrow_mut(|printed| writeln!(printed, "{line}")).expect("memory");
}

/// Reads the page's introduction and its recipes; `None` in the packaged crate, which has no documentation.
fn sections(page: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)).ok()?;
    Some(text.split("\n## ").map(str::to_owned).collect())
}

/// Returns the code blocks in a language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("\n```{language}\n");
    text.split(opening.as_str()).skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block).collect()
}

/// Returns the body of a recipe's function, without its `Ok(())`.
fn code(number: usize) -> String {
    let source = include_str!("recipes.rs");
    let begin = format!("fn recipe_{number}(weir: &Client) -> Result<(), Error> {{\n");
    let (_, rest) = source.split_once(&begin).expect("a recipe");
    let (body, _) = rest.split_once("    Ok(())\n}\n").expect("its end");
    body.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

#[tokio::test]
async fn each_recipe_prints_its_documented_output() {
    let (Some(policies), Some(page)) = (sections("cookbook.md"), sections("cookbook-code.md")) else { return };
    let (dir, limits) = (support::dir(), support::dir());
    for (number, policy) in policies[1..].iter().flat_map(|section| blocks(section, "yaml")).enumerate() {
        fs::write(limits.path().join(format!("{number}.yaml")), policy).expect("written");
    }
    let service = Setup::new(&dir, "").env("WEIR_LIMITS", limits.path().to_str().expect("UTF-8")).start();
    let uses = include_str!("recipes.rs").split_once("\n\npub").expect("its beginning").0;
    assert_eq!(blocks(&page[0], "rust"), [format!("{uses}\n\nlet weir = Client::new(\"127.0.0.1:8081\")?;\n")]);

    let weir = service.client();
    macro_rules! run {
        ($($number:literal $recipe:ident)*) => {
            assert_eq!(page.len() - 1, [$($number),*].len());
            $(
                let section = &page[$number];
                assert_eq!(blocks(section, "rust"), [code($number)], "recipe {}", $number);
                recipes::$recipe(&weir).await.expect("no outage");
                let printed = PRINTED.with_borrow_mut(mem::take);
                assert_eq!(blocks(section, "text"), [printed], "recipe {}", $number);
            )*
        };
    }
    run! {
        1 recipe_1 2 recipe_2 3 recipe_3 4 recipe_4 5 recipe_5 6 recipe_6 7 recipe_7 8 recipe_8 9 recipe_9 10 recipe_10
        11 recipe_11 12 recipe_12 13 recipe_13 14 recipe_14
    }
}
