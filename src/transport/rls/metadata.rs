//! The dynamic metadata of an answer: the request, and the metadata of the rules whose descriptors are not over.

use std::collections::BTreeMap;

use prost_types::{Struct, Value, value::Kind};
use serde_json::Value as Json;

use super::wire::{self, RateLimitRequest};
use crate::limiter::{
    descriptors::{Descriptor, DescriptorLimit},
    status::DescriptorAnswers,
};

/// Returns `{domain, descriptors: [{entries, limit, hitsAddend}], hitsAddend, metadata}`, with the entries that are
/// kept. Limits and hits are present if the request specifies them. `metadata` is merged from the rules that have a limit and are not over, in the order
/// of the request: the first value of a name is kept, maps are merged.
pub fn of(request: &RateLimitRequest, statuses: &DescriptorAnswers<'_>) -> Struct {
    let query = &request.query;
    let descriptors = query.descriptors.iter().zip(&request.own_hits);
    let descriptors = descriptors.map(|(one, own_hits)| descriptor(one, *own_hits)).collect::<Vec<_>>();
    let mut fields = fields([("domain", query.domain.clone().into()), ("descriptors", descriptors.into())]);
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".to_owned(), request.hits_addend.into());
    }
    let mut merged = Struct::default();
    for status in statuses.statuses.iter().filter(|status| !status.over && status.displayed.is_some()) {
        if let Some(Json::Object(map)) = status.rule.and_then(|rule| rule.metadata.as_ref()) {
            merge(&mut merged, map);
        }
    }
    if !merged.fields.is_empty() {
        fields.insert("metadata".to_owned(), merged.fields.into());
    }
    Struct { fields }
}

fn descriptor(descriptor: &Descriptor, own_hits: bool) -> Value {
    let entries = wire::entries_as_sent(descriptor).map(|(key, value)| format!("{key}={value}").into());
    let mut members = fields([("entries", entries.collect::<Vec<_>>().into())]);
    if own_hits {
        members.insert("hitsAddend".to_owned(), (descriptor.hits as f64).into());
    }
    if let Some(over) = descriptor.over {
        members.insert("limit".to_owned(), limit(over).into());
    }
    members.into()
}

/// Formats a limit in the text format of protobuf, which omits zeros.
fn limit(DescriptorLimit { requests_per_unit, unit }: DescriptorLimit) -> String {
    let unit = format!("unit:{}", unit.name().to_uppercase());
    if requests_per_unit == 0 { unit } else { format!("requests_per_unit:{requests_per_unit} {unit}") }
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
    match value {
        Json::Null => Kind::NullValue(0).into(),
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => number.as_f64().unwrap_or_default().into(),
        Json::String(text) => text.clone().into(),
        Json::Array(values) => values.iter().map(converted).collect::<Vec<_>>().into(),
        Json::Object(map) => {
            map.iter().map(|(name, it)| (name.clone(), converted(it))).collect::<BTreeMap<_, _>>().into()
        }
    }
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> BTreeMap<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests;
