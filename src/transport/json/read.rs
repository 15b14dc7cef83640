//! Transcodes JSON into the wire format, in one pass. Recursion is no deeper than the nesting of the messages.

use std::{borrow::Cow, fmt, mem};

use prost::{Message, encoding};
use prost_types::{Duration, FieldDescriptorProto, Timestamp, field_descriptor_proto::Type};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use weir_settings::suggest;

use super::{DURATION, Schema, TIMESTAMP, WRAPPERS, is_list, is_message};
use crate::{
    limiter::Invalid,
    transport::{decode::MAX_BATCH, fields::put_bytes},
};

/// Maximum number of characters of a field's name that an error contains, and that are compared with known names.
const MAX_SHOWN: usize = 64;

impl Schema {
    /// Transcodes JSON into an encoded message.
    ///
    /// # Errors
    /// [`Invalid`] names the field that is unknown or has a wrong value.
    pub fn read(&self, message: &str, json: &[u8]) -> Result<Vec<u8>, Invalid> {
        Reader::new(self, self.max_values, None).read(message, json)
    }

    /// Transcodes a message whose only field is a list of messages `element`, each of them separately. Beyond
    /// [`MAX_BATCH`] only one more element is transcoded, which shows that there are too many.
    ///
    /// # Errors
    /// [`Invalid`] if it is not such a message.
    pub fn read_batch(
        &self,
        message: &str,
        element: &str,
        json: &[u8],
    ) -> Result<Vec<Result<Vec<u8>, Invalid>>, Invalid> {
        let mut elements = Vec::new();
        let on_element: &mut dyn FnMut(&RawValue) = &mut |json| {
            if elements.len() <= MAX_BATCH {
                elements.push(self.read(element, json.get().as_bytes()));
            }
        };
        Reader::new(self, usize::MAX, Some(on_element)).read(message, json)?;
        Ok(elements)
    }
}

/// A message that is being encoded.
struct Reader<'s> {
    schema: &'s Schema,
    out: Vec<u8>,
    /// The path of the current field; of the field in error once there is one.
    path: String,
    fault: Option<String>,
    values_left: usize,
    /// Called with each element of the message's list.
    on_element: Option<&'s mut dyn FnMut(&RawValue)>,
}

impl<'s> Reader<'s> {
    fn new(schema: &'s Schema, values_left: usize, on_element: Option<&'s mut dyn FnMut(&RawValue)>) -> Self {
        Self { schema, out: Vec::new(), path: String::new(), fault: None, values_left, on_element }
    }

    fn read(mut self, message: &str, json: &[u8]) -> Result<Vec<u8>, Invalid> {
        // The message itself is read as an element without a field.
        let field = FieldDescriptorProto {
            r#type: Some(Type::Message.into()),
            type_name: Some(message.to_owned()),
            ..FieldDescriptorProto::default()
        };
        let mut text = serde_json::Deserializer::from_slice(json);
        let seed = Target { reader: &mut self, field: &field, is_element: true };
        let Err(error) = seed.deserialize(&mut text).and_then(|_| text.end()) else { return Ok(self.out) };
        // Invalid JSON is reported as such, even if a field before it is invalid.
        let error = match serde_json::from_slice::<IgnoredAny>(json) {
            Ok(_) if error.is_data() => {
                return Err(Invalid::field_error(self.path, self.fault.unwrap_or_else(|| error.to_string())));
            }
            Ok(_) => error,
            Err(error) => error,
        };
        Err(Invalid::field_error("", format!("the JSON cannot be read: {error}")))
    }

    fn fail<E: Error>(&mut self, why: impl Into<String>) -> E {
        self.fault = Some(why.into());
        E::custom("a field is invalid")
    }

    /// Counts one more value.
    fn count<E: Error>(&mut self) -> Result<(), E> {
        if self.values_left == 0 {
            self.path.clear();
            return Err(self.fail("the JSON has too many values"));
        }
        self.values_left -= 1;
        Ok(())
    }

    fn enter(&mut self, field: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(field);
    }

    fn members<'de, A: MapAccess<'de>>(&mut self, message: &str, mut members: A) -> Result<(), A::Error> {
        let (schema, outer) = (self.schema, self.path.len());
        let mut seen = SmallVec::<[&FieldDescriptorProto; 8]>::new();
        self.count()?;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            let fields = schema.fields(message);
            let Some(field) = fields.iter().find(|field| field.json_name() == name || field.name() == name) else {
                self.enter(shown(&name));
                return Err(self.fail(unknown_field(&name, fields)));
            };
            self.enter(field.name());
            if !seen.is_empty() {
                self.count()?;
            }
            if !members.next_value_seed(Target { reader: self, field, is_element: false })? {
                self.path.truncate(outer);
                continue;
            }
            if seen.iter().any(|before| before.number == field.number) {
                return Err(self.fail("duplicate field"));
            }
            self.path.truncate(outer);
            if field.oneof_index.is_some() && seen.iter().any(|before| before.oneof_index == field.oneof_index) {
                return Err(self.fail("several fields of which only one can be set"));
            }
            seen.push(field);
        }
        Ok(())
    }

    fn elements<'de, A: SeqAccess<'de>>(
        &mut self,
        field: &FieldDescriptorProto,
        mut elements: A,
    ) -> Result<(), A::Error> {
        self.count()?;
        let outer = self.path.len();
        for index in 0.. {
            self.path += &format!("[{index}]");
            let there = match &mut self.on_element {
                Some(on_element) => elements.next_element::<&RawValue>()?.map(on_element).is_some(),
                None => elements.next_element_seed(Target { reader: self, field, is_element: true })?.is_some(),
            };
            self.path.truncate(outer);
            if !there {
                break;
            }
            if index > 0 {
                self.count()?;
            }
        }
        Ok(())
    }

    /// Appends a length-delimited field: a string or a message.
    fn put(&mut self, field: &FieldDescriptorProto, bytes: &[u8]) {
        put_bytes(field.number() as u32, bytes, &mut self.out);
    }

    /// Appends the output of `read` as a nested message.
    fn nested<T, E>(
        &mut self,
        field: &FieldDescriptorProto,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let outer = mem::take(&mut self.out);
        let read = read(self)?;
        let inner = mem::replace(&mut self.out, outer);
        self.put(field, &inner);
        Ok(read)
    }

    /// Appends a value; `None` if the field cannot hold it.
    fn append(&mut self, field: &FieldDescriptorProto, value: Scalar<'_>) -> Option<()> {
        let (tag, out) = (field.number() as u32, &mut self.out);
        match (field.r#type(), value) {
            (Type::Bool, Scalar::Bool(flag)) => encoding::bool::encode(tag, &flag, out),
            (Type::Double, Scalar::Float(number)) => encoding::double::encode(tag, &number, out),
            (Type::Double, Scalar::Whole(number)) => encoding::double::encode(tag, &(number as f64), out),
            (Type::Double, Scalar::Text(text)) => encoding::double::encode(tag, &text.parse().ok()?, out),
            (Type::Uint64, Scalar::Whole(number)) => encoding::uint64::encode(tag, &number.try_into().ok()?, out),
            (Type::Uint32, Scalar::Whole(number)) => encoding::uint32::encode(tag, &number.try_into().ok()?, out),
            (Type::Sint64, Scalar::Whole(number)) => encoding::sint64::encode(tag, &number.try_into().ok()?, out),
            (Type::Enum, Scalar::Whole(number)) => encoding::int32::encode(tag, &number.try_into().ok()?, out),
            (Type::Enum, Scalar::Text(text)) => {
                let (_, number) = self.schema.values(field.type_name()).find(|(name, _)| *name == text)?;
                encoding::int32::encode(tag, &number, out);
            }
            (Type::String, Scalar::Text(text)) => self.put(field, text.as_bytes()),
            (Type::Message, Scalar::Text(text)) if field.type_name() == DURATION => {
                self.put(field, &text.parse::<Duration>().ok()?.encode_to_vec());
            }
            (Type::Message, Scalar::Text(text)) if field.type_name() == TIMESTAMP => {
                self.put(field, &text.parse::<Timestamp>().ok()?.encode_to_vec());
            }
            (Type::Uint64 | Type::Uint32 | Type::Sint64, Scalar::Text(text)) => {
                self.append(field, Scalar::Whole(text.parse().ok()?))?;
            }
            (Type::Enum, Scalar::Float(_)) => return None,
            (_, Scalar::Float(number)) if number.fract() == 0.0 => self.append(field, Scalar::Whole(number as i128))?,
            _ => return None,
        }
        Some(())
    }

    /// Describes the JSON form of a field for an error.
    fn wanted(&self, field: &FieldDescriptorProto, is_list: bool) -> String {
        let wanted = match field.r#type() {
            Type::Message if is_list => return format!("must be a list of {}", field.name()),
            _ if is_list => "a list",
            Type::Message if field.number.is_none() => {
                return match self.schema.fields(field.type_name()) {
                    [only] => format!("the message must be an object with the field `{}`", only.name()),
                    _ => "the message must be an object".to_owned(),
                };
            }
            Type::Double => "a number",
            Type::Bool => "true or false",
            Type::String => "a string",
            Type::Message if field.type_name() == DURATION => "a duration in seconds, such as \"1.5s\"",
            Type::Message if field.type_name() == TIMESTAMP => "a timestamp such as \"2026-12-01T00:00:00Z\"",
            Type::Message => "an object",
            Type::Enum => {
                let names: Vec<_> = self.schema.values(field.type_name()).map(|(name, _)| name).collect();
                return format!("must be one of {}", names.join(", "));
            }
            Type::Uint64 => "a whole number from 0 to 2^64 - 1, or a string of its digits",
            Type::Uint32 => "a whole number from 0 to 2^32 - 1",
            _ => "a whole number, or a string of its digits",
        };
        format!("must be {wanted}")
    }
}

/// A JSON value other than a list, an object or null.
enum Scalar<'a> {
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(&'a str),
}

/// The destination of a value: a field, or an element of its list. Deserializing returns whether there is a value:
/// `null` is none.
struct Target<'r, 's> {
    reader: &'r mut Reader<'s>,
    field: &'r FieldDescriptorProto,
    is_element: bool,
}

impl Target<'_, '_> {
    fn is_list(&self) -> bool {
        is_list(self.field) && !self.is_element
    }

    fn scalar<E: Error>(self, value: Scalar<'_>) -> Result<bool, E> {
        if !self.is_list() && self.reader.append(self.field, value).is_some() { Ok(true) } else { Err(self.wrong()) }
    }

    fn wrong<E: Error>(self) -> E {
        let why = self.reader.wanted(self.field, self.is_list());
        self.reader.fail(why)
    }
}

impl<'de> DeserializeSeed<'de> for Target<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        let Self { reader, field, is_element } = self;
        if !WRAPPERS.contains(&field.type_name()) {
            return deserializer.deserialize_any(Self { reader, field, is_element });
        }
        let Some(inner) = reader.schema.fields(field.type_name()).first() else { return Ok(false) };
        let length = reader.out.len();
        let there =
            reader.nested(field, |reader| Target { reader, field: inner, is_element }.deserialize(deserializer))?;
        if !there {
            reader.out.truncate(length);
        }
        Ok(there)
    }
}

impl<'de> Visitor<'de> for Target<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the field")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        if self.is_element { Err(self.wrong()) } else { Ok(false) }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        self.scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        self.scalar(Scalar::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        self.scalar(Scalar::Whole(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        self.scalar(Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        self.scalar(Scalar::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<bool, A::Error> {
        if !self.is_list() {
            return Err(self.wrong());
        }
        self.reader.elements(self.field, elements).map(|()| true)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<bool, A::Error> {
        let message = self.field.type_name();
        if self.is_list() || !is_message(self.field) || message == DURATION || message == TIMESTAMP {
            return Err(self.wrong());
        }
        match self.field.number {
            None => self.reader.members(message, members)?,
            Some(_) => self.reader.nested(self.field, |reader| reader.members(message, members))?,
        }
        Ok(true)
    }
}

fn unknown_field(name: &str, fields: &[FieldDescriptorProto]) -> String {
    if shown(name).len() < name.len() {
        return format!("unknown field `{}…`", shown(name));
    }
    if fields.is_empty() {
        return format!("unknown field `{name}`: the message has none");
    }
    let known: Vec<_> = fields.iter().map(FieldDescriptorProto::name).collect();
    suggest::unknown("field", name, &known)
}

/// Returns a name, truncated for an error.
fn shown(name: &str) -> &str {
    name.char_indices().nth(MAX_SHOWN).map_or(name, |(end, _)| &name[..end])
}
