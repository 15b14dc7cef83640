//! The dynamic metadata of an answer: what was asked, and what the rules of those descriptors that passed have to say.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::{ListValue, Struct, Value, value::Kind};
use serde_json::Value as Json;

use crate::limiter::{
    descriptors::{Descriptor, DescriptorsRequest},
    status::Statuses,
};

/// `{domain, descriptors: [{entries, limit, hitsAddend}], metadata}`, the last merged from the rules in the order of the
/// request: the first value of a name stays, maps are merged.
pub fn of(request: &DescriptorsRequest, statuses: &Statuses<'_>) -> Struct {
    let descriptors = request.descriptors.iter().map(descriptor).collect();
    let mut fields = fields([("domain", text(request.domain.clone())), ("descriptors", list(descriptors))]);
    let mut merged = Struct::default();
    for status in statuses.statuses.iter().filter(|status| !status.over) {
        if let Some(Json::Object(map)) = status.rule.and_then(|rule| rule.metadata.as_ref()) {
            merge(&mut merged, map);
        }
    }
    if !merged.fields.is_empty() {
        fields.insert("metadata".to_owned(), kind(Kind::StructValue(merged)));
    }
    Struct { fields: fields.into_iter().collect() }
}

fn descriptor(descriptor: &Descriptor) -> Value {
    let entries = descriptor.entries.iter().map(|(key, value)| text(format!("{key}={value}"))).collect();
    let mut told =
        fields([("entries", list(entries)), ("hitsAddend", kind(Kind::NumberValue(descriptor.hits as f64)))]);
    if let Some(over) = descriptor.over {
        let limit = format!("requests_per_unit:{} unit:{}", over.requests_per_unit, over.unit.name().to_uppercase());
        told.insert("limit".to_owned(), text(limit));
    }
    kind(Kind::StructValue(Struct { fields: told.into_iter().collect() }))
}

fn merge(into: &mut Struct, from: &serde_json::Map<String, Json>) {
    for (name, value) in from {
        match (into.fields.get_mut(name).and_then(|known| known.kind.as_mut()), value) {
            (None, value) => drop(into.fields.insert(name.clone(), converted(value))),
            (Some(Kind::StructValue(known)), Json::Object(more)) => merge(known, more),
            _ => {}
        }
    }
}

fn converted(value: &Json) -> Value {
    kind(match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(*flag),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(converted).collect() }),
        Json::Object(map) => {
            Kind::StructValue(Struct { fields: map.iter().map(|(name, it)| (name.clone(), converted(it))).collect() })
        }
    })
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> BTreeMap<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn kind(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: String) -> Value {
    kind(Kind::StringValue(text))
}

fn list(values: Vec<Value>) -> Value {
    kind(Kind::ListValue(ListValue { values }))
}
