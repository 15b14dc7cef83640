//! The schemas accept valid files, and reject structures that the readers reject.

use std::fs;

use serde_json::Value;
use weir::config::{Flags, Settings};
use weir_core::algorithm::LIST;
use weir_settings::document::{self, Node, Value as Document};

use super::{policy, settings, validator::accepts};
use crate::{read, root};

/// Parses YAML like an editor.
fn json(yaml: &str) -> Value {
    document::parse(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}")).map_or(Value::Null, |node| of_node(&node))
}

fn of_node(node: &Node) -> Value {
    match &node.value {
        Document::Null => Value::Null,
        Document::Scalar(text) if node.plain => plain(text),
        Document::Scalar(text) => Value::from(text.as_str()),
        Document::List(items) => items.iter().map(of_node).collect(),
        Document::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), of_node(&entry.value))).collect(),
    }
}

fn plain(text: &str) -> Value {
    let number = || text.parse::<i64>().ok().map(Value::from).or_else(|| text.parse::<f64>().ok().map(Value::from));
    match text {
        "true" | "false" => Value::from(text == "true"),
        _ => number().filter(|_| !text.starts_with(['i', 'n', 'N'])).unwrap_or_else(|| Value::from(text)),
    }
}

fn is_policy(text: &str) -> bool {
    weir_policy::parse(text, &weir_policy::Rules::default()).is_ok()
}

fn is_settings(text: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("weir.yaml");
    fs::write(&path, text).expect("written");
    Settings::load(Some(&path), [], &Flags::default()).is_ok()
}

/// Returns the YAML blocks of a page.
fn quoted(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.map(str::to_owned).collect()
}

#[test]
fn the_files_and_pages_of_the_repository_are_valid() {
    let (policy, settings) = (policy::schema(), settings::schema());
    assert!(accepts(&policy, &json(&read("config/limits.yaml"))));
    assert!(accepts(&settings, &json(&read("config/weir.yaml"))));
    let defaults = serde_json::to_value(Settings::default()).expect("JSON");
    assert!(accepts(&settings, &defaults));

    let pages = fs::read_dir(root().join("docs")).expect("a directory").map(|entry| entry.expect("an entry").path());
    let pages: Vec<_> = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    let mut policies = 0;
    for page in pages.iter().map(|path| fs::read_to_string(path).expect("a page")) {
        for text in quoted(&page) {
            // A page may quote a node alone.
            let nested: String = text.lines().map(|line| format!("    {line}\n")).collect();
            let text = if text.starts_with("limits:") { format!("schema:\n  a:\n{nested}") } else { text };
            if text.contains("schema:") && is_policy(&text) {
                assert!(accepts(&policy, &json(&text)), "{text}");
                policies += 1;
            }
        }
    }
    assert!(policies > 10, "only {policies} policies are quoted in docs");
}

#[test]
fn examples_of_every_algorithm_are_valid_and_unknown_parameters_are_not() {
    let schema = policy::schema();
    for (entry, example) in LIST.iter().flat_map(|entry| entry.examples.iter().map(move |example| (entry, example))) {
        let parameters: Vec<_> = example.iter().map(|(name, text)| format!("{name}: {text}")).collect();
        let text = |more: &str| {
            format!("schema: {{ a: {{ limits: [{{ {}: {{ {}{more} }} }}] }} }}", entry.name, parameters.join(", "))
        };
        assert!(accepts(&schema, &json(&text(""))), "{}", text(""));
        assert!(!accepts(&schema, &json(&text(", bursts: 1"))) && !is_policy(&text(", bursts: 1")), "{}", entry.name);
        for (missing, _) in *example {
            let rest: Vec<_> =
                parameters.iter().filter(|text| !text.starts_with(&format!("{missing}:"))).cloned().collect();
            let text = format!("schema: {{ a: {{ limits: [{{ {}: {{ {} }} }}] }} }}", entry.name, rest.join(", "));
            let error = weir_policy::parse(&text, &weir_policy::Rules::default()).err().map(|error| error.to_string());
            let is_missing = error.is_some_and(|error| error.contains("is missing"));
            assert_eq!(accepts(&schema, &json(&text)), !is_missing, "{text}");
        }
    }
}

#[test]
fn the_policy_schema_rejects_what_the_parser_rejects() {
    let schema = policy::schema();
    let limit = |limit: &str| format!("schema: {{ a: {{ limits: {limit} }} }}");
    for (text, is_valid) in [
        (
            "domain: api\ncharge: independent\non_store_failure: deny\nlimit_spec: deny\nanchor: 1\nschema:".to_owned(),
            true,
        ),
        ("schema: { a: , '*': { children: { b: { factor: 0.5 } } } }".to_owned(), true),
        ("schemas: {}".to_owned(), false),
        ("charge: both".to_owned(), false),
        ("on_store_failure: allowed".to_owned(), false),
        ("limit_spec: true".to_owned(), false),
        ("anchor: 33".to_owned(), false),
        ("anchor: two".to_owned(), false),
        ("schema: []".to_owned(), false),
        ("schema: { '': {} }".to_owned(), false),
        ("schema: { a: { limit: [] } }".to_owned(), false),
        ("schema: { a: { factor: -1 } }".to_owned(), false),
        (limit("[1, 2, 3]"), true),
        (limit("[[1, 2, 3], [1, 2, 3s]]"), true),
        (limit("[1, 2]"), false),
        (limit("[1, ten, 3]"), false),
        (limit("[1, 2, 3 s]"), false),
        (limit("{ gcra: { count: 1, period: 1s } }"), false),
        (limit("[{ gcra: { count: 1, period: 1s }, name: a, shadow: true }]"), true),
        (limit("[{ gcra: { count: 1, period: 1s }, shadow: maybe }]"), false),
        (limit("[{ gcra: { count: 1, period: 1s }, window: 1s }]"), false),
        (limit("[{ gcra: { count: 1, period: 1s }, token_bucket: { capacity: 1, count: 1, period: 1s } }]"), false),
        (limit("[{ gcra: { count: 1, period: 1s }, size: 1 }]"), false),
        (limit("[{ gcra: { count: ten, period: 1s } }]"), false),
        (limit("[{ gcra: { count: 0, period: 1s } }]"), false),
        (limit("[{ gcra: { count: 1, period: soon } }]"), false),
        (limit("[{ gcra: 10 }]"), false),
        (limit("[{ name: a }]"), false),
        (limit("[{ max: 1, duration: 1000, minInterval: 10 }, { size: 1, dripRate: 5 }, { min_interval: 5 }]"), true),
        (limit("[{ max: 1 }]"), false),
    ] {
        assert_eq!((accepts(&schema, &json(&text)), is_policy(&text)), (is_valid, is_valid), "{text}");
    }
}

#[test]
fn the_settings_schema_rejects_what_the_parser_rejects() {
    let schema = settings::schema();
    for (text, is_valid) in [
        ("grpc: { listen: '127.0.0.1:1', workers: 3, max_connection_age: 5, tls: }", true),
        ("http: { ui: { enabled: yes, hosts: [a, b] }, headers: x-ratelimit }", true),
        ("tracing: { sample_ratio: 0.5 }\nlog:", true),
        ("listen: 8081", false),
        ("grpc: 8081", false),
        ("grpc: { lisen: x }", false),
        ("grpc: { workers: many }", false),
        ("grpc: { workers: -1 }", false),
        ("grpc: { workers: 1.5 }", false),
        ("http: { ui: { enabled: maybe } }", false),
        ("http: { headers: none }", false),
        ("limit_spec: forbid", false),
        ("shutdown: { delay: soon }", false),
        ("store: { redis: { pool: 1 } }", false),
    ] {
        assert_eq!((accepts(&schema, &json(text)), is_settings(text)), (is_valid, is_valid), "{text}");
    }
}
