//! A message and a file with the same values create the same limit. The messages are created by reflection,
//! independently of the declarations that convert them.

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, ReflectMessage as _, Value};

use crate::{
    algorithm::{Bounds, Entry, FileParams, LIST, ParamError, Params, params::MAX_PERIOD},
    domain::time::{SECOND, parse_duration},
    proto,
};

const BOUNDS: Bounds = Bounds { max_period: MAX_PERIOD };

fn from_file(entry: &Entry, given: &FileParams<'_>) -> Result<Params, ParamError> {
    (entry.parse)(given, &BOUNDS)
}

fn from_message(entry: &Entry, given: &FileParams<'_>) -> Result<Params, ParamError> {
    let pool = DescriptorPool::decode(proto::DESCRIPTORS).unwrap();
    let mut limit = DynamicMessage::new(pool.get_message_by_name("weir.v1.Limit").unwrap());
    let field = limit.descriptor().get_field_by_name(entry.name).unwrap();
    let Kind::Message(descriptor) = field.kind() else { panic!("{} is not a message", entry.name) };
    let mut message = DynamicMessage::new(descriptor);
    for (name, text) in given {
        let field = message.descriptor().get_field_by_name(name).unwrap();
        message.set_field(&field, value(&field.kind(), text));
    }
    limit.set_field(&field, Value::Message(message));
    let limit = proto::Limit::decode(limit.encode_to_vec().as_slice()).unwrap();
    Params::from_proto(&limit.algorithm.unwrap(), &BOUNDS)
}

fn value(kind: &Kind, text: &str) -> Value {
    match kind {
        Kind::Uint64 => Value::U64(text.parse().unwrap()),
        Kind::Double => Value::F64(text.parse().unwrap()),
        Kind::Bool => Value::Bool(text.parse().unwrap()),
        Kind::String => Value::String(text.to_owned()),
        Kind::Enum(choices) => {
            // Names of enum values start with the name of the enum.
            let suffix = format!("_{}", text.to_uppercase());
            let choice = choices.values().find(|choice| choice.name().ends_with(&suffix)).unwrap();
            Value::EnumNumber(choice.number())
        }
        Kind::Message(duration) => {
            let (micros, mut message) = (parse_duration(text).unwrap(), DynamicMessage::new(duration.clone()));
            message.set_field_by_name("seconds", Value::I64(micros / SECOND));
            message.set_field_by_name("nanos", Value::I32((micros % SECOND) as i32 * 1_000));
            Value::Message(message)
        }
        kind => panic!("no parameter is of kind {kind:?}"),
    }
}

/// Returns the parameters without one of the fields.
fn without<'a>(given: &'a FileParams<'_>, field: &str) -> Vec<(&'a str, &'a str)> {
    given.iter().copied().filter(|(name, _)| *name != field).collect()
}

#[test]
fn a_message_and_a_file_with_the_same_values_make_the_same_limit() {
    for (entry, example) in examples() {
        let params = from_file(entry, example).unwrap();
        assert_eq!(from_message(entry, example), Ok(params), "{} {example:?}", entry.name);
    }
}

#[test]
fn a_missing_field_means_the_same_in_messages_and_files() {
    for (entry, example) in examples() {
        for field in entry.fields {
            let given = without(example, field);
            match (from_file(entry, &given), from_message(entry, &given)) {
                (Err(file), Err(message)) => assert_eq!(message.field, format!("{}.{}", entry.name, file.field)),
                (file, message) => assert_eq!(file, message, "{} {given:?}", entry.name),
            }
        }
    }
}

/// Otherwise the other tests would not notice a field that is read as its default.
#[test]
fn every_field_has_an_example_with_a_value_that_is_not_its_default() {
    for (entry, field) in list().flat_map(|entry| entry.fields.iter().map(move |field| (entry, field))) {
        let says = |example: &FileParams<'_>| from_file(entry, &without(example, field)) != from_file(entry, example);
        assert!(entry.examples.iter().any(|example| says(example)), "{}: none says {field}", entry.name);
    }
}

/// Returns the algorithms that have a message: all but the template.
fn list() -> impl Iterator<Item = &'static Entry> {
    LIST.iter().filter(|entry| entry.name != "skeleton")
}

fn examples() -> impl Iterator<Item = (&'static Entry, &'static FileParams<'static>)> {
    list().flat_map(|entry| entry.examples.iter().map(move |example| (entry, *example)))
}
