//! JSON into messages and back, by the descriptors of the messages: the mapping of proto3.
//!
//! What is made of a body is bounded before it is made, as over gRPC. Nothing here descends deeper than the messages do.

use std::borrow::Cow;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::{
    Serialize, Serializer,
    de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use thiserror::Error;

use super::fault;
use crate::{
    limiter::Invalid,
    proto::{self, CheckBatchResponse, CheckRequest, CheckResponse, ResetRequest, ResetResponse},
    transport::decode::MAX_BATCH,
};

/// Most values in the JSON of a check; twice what a valid one can have.
const MAX_VALUES: usize = 512;
/// Deepest nesting of the JSON of a request; a valid check has five.
const MAX_NESTING: usize = 16;

/// The descriptors compiled into this binary are damaged.
#[derive(Debug, Error)]
#[error("the messages' descriptors cannot be read: {0}")]
pub struct Damaged(String);

impl Damaged {
    /// For this reason.
    pub fn new(why: String) -> Self {
        Self(why)
    }
}

/// Reads and writes the messages of the service.
pub struct Transcoder {
    check: MessageDescriptor,
    answer: MessageDescriptor,
    answers: MessageDescriptor,
    reset: MessageDescriptor,
    done: MessageDescriptor,
}

impl Transcoder {
    /// One for the messages of `weir.v1`.
    ///
    /// # Errors
    /// [`Damaged`] where the descriptors cannot be read.
    pub fn new() -> Result<Self, Damaged> {
        let pool = DescriptorPool::decode(proto::DESCRIPTORS).map_err(|error| Damaged(error.to_string()))?;
        let message = |name: &str| {
            pool.get_message_by_name(&format!("weir.v1.{name}")).ok_or_else(|| Damaged(format!("no {name}")))
        };
        Ok(Self {
            check: message("CheckRequest")?,
            answer: message("CheckResponse")?,
            answers: message("CheckBatchResponse")?,
            reset: message("ResetRequest")?,
            done: message("ResetResponse")?,
        })
    }

    /// Reads a check.
    ///
    /// # Errors
    /// [`Invalid`] names the field that is none, or of another kind.
    pub fn check(&self, text: &str) -> Result<CheckRequest, Invalid> {
        read(&self.check, text)
    }

    /// Reads a reset.
    ///
    /// # Errors
    /// As [`Transcoder::check`].
    pub fn reset(&self, text: &str) -> Result<ResetRequest, Invalid> {
        read(&self.reset, text)
    }

    /// Reads a batch; each check for itself. One more than allowed is enough to tell that there are too many.
    ///
    /// # Errors
    /// [`Invalid`] where it is no batch.
    pub fn batch<'a>(
        &'a self,
        text: &'a str,
    ) -> Result<impl ExactSizeIterator<Item = Result<CheckRequest, Invalid>> + use<'a>, Invalid> {
        Ok(checks(text)?.into_iter().map(|check| self.check(check.get())))
    }

    /// An answer as JSON.
    pub fn answer(&self, answer: &CheckResponse) -> Json {
        Json::new(&self.answer, answer)
    }

    /// The answers of a batch as JSON.
    pub fn answers(&self, answers: &CheckBatchResponse) -> Json {
        Json::new(&self.answers, answers)
    }

    /// What a reset did as JSON.
    pub fn done(&self, done: &ResetResponse) -> Json {
        Json::new(&self.done, done)
    }
}

/// A message to be written as JSON: names in camelCase, and all fields but those that may be absent and are.
pub struct Json(DynamicMessage);

impl Json {
    fn new(descriptor: &MessageDescriptor, message: &impl Message) -> Self {
        let mut json = DynamicMessage::new(descriptor.clone());
        // It fails for a message of another kind alone, and these are of the kind that their descriptors say.
        let _ = json.transcode_from(message);
        Self(json)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const OPTIONS: &SerializeOptions = &SerializeOptions::new().skip_default_fields(false);
        self.0.serialize_with_options(serializer, OPTIONS)
    }
}

fn read<M: Message + Default>(descriptor: &MessageDescriptor, text: &str) -> Result<M, Invalid> {
    if !is_bounded(text.as_bytes(), MAX_VALUES) {
        return Err(Invalid::field_error("", "the JSON has far more values than it may, or is nested far deeper"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = DynamicMessage::deserialize(descriptor.clone(), &mut reader);
    let read = read.and_then(|message| reader.end().map(|()| message));
    match read {
        Ok(message) => message.transcode_to().map_err(|error| Invalid::field_error("", error.to_string())),
        Err(error) if error.is_data() => Err(fault::find(descriptor, text, &error)),
        Err(error) => Err(no_json(&error)),
    }
}

fn no_json(error: &serde_json::Error) -> Invalid {
    Invalid::field_error("", format!("the JSON cannot be read: {error}"))
}

/// Whether a text that is JSON has no more values than this, and is nested no deeper than it may.
pub fn is_bounded(text: &[u8], max_values: usize) -> bool {
    let (mut values, mut nesting) = (1, 0_usize);
    let mut letters = text.iter().copied();
    while let Some(letter) = letters.next() {
        match letter {
            b'"' => skip_text(&mut letters),
            b',' => values += 1,
            b'[' | b'{' => (values, nesting) = (values + 1, nesting + 1),
            b']' | b'}' => nesting = nesting.saturating_sub(1),
            _ => {}
        }
        if values > max_values || nesting > MAX_NESTING {
            return false;
        }
    }
    true
}

/// Goes on behind a text whose opening quote is behind us.
fn skip_text(letters: &mut impl Iterator<Item = u8>) {
    while let Some(letter) = letters.next() {
        match letter {
            b'"' => return,
            b'\\' => drop(letters.next()),
            _ => {}
        }
    }
}

/// The checks of a batch as they are written.
fn checks(text: &str) -> Result<Vec<&RawValue>, Invalid> {
    let (mut reader, mut field) = (serde_json::Deserializer::from_str(text), String::new());
    let read = reader.deserialize_map(Batch(&mut field));
    match read.and_then(|checks| reader.end().map(|()| checks)) {
        Ok(checks) => Ok(checks),
        Err(error) if error.is_data() => Err(Invalid::field_error(field, error.to_string())),
        Err(error) => Err(no_json(&error)),
    }
}

/// Reads the one field of a batch, and keeps the name of the field that it is at.
struct Batch<'a>(&'a mut String);

impl<'de> Visitor<'de> for Batch<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with the field `checks`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut checks = None;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            self.0.clear();
            self.0.push_str(fault::shown(&name));
            if name != "checks" {
                return Err(A::Error::custom(fault::unknown_field(&name, &["checks"])));
            }
            if checks.is_some() {
                return Err(A::Error::custom("the field stands twice"));
            }
            checks = Some(map.next_value::<Option<Checks<'_>>>()?);
        }
        Ok(checks.flatten().map(|checks| checks.0).unwrap_or_default())
    }
}

/// The first checks of a list; beyond the bound they are passed over.
struct Checks<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Checks<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List).map(Self)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut checks = Vec::new();
        while let Some(check) = list.next_element()? {
            if checks.len() <= MAX_BATCH {
                checks.push(check);
            }
        }
        Ok(checks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field(read: Result<CheckRequest, Invalid>) -> String {
        read.expect_err("it is not valid").field("")
    }

    #[test]
    fn a_valid_check_is_far_within_the_bounds() {
        let limit = json!({ "name": "n", "depth": 1, "shadow": true, "slidingLog": { "count": 1, "period": "1s",
            "minInterval": "1s", "chargeDenied": true } });
        let largest = json!({ "domain": "d", "key": vec!["a"; 32], "limitSpec": { "limits": vec![limit; 16], "charge": 1 },
            "cost": 1, "maxWait": "1s", "factor": 1, "summaryOnly": true });
        let check = Transcoder::new().unwrap().check(&largest.to_string()).unwrap();
        assert_eq!((check.key.len(), check.limit_spec.map(|spec| spec.limits.len())), (32, Some(16)));
        assert!(largest.to_string().bytes().filter(|letter| b",[{".contains(letter)).count() * 2 < MAX_VALUES);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_not_read() {
        let is_bounded = |text: &str| is_bounded(text.as_bytes(), MAX_VALUES);
        assert!(is_bounded(&"[".repeat(MAX_NESTING)) && !is_bounded(&"[".repeat(MAX_NESTING + 1)));
        assert!(is_bounded(&",".repeat(MAX_VALUES - 1)) && !is_bounded(&",".repeat(MAX_VALUES)));
        let text = format!(r#"{{"key": ["{}\"", "\\"]}}"#, "[{,".repeat(MAX_VALUES));
        assert!(is_bounded(&text), "what stands within texts does not count");
        assert_eq!(Transcoder::new().unwrap().check(&text).unwrap().key[1], "\\");
        assert!(!is_bounded(&format!(r#"["\\",{}"#, "[{,".repeat(MAX_VALUES))));
        let many = json!({ "key": vec![0; MAX_VALUES] }).to_string();
        assert_eq!(field(Transcoder::new().unwrap().check(&many)), "", "not even the field is looked for");
    }

    #[test]
    fn a_batch_is_kept_to_one_more_than_it_may_have() {
        let text = json!({ "checks": vec![0; 5_000] }).to_string();
        let transcoder = Transcoder::new().unwrap();
        assert_eq!(transcoder.batch(&text).ok().map(|checks| checks.len()), Some(MAX_BATCH + 1));
    }

    #[test]
    fn the_field_at_fault_is_the_innermost() {
        let transcoder = Transcoder::new().unwrap();
        for (text, expected) in [
            (
                r#"{"key":["a"],"limitSpec":{"limits":[{},{"gcra":{"period":"1"}}]}}"#,
                "limit_spec.limits[1].gcra.period",
            ),
            (r#"{"key":["a"],"limit_spec":{"limits":[{},7]}}"#, "limit_spec.limits[1]"),
            (r#"{"limitSpec":{"limits":[{"gcra":{},"cycle":{}}]}}"#, "limit_spec.limits[0]"),
            (r#"{"key":["a"],"maxWait":{"seconds":1}}"#, "max_wait"),
            (r#"{"key":[["a"]]}"#, "key[0]"),
        ] {
            assert_eq!(field(transcoder.check(text)), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r#"[\PC"{}\[\],:\\]{0,60}"#) {
            let transcoder = Transcoder::new().unwrap();
            let _ = transcoder.check(&text);
            let _ = transcoder.reset(&text);
            let _ = transcoder.batch(&text).map(Iterator::count);
        }

        #[test]
        fn any_value_of_a_field_is_read_or_refused(
            field in prop::sample::select(vec!["key", "cost", "maxWait", "factor", "limitSpec", "limits", "gcra", "period"]),
            value in r#"([0-9.eE+-]{1,12}s?|"[0-9.eE+-]{0,25}s?"|\[\]|\{\}|null)"#,
        ) {
            let transcoder = Transcoder::new().unwrap();
            for text in [
                format!(r#"{{"{field}":{value}}}"#),
                format!(r#"{{"limitSpec":{{"limits":[{{"gcra":{{"{field}":{value}}}}}]}}}}"#),
            ] {
                let _ = transcoder.check(&text);
            }
        }
    }
}
