//! Sample answers in the documentation have the fields that the service sends.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use crate::support::{http::Client, server::Setup};

const PAGES: [&str; 3] = ["README.md", "docs/http.md", "docs/reservations.md"];
const POLICY: &str = "schema: { user: { limits: [{ gcra: { burst: 1, count: 1, period: 1h } }] } }";

/// Finds answers to checks in a JSON value: alone, in lists, or inside answers to reservations.
fn answers(value: &Value) -> Vec<BTreeSet<&str>> {
    match value {
        Value::Object(fields) if fields.contains_key("levels") => vec![fields.keys().map(String::as_str).collect()],
        Value::Object(fields) => fields.values().flat_map(answers).collect(),
        Value::Array(values) => values.iter().flat_map(answers).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn samples_have_every_field_that_is_always_sent() {
    let server = Setup::new().policy(POLICY).start();
    let mut client = Client::connect(&server.http).expect("it listens");
    let check = |cost: u32, key: &[&str]| json!({ "key": key, "cost": cost.to_string() });
    let checks = json!({ "checks": [check(1, &["user"]), check(2, &["user"]), check(1, &["other"]), check(1, &[])] });
    let sent = client.post("/v1/check_batch", &checks).json();
    let sent = answers(&sent);
    assert_eq!(sent.len(), 4, "allowed, refused, without a limit, invalid");
    let always = sent.iter().skip(1).fold(sent[0].clone(), |always, fields| &always & fields);
    for page in PAGES {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page");
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let shown: Vec<_> = lines.iter().flat_map(answers).collect();
        assert!(!shown.is_empty(), "{page} shows no answer");
        for fields in shown {
            let missing: Vec<_> = always.difference(&fields).collect();
            assert!(missing.is_empty(), "{page}: an answer without {missing:?}");
        }
    }
}
