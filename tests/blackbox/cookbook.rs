//! docs/cookbook.md: every policy is served, every command run, and its output is compared with the page.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use weir_core::domain::time::parse_duration;

use crate::support::{Run, Server, finish, server::Setup};

const PAGE: &str = "docs/cookbook.md";
const RECIPES: usize = 14;
/// Placeholder of a time that depends on the clock.
const ANY_TIME: &str = "…";
/// Times are rounded up to a second.
const ROUNDED: Duration = Duration::from_secs(1);

/// A command of the page, and its output there.
#[derive(Debug, Default)]
struct Call {
    command: String,
    shown: String,
}

#[derive(Debug, Default)]
struct Recipe {
    policies: Vec<String>,
    calls: Vec<Call>,
}

/// Parses the recipes of a page. The part before the first heading is the first one.
fn recipes(page: &str) -> Vec<Recipe> {
    let read = |section: &str| {
        let mut recipe = Recipe::default();
        for block in section.split("\n```").skip(1).step_by(2) {
            let (language, text) = block.split_once('\n').expect("a block of lines");
            match language {
                "yaml" => recipe.policies.push(format!("{text}\n")),
                "console" => recipe.calls.extend(calls(text)),
                "sh" => {}
                _ => panic!("{PAGE} has a block of `{language}`, which no test reads"),
            }
        }
        recipe
    };
    page.split("\n## ").map(read).collect()
}

fn calls(text: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut within = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            within = command.contains("<<END");
            calls.push(Call { command: format!("{command}\n"), shown: String::new() });
            continue;
        }
        let call = calls.last_mut().unwrap_or_else(|| panic!("`{line}` stands before any command"));
        let part = if within { &mut call.command } else { &mut call.shown };
        part.push_str(&format!("{line}\n"));
        within &= line != "END";
    }
    calls
}

/// Runs a command like a reader whose program is named `weir` and serves at its default address.
fn run(server: &Server, command: &str) -> Run {
    let weir = env!("CARGO_BIN_EXE_weir");
    let script = format!(
        "weir() {{ case $1 in limits | simulate) {weir} \"$@\" ;; *) {weir} \"$@\" --addr {} ;; esac }}\n{command}",
        server.grpc
    );
    finish(std::process::Command::new("sh").args(["-c", &script]).current_dir(server.dir.path()))
}

/// Whether the output equals the page's, except for times that have advanced by at most `passed`.
fn is_shown(shown: &str, printed: &str, passed: Duration) -> bool {
    let (shown, printed): (Vec<_>, Vec<_>) = (words(shown), words(printed));
    shown.len() == printed.len() && shown.iter().zip(printed).all(|(shown, printed)| is_word(shown, printed, passed))
}

fn words(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '\n']).flat_map(|word| word.split_inclusive([',', ';'])).collect()
}

fn is_word(shown: &str, printed: &str, passed: Duration) -> bool {
    let (shown_time, shown_end) = split_end(shown);
    let (printed_time, printed_end) = split_end(printed);
    match (time(shown_time), time(printed_time)) {
        _ if shown_end != printed_end => false,
        (_, Some(_)) if shown_time == ANY_TIME => true,
        (Some(shown), Some(printed)) => printed <= shown + ROUNDED && shown <= printed + passed + ROUNDED,
        _ => shown == printed,
    }
}

fn split_end(word: &str) -> (&str, &str) {
    word.split_at(word.trim_end_matches([',', ';', ' ', '\n']).len())
}

/// Parses a time in the program's output format, such as `1h2m3s`.
fn time(word: &str) -> Option<Duration> {
    let parts: Vec<_> = word.split_inclusive(|letter: char| letter.is_ascii_alphabetic()).collect();
    let part = |part: &&str| {
        let whole = part.strip_suffix('s').and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs_f64);
        whole.or_else(|| Some(Duration::from_micros(parse_duration(part).ok()?.unsigned_abs())))
    };
    let is_time = word.starts_with(|first: char| first.is_ascii_digit()) && word.ends_with(['d', 'h', 'm', 's']);
    if is_time { parts.iter().map(part).sum() } else { None }
}

#[test]
fn the_cookbook_shows_the_actual_output() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).expect("the page");
    let recipes = recipes(&page);
    let setup = Setup::new();
    let cookbook = setup.path("cookbook");
    fs::create_dir(&cookbook).expect("a directory");
    for (number, policy) in recipes.iter().flat_map(|recipe| &recipe.policies).enumerate() {
        fs::write(cookbook.join(format!("{number}.yaml")), policy).expect("a policy is written");
    }
    let server = setup.limits(cookbook).start();

    let (opening, recipes) = recipes.split_first().expect("an opening");
    assert!(opening.policies.is_empty() && !opening.calls.is_empty(), "the opening lints the whole");
    assert_eq!(recipes.len(), RECIPES);
    for (number, recipe) in recipes.iter().enumerate() {
        let number = number + 1;
        assert_eq!(recipe.policies.len(), 1, "recipe {number} has a policy");
        assert!(!recipe.calls.is_empty(), "recipe {number} has calls");
    }
    for recipe in std::iter::once(opening).chain(recipes) {
        let since = Instant::now();
        for Call { command, shown } in &recipe.calls {
            let Run { out, err, .. } = run(&server, command);
            assert!(!shown.is_empty() && err.is_empty(), "$ {command}: {err}");
            assert!(is_shown(shown, &out, since.elapsed()), "$ {command}{PAGE} shows\n{shown}it prints\n{out}");
        }
    }
}

#[test]
fn differing_output_is_detected() {
    let shown = "allowed; 5 of 6 left, full again in 2m\n* a  allowed  5 of 6 left, full again in …\n";
    let printed = |text: &str| is_shown(shown, text, Duration::from_secs(3));
    assert!(printed(shown.replace('…', "1h2m3s").as_str()));
    assert!(printed("allowed; 5 of 6 left, full again in 1m57s\n* a  allowed  5 of 6 left, full again in 1.5s\n"));
    for (part, instead) in [
        ("5 of", "4 of"),
        ("allowed; ", "refused; "),
        ("2m", "1m50s"),
        ("2m", "2m5s"),
        ("2m", "2"),
        ("2m\n", "2m "),
        ("…\n", "1s, 2s\n"),
        ("…", "soon"),
        ("* a", "  a"),
        ("\n* a", "\n* b  x\n* a"),
    ] {
        let text = shown.replacen(part, instead, 1).replace('…', "1s");
        assert!(!printed(&text), "passes with {instead:?} for {part:?}");
    }
}
