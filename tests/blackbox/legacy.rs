//! Legacy buckets, without the name of an algorithm.

use serde_json::{Value, json};
use weir::proto::{LegacyBucket, Limit, limit::Algorithm};

use crate::support::{
    Server,
    http::Client,
    requests::{check, limit, refusal, with_limits},
    run_with,
};

#[test]
fn traces_accept_legacy_buckets() {
    let ask = |at_us: i64, limit: Value| json!({ "at_us": at_us, "key": ["a", "b"], "limits": [limit] });
    let bucket = || json!({ "max": 3, "duration": 3000, "minInterval": 0.5, "depth": 1 });
    let trace = [ask(0, bucket()), ask(499, bucket()), ask(500, bucket()), ask(9, json!({ "max": 3 }))];
    let trace: String = trace.iter().map(|line| format!("{line}\n")).collect();
    let output = run_with(&["simulate"], &trace);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let output = output.json_lines();
    let output = |line: usize| {
        let levels = output[line]["levels"].as_array().cloned().unwrap_or_default();
        let allowed = levels.iter().map(|level| level["allowed"].as_bool());
        (allowed.flatten().collect::<Vec<_>>(), output[line]["retry_after_us"].clone(), output[line]["field"].clone())
    };
    assert_eq!(output(0), (vec![true, true], Value::Null, Value::Null));
    assert_eq!(output(1), (vec![true, false], json!(1), Value::Null));
    assert_eq!(output(2), (vec![true, true], Value::Null, Value::Null));
    assert_eq!(output(3), (vec![], Value::Null, json!("limits[0].duration")));
}

fn bucket(bucket: LegacyBucket) -> Limit {
    limit(Algorithm::LegacyBucket(bucket))
}

#[tokio::test]
async fn limit_specs_accept_legacy_buckets() {
    let server = Server::with_policy("schema: {}");
    let mut client = server.client().await;
    let mut ask = async |limits, key: &[&str]| {
        client.check(with_limits(check(key), limits)).await.expect("an answer").into_inner()
    };
    let posts = LegacyBucket { max: Some(3.0), duration: Some(3e9), min_interval: Some(1e8), ..Default::default() };
    let posts = Limit { name: "posts".to_owned(), depth: 1, ..bucket(posts) };
    let small = bucket(LegacyBucket { size: Some(9.5), drip_rate: Some(1e6), ..Default::default() });
    let answer = ask(vec![posts.clone(), small], &["a", "b"]).await;
    let mut levels: Vec<_> = answer.levels.iter().map(|level| (&*level.name, level.depth, level.limit)).collect();
    levels.sort_unstable();
    assert_eq!(levels, [("*/*#leaky_bucket0", 2, 10), ("posts", 1, 3), ("posts-interval", 1, 1)]);
    let again = ask(vec![posts], &["a", "c"]).await;
    assert_eq!((again.allowed, again.binding), (false, Some(1)), "the interval refuses");
    let spec = json!({ "limits": [{ "legacyBucket": { "size": 2, "drip_size": 1.5 } }] });
    let answer = Client::connect(&server.http)
        .expect("it accepts connections")
        .post("/v1/check", &json!({ "key": ["c"], "limit_spec": spec }));
    assert_eq!((answer.status, &answer.json()["limit"]), (200, &json!("2")));

    // Errors name their fields.
    let of = |max, duration, size, drip_rate| LegacyBucket { max, duration, size, drip_rate, ..Default::default() };
    let long = Limit { name: "n".repeat(250), ..bucket(of(Some(9.0), Some(9e3), None, None)) };
    let interval = LegacyBucket { min_interval: Some(5.0), ..of(Some(9.0), Some(9e3), None, None) };
    for (limit, field) in [
        (bucket(of(Some(0.0), Some(1.0), None, None)), "legacy_bucket.max"),
        (bucket(of(Some(1.0), Some(f64::NAN), None, None)), "legacy_bucket.duration"),
        (bucket(of(Some(1.0), None, None, None)), "legacy_bucket.duration"),
        (bucket(of(Some(1.0), Some(1.0), Some(1.0), None)), "legacy_bucket.size"),
        (bucket(of(None, None, None, Some(1.0))), "legacy_bucket.size"),
        (bucket(of(None, None, Some(1e10), None)), "legacy_bucket.size"),
        (bucket(LegacyBucket::default()), "legacy_bucket.max"),
        (Limit { name: "n".repeat(250), ..bucket(interval) }, "name"),
    ] {
        let status = client.check(with_limits(check(&["a"]), vec![limit])).await.expect_err(field);
        assert_eq!(refusal(&status), (tonic::Code::InvalidArgument, Some(format!("limit_spec.limits[0].{field}"))));
    }
    assert!(client.check(with_limits(check(&["a"]), vec![long])).await.is_ok(), "no second limit needs a name");
}
