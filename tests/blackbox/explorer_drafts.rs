//! Drafts of the policy in the explorer.

use serde_json::{Value, json};

use crate::explorer::{POLICY, check_by_http, query, refused, setup, simulation};
use crate::support::Server;

#[test]
fn a_simulation_runs_the_policy_or_a_draft() {
    let server = setup().policy(POLICY).start();
    let course = query(&server, "simulate", simulation());
    let first = &course["steps"][0];
    assert_eq!((&first["allowed"], &first["refused"]), (&json!(4), &json!(6)), "{first}");
    let per_user = &course["limits"][1];
    assert_eq!((&per_user["name"], &per_user["refused"]), (&json!("per-user"), &json!(15)));
    assert!(course["steps"].as_array().expect("steps").len() <= 120);

    let mut draft = simulation();
    draft["draft"] = json!("[{ gcra: { burst: 99, count: 1, period: 1d } }]");
    let course = query(&server, "simulate", draft.clone());
    assert_eq!((&course["limits"][0]["allowed"], &course["limits"][0]["refused"]), (&json!(19), &json!(0)));
    assert_eq!(query(&server, "live", json!({ "domain": "" }))["checks"], json!([0, 0, 0]), "nothing of it is counted");

    draft["draft"] = json!("schema:\n  user: { limts: [] }\n");
    let (status, why) = refused(&server, "simulate", draft);
    assert!(status == 400 && why.contains("draft:2:11: ") && why.contains("limts"), "{why}");
    for (field, value) in [
        ("rate", json!(1001)),
        ("rate", json!(-1)),
        ("burst", json!(20_000)),
        ("seconds", json!(0)),
        ("seconds", json!(1e9)),
        ("key", json!([])),
        ("key", json!(["a", ""])),
        ("cost", json!(1_i64 << 40)),
        ("domain", json!("nowhere")),
        ("more", json!(1)),
    ] {
        let mut wrong = simulation();
        wrong[field] = value;
        assert_eq!(refused(&server, "simulate", wrong.clone()).0 / 100, 4, "{wrong}");
    }
    let mut large = simulation();
    let row = vec!["x"; 1_000].join(",");
    large["draft"] = json!(format!("schema:\n  a: &a [{row}]\n  b: [{}]\n", vec!["*a"; 30].join(",")));
    let (status, why) = refused(&server, "simulate", large);
    assert!(status == 400 && why.contains("more than 20000 values"), "{why}");
    let mut long = simulation();
    long["draft"] = json!("#".repeat(70_000));
    assert_eq!(refused(&server, "simulate", long).0, 413);
}

#[test]
fn a_draft_of_descriptors_is_charged_as_the_settings_say() {
    let text = "domain: d\ndescriptors: [{ key: user, rate_limit: [{ unit: day, requests_per_unit: 2 }, { unit: month, \
                requests_per_unit: 1 }] }]";
    // A request that the month refuses is not charged to the day.
    for (charge, refused_by_the_day) in [("independent", true), ("all_or_nothing", false)] {
        let server = setup().policy(POLICY).env("WEIR_ENVOY__CHARGE", charge).start();
        let mut wanted = simulation();
        wanted["draft"] = json!(text);
        wanted["key"] = json!(["user", "alex"]);
        let course = query(&server, "simulate", wanted);
        assert_eq!(course["limits"][0]["refused"] != json!(0), refused_by_the_day, "{charge}: {}", course["limits"]);
    }
}

#[test]
fn a_draft_is_compared_by_the_checks_of_the_last_minutes() {
    let policy = "schema: { user: { children: { '*': { limits: [{ name: per-user, fixed_window: { count: 4, period: 31d } }] } } } }";
    let server = setup().policy(policy).start();
    for turn in 0..6 {
        assert_eq!(check_by_http(&server, &["user", "alex"]), if turn < 4 { 200 } else { 429 });
    }
    assert_eq!(check_by_http(&server, &["user", "sam"]), 200);
    assert_eq!(check_by_http(&server, &["other"]), 200, "it meets no limit");
    let compare = |draft: &str| query(&server, "traffic", json!({ "domain": "", "draft": draft }));
    let alone = compare("");
    assert_eq!((&alone["checks"], &alone["one_of"], &alone["draft"]), (&json!(8), &json!(1), &Value::Null), "{alone}");
    let as_then = json!({ "allowed": 6, "refused": 2 });
    assert_eq!((&alone["then"], &alone["in_force"]), (&as_then, &as_then));
    let draft = compare(&policy.replace("count: 4", "count: 1"));
    assert_eq!(draft["draft"], json!({ "allowed": 3, "refused": 5 }));
    let limit = json!({
        "name": "per-user", "in_force": { "allowed": 5, "refused": 2 }, "draft": { "allowed": 2, "refused": 5 },
    });
    assert_eq!(draft["limits"], json!([limit]));
    assert_eq!(draft["differing"], json!({ "keys": 1, "refused": 3, "allowed": 0 }));
    assert_eq!(draft["keys"], json!([{ "key": ["user", "alex"], "hashed": [], "refused": 3, "allowed": 0 }]));
    assert_eq!(compare(policy)["differing"], json!({ "keys": 0, "refused": 0, "allowed": 0 }));

    let (status, why) = refused(&server, "traffic", json!({ "domain": "", "draft": "[[1, 1, 1]]" }));
    assert!(status == 400 && why.contains("policy file"), "{why}");
    let (status, why) = refused(&server, "traffic", json!({ "domain": "", "draft": "domain: other\nschema: {}" }));
    assert!(status / 100 == 4 && why.contains("the draft does not define the default domain"), "{why}");
    assert_eq!(refused(&server, "traffic", json!({ "domain": "nowhere" })).0, 404);
    let off = setup().env("WEIR_HTTP__UI__MAX_TRAFFIC_BYTES", "0").policy(policy).start();
    assert_eq!(query(&off, "traffic", json!({ "domain": "" })), json!({ "recorded": false }));
}

#[test]
fn checks_of_hashed_segments_are_left_out_where_a_policy_has_long_names() {
    let limit = |name, count| format!("limits: [{{ name: {name}, fixed_window: {{ count: {count}, period: 31d }} }}]");
    let user = |more: &str| format!("schema: {{ user: {{ children: {{ '*': {{ {} }}{more} }} }} }}", limit("std", 1));
    let long = "x".repeat(80);
    let (plain, vip) = (user(""), user(&format!(", {long}: {{ {} }}", limit("vip", 9))));
    let check_all = |server: &Server| {
        for name in ["sam", &long, "alex"] {
            let statuses = [check_by_http(server, &["user", name]), check_by_http(server, &["user", name])];
            assert_eq!(statuses[0], 200, "{name}");
        }
    };
    // Neither policy may have a long name, which could be the hashed one.
    for (in_force, draft, left_out) in [(&vip, "", 2), (&vip, &*plain, 2), (&plain, &*vip, 2), (&plain, &*plain, 0)] {
        let server = setup().policy(in_force).start();
        check_all(&server);
        let found = query(&server, "traffic", json!({ "domain": "", "draft": draft }));
        assert_eq!((&found["checks"], &found["left_out"]), (&json!(6 - left_out), &json!(left_out)), "{found}");
        assert_eq!(found["then"], found["in_force"], "{found}");
    }
    // A long segment that no name concerns is replayed; its row has no key that could be inspected.
    let server = setup().policy(&plain).start();
    check_all(&server);
    let found = query(&server, "traffic", json!({ "domain": "", "draft": plain.replace("count: 1", "count: 2") }));
    let keys = found["keys"].as_array().expect("keys");
    let hashed: Vec<_> = keys.iter().filter(|key| key["hashed"] == json!([1])).collect();
    assert_eq!((keys.len(), hashed.len()), (3, 1), "{found}");
    assert!(hashed[0]["key"][1].as_str().expect("a segment").starts_with("hash:"), "{found}");
}
