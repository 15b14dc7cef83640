//! The schema of native policy files.

use serde_json::{Map, Value, json};
use weir_core::{
    algorithm::{Entry, Form, LIST},
    domain::key::{MAX_SEGMENT_BYTES, MAX_SEGMENTS},
};
use weir_policy::{
    file::{FILE_KEYS, NODE_KEYS},
    lease::LEASE_KEYS,
    limits::{BUCKET_KEYS, LIMIT_KEYS, O1S_KEYS},
};

use super::{DURATION, choices, described, root, with};
use crate::readme;

pub fn schema() -> Value {
    let head =
        "A policy of Weir in its native format. `weir limits lint` checks the rules that a schema cannot express.";
    let mut definitions = Map::new();
    definitions.insert("nodes".to_owned(), nodes());
    definitions.insert("node".to_owned(), object(properties(NODE_KEYS, of_node), json!(["object", "null"])));
    definitions.insert("limit".to_owned(), limit());
    definitions.insert("positional".to_owned(), positional());
    definitions.insert("duration".to_owned(), duration());
    definitions.extend(LIST.iter().map(|entry| (entry.name.to_owned(), algorithm(entry))));
    let file = object(properties(FILE_KEYS, of_file), json!(["object", "null"]));
    root("Weir policy", head, with(file, json!({ "$defs": definitions })))
}

fn object(properties: Map<String, Value>, kind: Value) -> Value {
    json!({ "type": kind, "properties": properties, "additionalProperties": false })
}

fn properties(keys: &[&str], of: fn(&str) -> Value) -> Map<String, Value> {
    keys.iter().map(|key| ((*key).to_owned(), of(key))).collect()
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

fn text() -> Value {
    json!({ "type": ["string", "number"] })
}

/// Returns the schema of a key with fixed values, as the reader's error lists them.
fn choice(key: &str) -> Value {
    let error =
        weir_policy::parse(&format!("{key}: '?'"), &weir_policy::Rules::default()).expect_err("no value").to_string();
    json!({ "enum": choices(&error, key).unwrap_or_else(|| panic!("{error}")) })
}

fn of_file(key: &str) -> Value {
    match key {
        "domain" => described(text(), "The name by which requests choose this policy. Default: the default domain."),
        "charge" => described(
            choice(key),
            "What a refused request is charged. all_or_nothing (default): nothing. independent: each limit that alone would have \
             allowed it.",
        ),
        "on_store_failure" => {
            described(choice(key), "What answers while a shared store is unavailable. Default: local.")
        }
        "limit_spec" => {
            described(choice(key), "Whether requests may bring their own limits. Default: the setting `limit_spec`.")
        }
        "anchor" => described(
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_SEGMENTS }),
            "How many segments of a key have their states together. Default: 2.",
        ),
        "lease" => described(lease(), "Whether replicas lease units of the limits of this file. Default: false."),
        "shadow" => described(
            json!({ "type": "boolean" }),
            "Whether every request passes, and would-be refusals are only counted. Default: false.",
        ),
        "retry_jitter" => described(
            json!({ "type": "number", "minimum": 0, "maximum": 1 }),
            "The most that is added to retry times, as a part of the wait, spread by key. Default: 0.",
        ),
        "schema" => {
            described(reference("nodes"), "The first segments of keys. An exact name takes precedence over `*`.")
        }
        "tests" => described(tests(), "Checks with their expected answers, which `weir limits lint` runs."),
        other => panic!("describe `{other}` here"),
    }
}

fn tests() -> Value {
    let whole = || json!({ "type": "integer", "minimum": 0 });
    let key = || json!({ "type": "array", "items": text() });
    let answer = json!({
        "allowed": { "type": "boolean" }, "by": text(), "remaining": whole(), "retry_after": reference("duration"),
        "reset_after": reference("duration"), "wait": reference("duration"),
    });
    let says = json!({
        "anyOf": [
            { "enum": ["allowed", "refused"] },
            { "type": "object", "properties": answer, "additionalProperties": false },
        ],
    });
    let step = json!({
        "at": reference("duration"), "key": key(), "cost": { "type": "integer" }, "max_wait": reference("duration"),
        "factor": { "type": "number", "minimum": 0 }, "says": says, "reset": key(), "subtree": { "type": "boolean" },
    });
    let step = with(
        json!({ "type": "object", "properties": step, "additionalProperties": false }),
        json!({ "oneOf": [{ "required": ["key"] }, { "required": ["reset"] }] }),
    );
    let test = json!({ "name": text(), "start": { "type": "string" }, "steps": { "type": "array", "items": step } });
    let test = json!({ "type": "object", "properties": test, "required": ["steps"], "additionalProperties": false });
    json!({ "type": ["array", "null"], "items": test })
}

fn nodes() -> Value {
    json!({
        "type": ["object", "null"],
        "propertyNames": { "minLength": 1, "maxLength": MAX_SEGMENT_BYTES },
        "additionalProperties": reference("node"),
    })
}

fn of_node(key: &str) -> Value {
    match key {
        "limits" => {
            // Selected by the written form, so that an editor reports errors of that form only.
            let item =
                json!({ "if": { "type": "array" }, "then": reference("positional"), "else": reference("limit") });
            let is_positional =
                json!({ "type": "array", "prefixItems": [{ "type": ["number", "string"] }], "minItems": 1 });
            let list = json!({
                "type": ["array", "null"],
                "if": is_positional,
                "then": reference("positional"),
                "else": { "items": item },
            });
            described(list, "The limits of keys that reach this node.")
        }
        "children" => described(reference("nodes"), "The next segments. `*` stands for any name."),
        "factor" => described(
            json!({ "type": "number", "minimum": 0 }),
            "Divides the counts of all limits at and below this node: 0.5 allows twice as much, 0 lifts them.",
        ),
        other => panic!("describe `{other}` here"),
    }
}

fn positional() -> Value {
    json!({
        "description": "[max_burst, count, seconds]: a gcra.",
        "type": "array",
        "prefixItems": [{ "type": "integer", "minimum": 0 }, { "type": "integer", "minimum": 1 }, reference("duration")],
        "minItems": 3,
        "maxItems": 3,
    })
}

fn duration() -> Value {
    json!({
        "description": "500us, 250ms, 60s, 5m, 1h, 1d, or whole seconds.",
        "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": DURATION }],
    })
}

/// A limit has one algorithm, or is a legacy bucket, or has the field names of `@o1s/rate-limiter`.
fn limit() -> Value {
    let mut all = properties(LIMIT_KEYS, of_limit);
    all.extend(LIST.iter().map(|entry| (entry.name.to_owned(), reference(entry.name))));
    let number = |name: &str| {
        described(
            json!({ "type": "number", "minimum": 0 }),
            &format!("{name} of a bucket as Sharkey defines it, times in milliseconds."),
        )
    };
    all.extend(BUCKET_KEYS.iter().map(|(spelling, name)| ((*spelling).to_owned(), number(name))));
    let of_o1s = |name: &str| {
        let number = if name == "count" { json!({ "type": "integer", "minimum": 1 }) } else { reference("duration") };
        described(number, &format!("{name} of a sliding_buckets, as @o1s/rate-limiter names it."))
    };
    all.extend(O1S_KEYS.iter().map(|(key, name)| ((*key).to_owned(), of_o1s(name))));
    let required = |names: &[&str]| json!({ "required": names });
    let spellings =
        |of: &'static str| BUCKET_KEYS.iter().filter(move |(_, name)| *name == of).map(|(spelling, _)| *spelling);
    let bucket = [required(&["max", "duration"]), required(&["size"])];
    let bucket: Vec<_> = bucket.into_iter().chain(spellings("min_interval").map(|name| required(&[name]))).collect();
    let mut forms: Vec<_> = LIST.iter().map(|entry| required(&[entry.name])).collect();
    forms.push(json!({ "anyOf": bucket }));
    forms.push(required(&["limitDuration", "durationResolution"]));
    with(object(all, json!("object")), json!({ "oneOf": forms }))
}

fn of_limit(key: &str) -> Value {
    match key {
        "name" => described(
            text(),
            "Its name in answers and metrics. With a name it keeps its counts through any change of its place.",
        ),
        "shadow" => described(json!({ "type": "boolean" }), "Whether it is evaluated and counted without refusing."),
        "lease" => described(lease(), "Whether replicas lease units of it. Default: as the file says."),
        other => panic!("describe `{other}` here"),
    }
}

fn lease() -> Value {
    let ttl = |key: &&str| {
        assert_eq!(*key, "ttl", "describe `{key}` here");
        (
            (*key).to_owned(),
            described(reference("duration"), "For how long units are leased: 50ms to 60s. Default: 250ms."),
        )
    };
    let map = object(LEASE_KEYS.iter().map(ttl).collect(), json!("object"));
    json!({ "anyOf": [{ "type": "boolean" }, map] })
}

fn algorithm(entry: &Entry) -> Value {
    let (readme, parameters) = (readme(entry.name), (entry.parameters)());
    let schemas = parameters.iter().zip(&readme.meanings).map(|(parameter, meaning)| {
        let schema = match parameter.form {
            Form::Whole { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Form::Number => json!({ "type": "number" }),
            Form::Duration => reference("duration"),
            Form::Switch => json!({ "type": "boolean" }),
            Form::Name => json!({ "type": "string" }),
            Form::Day => json!({ "type": ["integer", "string"] }),
            Form::Choice(words) => json!({ "enum": words }),
        };
        (parameter.name.to_owned(), described(schema, meaning))
    });
    let required: Vec<_> =
        parameters.iter().filter(|parameter| parameter.is_required).map(|field| field.name).collect();
    let schema = with(object(schemas.collect(), json!("object")), json!({ "required": required }));
    let is_either = ["period", "calendar"].map(|name| entry.fields.contains(&name)) == [true, true];
    let either = json!({ "oneOf": [{ "required": ["period"] }, { "required": ["calendar"] }] });
    let schema = if is_either { with(schema, either) } else { schema };
    described(schema, &readme.in_short[0])
}
