use proptest::prelude::*;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use prost_types::{Duration, Struct, Value, value::Kind};
use serde_json::json;

use super::*;
use crate::{
    limiter::Invalid,
    proto::{self, CheckRequest, CheckResponse, LevelResult},
    transport::{decode::MAX_BATCH, fields, rls},
};

const MAX_VALUES: usize = 512;
const CHECK: &str = ".weir.v1.CheckRequest";

fn schema() -> Schema {
    Schema::new(proto::DESCRIPTORS, MAX_VALUES).unwrap()
}

fn check(schema: &Schema, json: &str) -> Result<CheckRequest, Invalid> {
    schema.read(CHECK, json.as_bytes()).map(|bytes| CheckRequest::decode(&bytes[..]).unwrap())
}

fn field(read: Result<CheckRequest, Invalid>) -> String {
    read.expect_err("it is not valid").field("")
}

/// Parses the text by the crate prost-reflect.
fn reflected(json: &str) -> Option<CheckRequest> {
    let message = DescriptorPool::decode(proto::DESCRIPTORS).unwrap().get_message_by_name(&CHECK[1..]).unwrap();
    let mut text = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(message, &mut text).ok()?;
    text.end().ok().map(|()| message.transcode_to().unwrap())
}

fn assert_written_as_reflected(descriptors: &[u8], message: &str, bytes: &[u8], with_defaults: bool) {
    let descriptor = DescriptorPool::decode(descriptors).unwrap().get_message_by_name(&message[1..]).unwrap();
    let known = DynamicMessage::decode(descriptor, bytes).unwrap();
    let mut expected = serde_json::Serializer::new(Vec::new());
    let options = SerializeOptions::new().skip_default_fields(!with_defaults);
    known.serialize_with_options(&mut expected, &options).unwrap();
    let schema = Schema::new(descriptors, MAX_VALUES).unwrap();
    let written = serde_json::to_string(&schema.json(message, bytes, with_defaults)).unwrap();
    // Whole numbers have no fraction, as Go writes them.
    assert_eq!(written, String::from_utf8(expected.into_inner()).unwrap().replace("2.0,", "2,"));
}

#[test]
fn the_largest_valid_check_is_within_the_bounds() {
    let limit = json!({ "name": "n", "depth": 1, "shadow": true, "slidingLog": { "count": 1, "period": "1s",
        "minInterval": "1s", "chargeDenied": true } });
    let largest = json!({ "domain": "d", "key": vec!["a"; 32], "limitSpec": { "limits": vec![limit; 16], "charge": 1 },
        "cost": 1, "maxWait": "1s", "factor": 1, "summaryOnly": true });
    let check = check(&schema(), &largest.to_string()).unwrap();
    assert_eq!((check.key.len(), check.limit_spec.map(|spec| spec.limits.len())), (32, Some(16)));
    assert!(largest.to_string().bytes().filter(|letter| b",[{".contains(letter)).count() * 2 < MAX_VALUES);
}

#[test]
fn messages_beyond_the_bounds_are_rejected() {
    let keys = |count| json!({ "key": vec![""; count] }).to_string();
    assert_eq!(check(&schema(), &keys(MAX_VALUES - 1)).map(|check| check.key.len()).ok(), Some(MAX_VALUES - 1));
    assert_eq!(field(check(&schema(), &keys(MAX_VALUES))), "", "the message is at fault");
    let nothing = json!({ "limitSpec": { "limits": vec![json!({}); MAX_VALUES / 2] } }).to_string();
    assert_eq!(field(check(&schema(), &nothing)), "", "empty messages count too");
    let text = format!(r#"{{"key": ["{}\"", "\\"]}}"#, "[{,".repeat(MAX_VALUES));
    assert_eq!(check(&schema(), &text).unwrap().key[1], "\\", "what stands within texts does not count");
}

#[test]
fn an_oversized_batch_is_read_up_to_one_check_above_the_maximum() {
    let text = json!({ "checks": vec![0; 5_000] }).to_string();
    let checks = schema().read_batch(".weir.v1.CheckBatchRequest", CHECK, text.as_bytes());
    assert_eq!(checks.ok().map(|checks| checks.len()), Some(MAX_BATCH + 1));
}

#[test]
fn errors_name_the_innermost_field() {
    for (text, expected) in [
        (r#"{"key":["a"],"limitSpec":{"limits":[{},{"gcra":{"period":"1"}}]}}"#, "limit_spec.limits[1].gcra.period"),
        (r#"{"key":["a"],"limit_spec":{"limits":[{},7]}}"#, "limit_spec.limits[1]"),
        (r#"{"limitSpec":{"limits":[{"gcra":{},"cycle":{}}]}}"#, "limit_spec.limits[0]"),
        (r#"{"limitSpec":{"limits":[{"gcra":{"count":1,"count":1}}]}}"#, "limit_spec.limits[0].gcra.count"),
        (r#"{"key":["a"],"maxWait":{"seconds":1}}"#, "max_wait"),
        (r#"{"limitSpec":{"charge":0E0}}"#, "limit_spec.charge"),
        (r#"{"key":[["a"]]}"#, "key[0]"),
        (r#"{"key":["a", null]}"#, "key[1]"),
        (r#"{"cost":1,"factor":[]}"#, "factor"),
    ] {
        assert_eq!(field(check(&schema(), text)), expected, "{text}");
    }
}

#[test]
fn envoy_answers_are_encoded_like_prost_reflect() {
    let value = |kind| Value { kind: Some(kind) };
    let inner =
        Struct { fields: [("z".to_owned(), Value { kind: None }), ("a".to_owned(), value(Kind::NullValue(0)))].into() };
    let list =
        [Kind::BoolValue(false), Kind::NumberValue(2.0), Kind::NumberValue(-0.5), Kind::ListValue(Default::default())];
    let list = prost_types::ListValue { values: list.map(value).to_vec() };
    let fields = [
        ("text", Kind::StringValue("é\"\n".to_owned())),
        ("none", Kind::StringValue(String::new())),
        ("list", Kind::ListValue(list)),
        ("struct", Kind::StructValue(inner)),
        ("empty", Kind::StructValue(Struct::default())),
    ];
    let metadata = Struct { fields: fields.map(|(name, kind)| (name.to_owned(), value(kind))).into() };
    let message = ".envoy.service.ratelimit.v3.RateLimitResponse";
    // A status with every kind of value, an unknown code and a duration included.
    let status = rls::pb::rate_limit_response::DescriptorStatus {
        code: 77,
        limit_remaining: u32::MAX,
        duration_until_reset: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
        ..Default::default()
    };
    let answer = rls::pb::RateLimitResponse { overall_code: 2, statuses: vec![status; 2], ..Default::default() };
    let mut bytes = answer.encode_to_vec();
    prost::encoding::message::encode(6, &metadata, &mut bytes);
    assert_written_as_reflected(weir_envoy::RATE_LIMIT_SERVICE, message, &bytes, false);
    assert_written_as_reflected(weir_envoy::RATE_LIMIT_SERVICE, message, &[], false);
}

#[test]
fn packed_numbers_are_encoded_like_prost_reflect() {
    let row =
        |hashed: &[u32]| proto::KeyUsage { key: vec!["k".to_owned()], hashed: hashed.to_vec(), ..Default::default() };
    let keys = vec![row(&[0, 1, u32::MAX]), row(&[])];
    let bytes = proto::ListKeysResponse { keys, ..Default::default() }.encode_to_vec();
    assert_written_as_reflected(proto::DESCRIPTORS, ".weir.v1.ListKeysResponse", &bytes, true);
    // Numbers of each type, packed and separate.
    let types = [
        (Type::Bool, &[1, 0][..]),
        (Type::Int32, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        (Type::Int64, &[0x96, 1, 5]),
        (Type::Uint64, &[0x96, 1, 5]),
        (Type::Double, &[0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]),
    ];
    let fields = (1..).zip(types).map(|(number, (kind, _))| FieldDescriptorProto {
        name: Some(format!("f{number}")),
        json_name: Some(format!("f{number}")),
        number: Some(number),
        label: Some(Label::Repeated.into()),
        r#type: Some(kind.into()),
        ..Default::default()
    });
    let message = DescriptorProto { name: Some("M".to_owned()), field: fields.collect(), ..Default::default() };
    let file = prost_types::FileDescriptorProto {
        name: Some("p.proto".to_owned()),
        package: Some("p".to_owned()),
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    };
    let descriptors = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    let mut bytes = vec![8, 1];
    for (number, (_, packed)) in (1..).zip(types) {
        fields::put_bytes(number, packed, &mut bytes);
    }
    assert_written_as_reflected(&descriptors, ".p.M", &bytes, true);
}

fn level() -> impl Strategy<Value = LevelResult> {
    let count = || prop_oneof![Just(0), any::<u64>()];
    let time = || {
        prop::option::of(
            (0..100_000_i64, 0..1_000_000_i32)
                .prop_map(|(seconds, micros)| Duration { seconds, nanos: micros * 1_000 }),
        )
    };
    (any::<String>(), any::<[bool; 3]>(), any::<u32>(), count(), count(), time(), time(), time()).prop_map(
        |(name, [shadow, allowed, never], depth, limit, remaining, retry_after, reset_after, next_after)| LevelResult {
            name,
            depth,
            shadow,
            allowed,
            limit,
            remaining,
            retry_after,
            reset_after,
            wait: None,
            never,
            next_after,
        },
    )
}

proptest! {
    #[test]
    fn answers_are_encoded_like_prost_reflect(
        levels in prop::collection::vec(level(), 0..4),
        binding in prop::option::of(0..3_u32),
        error in prop::option::of((any::<i32>(), any::<String>())),
    ) {
        let answer = CheckResponse {
            allowed: binding.is_some(),
            limit: levels.len() as u64,
            binding,
            levels,
            error: error.map(|(code, message)| proto::Error { code, message, field: String::new() }),
            ..CheckResponse::default()
        };
        assert_written_as_reflected(proto::DESCRIPTORS, ".weir.v1.CheckResponse", &answer.encode_to_vec(), true);
    }

    #[test]
    fn any_text_is_parsed_like_prost_reflect_or_rejected(text in r#"[\PC"{}\[\],:\\]{0,60}"#) {
        let schema = schema();
        prop_assert_eq!(check(&schema, &text).ok(), reflected(&text));
        let _ = schema.read_batch(".weir.v1.CheckBatchRequest", CHECK, text.as_bytes());
    }

    #[test]
    fn any_field_value_is_parsed_like_prost_reflect(
        field in prop::sample::select(vec![
            "key", "cost", "maxWait", "max_wait", "factor", "limitSpec", "limits", "gcra", "period", "burst", "charge",
            "summaryOnly", "dryRun", "depth", "decay",
        ]),
        value in r#"([0-9.eE+-]{1,12}s?|"[0-9.eE+-]{0,25}s?"|\[\]|\{\}|null|true|"CHARGE_INDEPENDENT"|\["a"\]|"NaN"|"-Infinity")"#,
    ) {
        let schema = schema();
        for text in [
            format!(r#"{{"{field}":{value}}}"#),
            format!(r#"{{"limitSpec":{{"{field}":{value}}}}}"#),
            format!(r#"{{"limitSpec":{{"limits":[{{"{field}":{value}}}]}}}}"#),
            format!(r#"{{"limitSpec":{{"limits":[{{"gcra":{{"{field}":{value}}}}}]}}}}"#),
        ] {
            // Compared as text, since a value may be NaN.
            prop_assert_eq!(format!("{:?}", check(&schema, &text).ok()), format!("{:?}", reflected(&text)), "{}", text);
        }
    }
}
