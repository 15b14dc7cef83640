//! `tests:` in a policy file, run by `weir limits lint`.

use serde_json::json;

use crate::support::{Folder, Run, Server, http::Client, run};

const POLICY: &str = "domain: api
schema:
  user:
    children:
      '*': { limits: [{ gcra: { burst: 15, count: 30, period: 60s }, name: per-user }] }
  job: { limits: [{ leaky_queue: { count: 1, period: 1s, burst: 5 } }] }
  month: { limits: [{ fixed_window: { count: 3, calendar: month, zone: Europe/Berlin }, name: month }] }
tests:
  - name: 16 at once
    steps:
      - { key: [user, alex], cost: 16, says: { allowed: true, remaining: 0 } }
      - { key: [user, alex], says: { allowed: false, by: per-user, retry_after: 2s } }
      - { at: 2s, key: [user, alex], says: allowed }
      - { key: [user, kim], factor: 0.5, cost: 31, says: { reset_after: 31s } }
      - { reset: [user], subtree: true }
      - { key: [user, alex], cost: 16, says: allowed }
  - start: 2026-03-31T21:59:59Z
    steps:
      - { key: [month], cost: 3, says: { reset_after: 1s } }
      - { key: [month], says: refused }
      - { at: 1s, key: [month], says: { remaining: 2 } }
  - name: jobs wait
    steps:
      - { key: [job], max_wait: 5s, says: { wait: 0s } }
      - { key: [job], max_wait: 5s, says: { wait: 1s } }
";

fn lint(policy: &str, more: &[&str]) -> Run {
    let dir = Folder::new();
    let path = dir.write("policy.yaml", policy);
    let said = run(&[&["limits", "lint", &path], more].concat());
    let short = |text: &str| text.replace(&path, "policy.yaml");
    Run { out: short(&said.out), err: short(&said.err), ..said }
}

#[test]
fn tests_that_say_what_they_must_pass() {
    let said = lint(POLICY, &[]);
    let expected = "policy.yaml: valid; domains: 1, limits: 3\ntests: 3 passed, 0 failed\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, expected, ""));
    let report = lint(POLICY, &["--json"]).json();
    assert_eq!(report["tests"], json!({ "passed": 3, "failed": 0, "failures": [] }));
}

#[test]
fn a_failure_names_its_place() {
    for (what, instead, failure) in [
        ("retry_after: 2s", "retry_after: 3s", "12:81: test `16 at once`: retry_after is 2s, must be 3s"),
        (
            "cost: 16, says: { allowed",
            "cost: 17, says: { allowed",
            "11:57: test `16 at once`: refused by per-user, must be allowed",
        ),
        ("remaining: 2", "remaining: 1", "21:52: test `2`: remaining is 2, must be 1"),
        ("by: per-user", "by: other", "12:58: test `16 at once`: by is per-user, must be other"),
        ("wait: 1s", "wait: 2s", "25:51: test `jobs wait`: wait is 1s, must be 2s"),
        (
            "cost: 31",
            "cost: 9999999999",
            "14:9: test `16 at once`: not valid: a cost must be -2^32 to 2^32, not 9999999999",
        ),
    ] {
        let said = lint(&POLICY.replace(what, instead), &[]);
        assert_eq!(said.code, 2, "{instead}");
        assert!(said.out.ends_with("tests: 2 passed, 1 failed\n"), "{}", said.out);
        assert!(said.err.contains(&format!("policy.yaml:{failure}\n")), "{instead}: {}", said.err);
    }
}

#[test]
fn tests_that_cannot_be_read_are_errors() {
    for (what, instead, error) in [
        ("says: refused", "says: nothing", "20:31: says must be allowed, refused or a map, not `nothing`"),
        ("retry_after: 2s", "retry: 2s", "12:68: unknown key `retry`; did you mean `retry_after`?"),
        (
            "start: 2026-03-31T21:59:59Z",
            "start: soon",
            "17:12: start must be a time as in 2026-10-31T12:00:00Z, not `soon`",
        ),
        ("at: 2s, key: [user, alex]", "at: 2s", "13:9: a step checks a key, or resets one: key: [user, alex]"),
        ("reset: [user]", "reset: user", "15:18: reset must be a list, not `user`"),
    ] {
        let said = lint(&POLICY.replace(what, instead), &[]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{instead}");
        assert!(said.err.contains(&format!("policy.yaml:{error}")), "{instead}: {}", said.err);
    }
}

/// A service does not read the tests, so a failing or misspelt test does not stop a policy from being served.
#[test]
fn a_service_ignores_tests() {
    let server = Server::with_policy(&POLICY.replace("says: allowed", "says: nonsense"));
    let mut client = Client::connect(&server.http).expect("it accepts connections");
    let answer = client.post("/v1/check", &json!({ "domain": "api", "key": ["user", "alex"] }));
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!("15")));
}
