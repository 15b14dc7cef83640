//! Converts the messages of a control plane to the documents of the same policy in files, so that one reader compiles
//! both.

use std::path::{Path, PathBuf};

use prost::{DecodeError, Message, Name};
use prost_types::{Struct, Value as ProtoValue, value::Kind};
use serde_json::Value as Json;
use weir_envoy::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use weir_policy::{Loaded, Rules, TextHash};
use weir_settings::{
    Problems,
    document::{Entry, Node, Value},
    problem::Mark,
};

use super::DiscoveryResponse;

/// Compiles a response, which is a whole policy. Blocks the thread.
///
/// # Errors
/// All problems, each with the resource, the domain and the descriptor.
pub fn compile(response: &DiscoveryResponse, rules: &Rules) -> Result<Loaded, Problems> {
    let (mut paths, mut problems, mut documents) = (DescriptorPaths::default(), Problems::default(), Vec::new());
    if !["", &RateLimitConfig::type_url()].contains(&&*response.type_url) {
        let wrong = format!("the response is of `{}`", response.type_url.escape_debug());
        problems = Problems::of_file(Path::new("xds"), wrong);
    }
    for (index, resource) in response.resources.iter().enumerate() {
        let wrong = |message: String| Problems::of_file(&PathBuf::from(format!("xds:#{index}")), message);
        if resource.type_url != RateLimitConfig::type_url() {
            problems.0.extend(wrong(format!("the resource is a `{}`", resource.type_url.escape_debug())).0);
            continue;
        }
        match RateLimitConfig::decode(&*resource.value) {
            Ok(config) => {
                let name = if config.name.is_empty() { format!("#{index}") } else { config.name.clone() };
                documents.push((PathBuf::from(format!("xds:{name}")), paths.file(&config)));
            }
            Err(error) => problems.0.extend(wrong(format!("the resource cannot be decoded: {}", cause(&error))).0),
        }
    }
    // Sorted, since control planes send resources in any order.
    documents.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut values: Vec<_> = response.resources.iter().map(|resource| &resource.value).collect();
    values.sort();
    let mut text = TextHash::default();
    values.into_iter().for_each(|value| text.add(value));
    match Loaded::compile(documents, rules, text) {
        Ok(loaded) if problems.0.is_empty() => Ok(loaded),
        Ok(_) => Err(problems),
        Err(found) => {
            problems.0.extend(paths.name(found).0);
            Err(problems)
        }
    }
}

/// Returns the error, without the messages around the field that cannot be decoded: nested descriptors have one each.
fn cause(error: &DecodeError) -> String {
    let text = error.to_string();
    match text.split(": ").collect::<Vec<_>>()[..] {
        [what, field, _, _, .., why] => format!("{what}: {field}: …: {why}"),
        _ => text.clone(),
    }
}

/// The descriptors of a response, by the numbers that replace lines in their nodes.
#[derive(Default)]
struct DescriptorPaths(Vec<String>);

impl DescriptorPaths {
    /// Adds a descriptor by its name in problems, `domain.key_value.key` as in envoyproxy/ratelimit.
    fn add(&mut self, path: &str) -> Mark {
        self.0.push(path.to_owned());
        Mark { line: self.0.len(), column: 0 }
    }

    /// Returns the problems, each with its descriptor instead of a line.
    fn name(&self, mut problems: Problems) -> Problems {
        for problem in &mut problems.0 {
            let path = problem.mark.line.checked_sub(1).and_then(|line| self.0.get(line));
            if let Some(path) = path.filter(|path| !path.is_empty()) {
                problem.message = format!("{path}: {}", problem.message);
            }
            problem.mark = Mark::default();
        }
        problems
    }

    fn file(&mut self, config: &RateLimitConfig) -> Node {
        let mark = self.add(&config.domain);
        let descriptors = self.descriptors(&config.descriptors, &config.domain, mark);
        map(mark, [("domain", text(mark, &config.domain)), ("descriptors", descriptors)])
    }

    fn descriptors(&mut self, descriptors: &[RateLimitDescriptor], above: &str, mark: Mark) -> Node {
        let items = descriptors.iter().map(|descriptor| self.descriptor(descriptor, above)).collect();
        Node { mark, value: Value::List(items), plain: false }
    }

    fn descriptor(&mut self, descriptor: &RateLimitDescriptor, above: &str) -> Node {
        let RateLimitDescriptor {
            key,
            value,
            rate_limit,
            descriptors,
            shadow_mode,
            detailed_metric,
            quota_mode,
            metadata,
        } = descriptor;
        let dot = if above.is_empty() { "" } else { "." };
        let joint = if value.is_empty() { "" } else { "_" };
        let path = format!("{above}{dot}{key}{joint}{value}");
        let mark = self.add(&path);
        let mut entries = vec![("key", text(mark, key)), ("value", text(mark, value))];
        for (name, flag) in
            [("shadow_mode", shadow_mode), ("detailed_metric", detailed_metric), ("quota_mode", quota_mode)]
        {
            entries.push((name, text(mark, if *flag { "true" } else { "false" })));
        }
        entries.extend(rate_limit.as_ref().map(|limit| ("rate_limit", rate_limit_node(limit, mark))));
        entries.extend(metadata.as_ref().map(|metadata| ("metadata", Node::from(json_of_struct(metadata)))));
        if !descriptors.is_empty() {
            entries.push(("descriptors", self.descriptors(descriptors, &path, mark)));
        }
        map(mark, entries)
    }
}

fn rate_limit_node(limit: &RateLimitPolicy, mark: Mark) -> Node {
    let RateLimitPolicy { unit, requests_per_unit, unlimited, name, replaces } = limit;
    let unit = RateLimitUnit::try_from(*unit).map_or_else(|_| unit.to_string(), |unit| unit.as_str_name().to_owned());
    let replaces = replaces.iter().map(|replaced| map(mark, [("name", text(mark, &replaced.name))])).collect();
    map(
        mark,
        [
            ("unit", text(mark, &unit)),
            ("requests_per_unit", text(mark, &requests_per_unit.to_string())),
            ("unlimited", text(mark, if *unlimited { "true" } else { "false" })),
            ("name", text(mark, name)),
            ("replaces", Node { mark, value: Value::List(replaces), plain: false }),
        ],
    )
}

fn map<'a>(mark: Mark, entries: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let entries = entries.into_iter().map(|(key, value)| Entry { mark, key: key.to_owned(), value }).collect();
    Node { mark, value: Value::Map(entries), plain: false }
}

fn text(mark: Mark, text: &str) -> Node {
    Node { mark, value: Value::Scalar(text.to_owned()), plain: false }
}

fn json_of_struct(metadata: &Struct) -> Json {
    Json::Object(metadata.fields.iter().map(|(name, value)| (name.clone(), json(value))).collect())
}

fn json(value: &ProtoValue) -> Json {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::NumberValue(number)) => Json::from(*number),
        Some(Kind::StringValue(text)) => Json::from(text.as_str()),
        Some(Kind::BoolValue(flag)) => Json::from(*flag),
        Some(Kind::StructValue(inner)) => json_of_struct(inner),
        Some(Kind::ListValue(list)) => Json::Array(list.values.iter().map(json).collect()),
    }
}
