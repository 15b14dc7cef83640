//! Transcodes the wire format into JSON.

use std::collections::BTreeMap;

use prost::{Message, encoding::WireType};
use prost_types::{Duration, FieldDescriptorProto, Timestamp, field_descriptor_proto::Type};
use serde::ser::{Error, Serialize, SerializeMap, Serializer};

use super::{DURATION, NULL, STRUCT, Schema, TIMESTAMP, WRAPPERS, is_list, is_message};
use crate::transport::fields::{Fields, Value};

/// An encoded message that serializes as JSON: names in camelCase, in the order of the field numbers.
#[derive(Clone, Copy)]
pub struct Json<'a> {
    schema: &'a Schema,
    message: &'a str,
    bytes: &'a [u8],
    with_defaults: bool,
}

impl Schema {
    /// Returns an encoded message as JSON. Fields without presence that have their default value are written only
    /// `with_defaults`.
    pub fn json<'a>(&'a self, message: &'a str, bytes: &'a [u8], with_defaults: bool) -> Json<'a> {
        Json { schema: self, message, bytes, with_defaults }
    }
}

impl<'a> Json<'a> {
    /// Returns the values of a field, in order. If the field is not repeated, the last one counts.
    fn values(self, field: &FieldDescriptorProto) -> impl Iterator<Item = Value<'a>> {
        let number = field.number().unsigned_abs();
        let packable = packable(field);
        let found = Fields::new(self.bytes).flatten().filter(move |(found, _)| *found == number);
        found.flat_map(move |(_, value)| {
            let (value, packed) = match (value, packable) {
                (Value::Bytes(numbers), Some(kind)) => (None, Some(Fields::new(numbers).numbers(kind))),
                _ => (Some(value), None),
            };
            value.into_iter().chain(packed.into_iter().flatten())
        })
    }

    /// Returns the entries of a map, sorted by key.
    fn entries(self, map: &'a FieldDescriptorProto) -> BTreeMap<&'a str, Content<'a>> {
        let entry = |value| {
            let Value::Bytes(bytes) = value else { return None };
            let json = Json { message: map.type_name(), bytes, ..self };
            let [key, value] = json.schema.fields(json.message) else { return None };
            let key = match json.values(key).last() {
                Some(Value::Bytes(key)) => std::str::from_utf8(key).ok()?,
                _ => "",
            };
            Some((key, Content { json, field: value }))
        };
        self.values(map).filter_map(entry).collect()
    }
}

/// Returns the wire type of the numbers of a list, which may be packed in one field; `None` for other fields.
fn packable(field: &FieldDescriptorProto) -> Option<WireType> {
    match field.r#type() {
        _ if !is_list(field) => None,
        Type::String | Type::Bytes | Type::Message | Type::Group => None,
        Type::Double | Type::Fixed64 | Type::Sfixed64 => Some(WireType::SixtyFourBit),
        Type::Float | Type::Fixed32 | Type::Sfixed32 => Some(WireType::ThirtyTwoBit),
        _ => Some(WireType::Varint),
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.schema.fields(self.message);
        match (self.message, fields) {
            (DURATION, _) => {
                return serializer.collect_str(&Duration::decode(self.bytes).map_err(S::Error::custom)?);
            }
            (TIMESTAMP, _) => {
                return serializer.collect_str(&Timestamp::decode(self.bytes).map_err(S::Error::custom)?);
            }
            (STRUCT, [map]) => return serializer.collect_map(self.entries(map)),
            _ => {}
        }
        let is_there = |field: &&FieldDescriptorProto| self.values(field).next().is_some();
        if WRAPPERS.contains(&self.message) {
            let field = fields.iter().find(|field| is_list(field) || is_there(field));
            return field.map(|field| Content { json: *self, field }).serialize(serializer);
        }
        let has_default =
            |field: &&FieldDescriptorProto| is_list(field) || field.oneof_index.is_none() && !is_message(field);
        let mut members = serializer.serialize_map(None)?;
        for field in fields.iter().filter(|field| is_there(field) || self.with_defaults && has_default(field)) {
            members.serialize_entry(field.json_name(), &Content { json: *self, field })?;
        }
        members.end()
    }
}

/// All values of a field of a message.
struct Content<'a> {
    json: Json<'a>,
    field: &'a FieldDescriptorProto,
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { json, field } = *self;
        let mut values = json.values(field).map(|value| One { json, field, value });
        if is_list(field) {
            return serializer.collect_seq(values);
        }
        let value = match field.r#type() {
            Type::String | Type::Message => Value::Bytes(&[]),
            Type::Double => Value::Fixed64(0),
            _ => Value::Varint(0),
        };
        values.by_ref().last().unwrap_or(One { json, field, value }).serialize(serializer)
    }
}

/// One value of a field.
struct One<'a> {
    json: Json<'a>,
    field: &'a FieldDescriptorProto,
    value: Value<'a>,
}

/// Whole numbers below this are exact both as a double and as an integer.
const MAX_WHOLE: f64 = 9e15;

impl Serialize for One<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { json, field, value } = *self;
        match (field.r#type(), value) {
            (Type::Bool, Value::Varint(flag)) => serializer.serialize_bool(flag != 0),
            (Type::Uint64, Value::Varint(number)) => serializer.collect_str(&number),
            (Type::Uint32, Value::Varint(number)) => serializer.serialize_u64(number),
            (Type::Int64, Value::Varint(number)) => serializer.collect_str(&(number as i64)),
            (Type::Int32, Value::Varint(number)) => serializer.serialize_i32(number as i32),
            (Type::Enum, Value::Varint(_)) if field.type_name() == NULL => serializer.serialize_unit(),
            (Type::Enum, Value::Varint(number)) => {
                match json.schema.values(field.type_name()).find(|(_, known)| *known == number as i32) {
                    Some((name, _)) => serializer.serialize_str(name),
                    None => serializer.serialize_i32(number as i32),
                }
            }
            (Type::Double, Value::Fixed64(bits)) => {
                let number = f64::from_bits(bits);
                // Whole numbers have no fraction, as in Go's protojson.
                if number.fract() == 0.0 && number.abs() < MAX_WHOLE {
                    serializer.serialize_i64(number as i64)
                } else {
                    serializer.serialize_f64(number)
                }
            }
            (Type::String, Value::Bytes(text)) => {
                serializer.serialize_str(std::str::from_utf8(text).map_err(S::Error::custom)?)
            }
            (Type::Message, Value::Bytes(bytes)) => {
                Json { message: field.type_name(), bytes, ..json }.serialize(serializer)
            }
            _ => Err(S::Error::custom("a field of a kind that no answer has")),
        }
    }
}
