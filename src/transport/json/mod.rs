//! Transcodes between JSON and the wire format of messages by their descriptors: the JSON mapping of proto3. So HTTP
//! and gRPC share the code that decodes requests and encodes answers.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::HashMap;

use prost::{DecodeError, Message};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use thiserror::Error;

pub use write::Json;

/// The message of a duration, which is a string in JSON: `"1.5s"`.
const DURATION: &str = ".google.protobuf.Duration";
/// The message of a point in time, which is a string in JSON: `"2026-12-01T00:00:00Z"`.
const TIMESTAMP: &str = ".google.protobuf.Timestamp";
/// The null of a `google.protobuf.Value`.
const NULL: &str = ".google.protobuf.NullValue";
/// A map, whose entries are messages of a key and a value.
const STRUCT: &str = ".google.protobuf.Struct";
/// Messages that JSON represents by their only field.
const WRAPPERS: [&str; 3] = [".google.protobuf.Value", ".google.protobuf.ListValue", ".google.protobuf.UInt64Value"];

/// The descriptors compiled into this binary are damaged.
#[derive(Debug, Error)]
#[error("the descriptors of the messages cannot be read")]
pub struct Damaged(#[from] DecodeError);

/// Messages and enums by their full names, which start with a dot.
pub struct Schema {
    max_values: usize,
    messages: HashMap<String, Vec<FieldDescriptorProto>>,
    enums: HashMap<String, EnumDescriptorProto>,
}

impl Schema {
    /// Returns the messages of an encoded `FileDescriptorSet`. The JSON of a message may have at most `max_values`
    /// values.
    ///
    /// # Errors
    /// [`Damaged`] if it cannot be decoded.
    pub fn new(descriptors: &[u8], max_values: usize) -> Result<Self, Damaged> {
        let mut schema = Self { max_values, messages: HashMap::new(), enums: HashMap::new() };
        for file in FileDescriptorSet::decode(descriptors)?.file {
            let package = format!(".{}", file.package());
            schema.add(&package, file.message_type, file.enum_type);
        }
        Ok(schema)
    }

    fn add(&mut self, scope: &str, messages: Vec<DescriptorProto>, enums: Vec<EnumDescriptorProto>) {
        self.enums.extend(enums.into_iter().map(|kind| (format!("{scope}.{}", kind.name()), kind)));
        for mut message in messages {
            let name = format!("{scope}.{}", message.name());
            self.add(&name, message.nested_type, message.enum_type);
            message.field.sort_by_key(FieldDescriptorProto::number);
            self.messages.insert(name, message.field);
        }
    }

    /// Returns the fields of a message, ordered by number.
    fn fields(&self, message: &str) -> &[FieldDescriptorProto] {
        self.messages.get(message).map_or(&[], Vec::as_slice)
    }

    /// Returns the names and numbers of an enum.
    fn values(&self, name: &str) -> impl Iterator<Item = (&str, i32)> {
        let values = self.enums.get(name).into_iter().flat_map(|kind| &kind.value);
        values.map(|value| (value.name(), value.number()))
    }
}

fn is_list(field: &FieldDescriptorProto) -> bool {
    field.label() == Label::Repeated
}

fn is_message(field: &FieldDescriptorProto) -> bool {
    field.r#type() == Type::Message
}
