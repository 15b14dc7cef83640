//! Policies at start: errors are reported with their positions, and the service does not start.

use std::fs;

use crate::support::{Folder, Run, Server, eventually, finish, requests::check, requests::short, server::Setup, weir};

/// Tries to serve a policy that must be rejected.
fn refused(path: &str) -> Run {
    let mut serve = weir();
    serve.args(["serve", "--limits", path]);
    finish(serve.env("WEIR_GRPC__LISTEN", "127.0.0.1:0").env("WEIR_HTTP__LISTEN", "127.0.0.1:0"))
}

#[test]
fn invalid_policies_fail_the_start_and_all_errors_have_their_location() {
    let deep = format!("schema: {}{{}}{}", "{ a: { children: ".repeat(33), "} }".repeat(33));
    let crowded = format!("schema:\n  a:\n    limits: [{}]\n", vec!["[1, 1, 1]"; 17].join(", "));
    let long = format!("schema:\n  ? {}\n  : {{}}\n", "a".repeat(1_025));
    let long_domain = format!("domain: {}\nschema: {{}}\n", "a".repeat(1_025));
    let cases = [
        ("schema: [", ":2:1: not valid YAML"),
        ("schema:\n  user:\n\tlimits: []\n", ":3:2: not valid YAML"),
        ("shcema: {}\n", ":1:1: unknown key `shcema`; did you mean `schema`?"),
        ("schema:\n  user:\n    childern: {}\n", ":3:5: unknown key `childern`; did you mean `children`?"),
        (
            "schema:\n  user:\n    limits:\n      - gcrra: { burst: 1 }\n",
            ":4:9: unknown key `gcrra`; did you mean `gcra`?",
        ),
        ("schema:\n  user:\n    limits:\n      - magic: {}\n", ":4:9: unknown key `magic`; known are gcra,"),
        (
            "schema:\n  user:\n    limits:\n      - gcra: { brust: 1, count: 1, period: 1s }\n",
            ":4:17: unknown parameter of gcra `brust`; did you mean `burst`?",
        ),
        (
            "schema:\n  user:\n    limits:\n      - gcra: { burst: 1, count: 0, period: 1s }\n",
            ":4:34: gcra: count must be 1 to 2^32, not 0",
        ),
        ("schema:\n  user:\n    limits: [1, 0, 1]\n", ":3:17: count must be 1 to 2^32, not 0"),
        ("schema:\n  user:\n    limits: [1, 1, 0]\n", ":3:20: period must be 1us to 31d"),
        ("schema:\n  user:\n    limits: [1, 1]\n", ":3:13: a positional limit must be [max_burst, count, seconds]"),
        ("schema:\n  a: {}\n  b: {}\n  a: {}\n", ":4:3: duplicate key `a`; the first one is at line 2, column 3"),
        ("schema:\n  *:\n    limits: []\n", "found unknown anchor; write a name of `*` in quotes: \"*\""),
        (
            "schema:\n  a:\n    limits:\n      - gcra: { burst: 1, count: ten, period: 1s }\n",
            ":4:34: gcra: count must be a whole number, 1 to 2^32, not `ten`",
        ),
        (
            "schema:\n  a:\n    limits:\n      - gcra: { burst: 1, count: 1, period: 1s }\n        shadow: yes\n",
            ":5:17: limits[0].shadow must be true or false, not `yes`",
        ),
        (
            "schema:\n  a:\n    limits:\n      - gcra: { burst: 1, count: 1, period: 1s }\n        window: 5s\n",
            ":5:9: unknown key next to gcra `window`; known are name, shadow",
        ),
        (
            "schema:\n  a:\n    limits:\n      - gcra: { burst: 1, period: 1s }\n        count: 5\n",
            ":5:9: `count` is a parameter of gcra; write it within `gcra: { … }`",
        ),
        (
            "schema:\n  a:\n    limits:\n      - window: { count: 1, period: 1s }\n",
            ":4:9: unknown key `window`; did you mean `fixed_window` or `sliding_window`?",
        ),
        ("charge: some\n", ":1:9: charge must be `all_or_nothing` or `independent`, not `some`"),
        ("anchor: 0\n", ":1:9: anchor must be a number of segments, 1 to 32"),
        (long.as_str(), ":2:5: a segment must have 1 to 1024 bytes"),
        (long_domain.as_str(), ":1:9: domain must be a string of at most 1024 bytes"),
        ("schema:\n  a:\n    limits: { gcra: {} }\n", ":3:13: limits must be a list of limits, each after a `- `"),
        ("schema:\n  a:\n    limits: [{}]\n", ":3:14: a limit needs an algorithm: gcra,"),
        ("schema:\n  user: { factor: -1 }\n", ":2:19: factor must be a number from 0"),
        ("- 1\n", ":1:1: a policy file must be a map"),
        (crowded.as_str(), ":3:13: 17 limits on the path to here; at most 16"),
        (deep.as_str(), "no key is that deep: at most 32 segments"),
        ("schema: {}\n---\nschema: {}\n", "a second document in one file"),
        // All errors of a file are reported.
        ("domian: a\nschema: { x: { limit: [] } }\n", ":1:1: unknown key `domian`"),
        ("domian: a\nschema: { x: { limit: [] } }\n", ":2:16: unknown key `limit`"),
        ("domain: b\nschema: 7\n", ":2:9: schema must map names to nodes"),
    ];
    let dir = Folder::new();
    for (number, (yaml, _)) in cases.iter().enumerate() {
        dir.write(&format!("{number:02}.yaml"), yaml);
    }
    dir.write("empty.yaml", "# schema: {}\n");
    let run = refused(&dir.path(""));
    assert_eq!(run.code, 2, "{run:?}");
    let empty = "/empty.yaml: the file has no content; to lift all limits write `schema: {}`";
    assert!(run.err.contains(empty), "{}", run.err);
    for (number, (yaml, expected)) in cases.iter().enumerate() {
        // The file alone is an error too, not only a warning.
        assert!(weir_policy::parse(yaml, &weir_policy::Rules::default()).is_err(), "{yaml}");
        let file = format!("/{number:02}.yaml");
        let is_reported = |line: &str| line.split_once(&file).is_some_and(|(_, error)| error.contains(expected));
        assert!(run.err.lines().any(is_reported), "{expected} is missing for\n{yaml}\n{}", run.err);
    }
}

#[test]
fn duplicate_domains_are_rejected() {
    let dir = Folder::of(&["a.yaml", "b.yml"].map(|name| (name, "domain: api\n")));
    let run = refused(&dir.path(""));
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("b.yml: domain `api` is also defined in") && run.err.contains("a.yaml; define it once"),
        "{}",
        run.err
    );
}

#[test]
fn a_missing_policy_file_is_an_error() {
    let run = refused("/nowhere/limits.yaml");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("/nowhere/limits.yaml"), "{}", run.err);
}

#[tokio::test]
async fn only_yaml_files_of_a_policy_directory_are_loaded() {
    let setup = Setup::new();
    let policies = setup.path("policies");
    fs::create_dir(&policies).expect("made");
    for (name, text) in [
        ("api.yaml", "domain: api\nschema: { a: { limits: [1, 1, 60] } }"),
        ("web.yml", "domain: web\nschema: { a: { limits: [2, 1, 60] } }"),
        ("notes.txt", "schema: [ not read"),
        (".hidden.yaml", "schema: [ not read"),
    ] {
        fs::write(policies.join(name), text).expect("written");
    }
    let server = setup.limits(policies).start();
    let skipped = server.log_lines("not a policy file: skipped");
    assert_eq!(skipped.len(), 1);
    assert!(skipped[0]["path"].as_str().expect("a path").ends_with("notes.txt"));
    let mut client = server.client().await;
    for (domain, limit) in [("api", 2), ("web", 3)] {
        let request = weir::proto::CheckRequest { domain: domain.to_owned(), ..check(&["a"]) };
        assert_eq!(client.check(request).await.expect("an answer").into_inner().limit, limit);
    }
    let unnamed = client.check(check(&["a"])).await.expect_err("no file defines the default domain");
    assert_eq!(unnamed.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn everything_is_allowed_without_a_policy() {
    let server = Setup::new().start();
    let answer = server.check(check(&["a"])).await;
    assert_eq!((short(&answer), answer.levels.len(), answer.binding), ((true, 0, 0), 0, None));
}

#[tokio::test]
async fn exact_names_take_precedence_and_yaml_aliases_work() {
    let server = Server::with_policy(
        "schema:\n  user:\n    children:\n      '*': &tight\n        limits: [[0, 1, 60]]\n      alex: { limits: [[4, \
         1, 60]] }\n  group: *tight\n",
    );
    let mut client = server.client().await;
    for (key, limit) in [(&["user", "alex"][..], 5), (&["user", "berta"], 1), (&["group"], 1), (&["user"], 0)] {
        assert_eq!(client.check(check(key)).await.expect("an answer").into_inner().limit, limit, "{key:?}");
    }
}

#[test]
fn a_policy_of_a_hundred_thousand_nodes_is_served() {
    let serving = |users: usize| {
        let mut yaml = "schema:\n  user:\n    children:\n".to_owned();
        for user in 0..users {
            yaml.push_str(&format!(
                "      u{user}:\n        limits: [[9, {}, 60]]\n        children: {{ trade: }}\n",
                user % 100 + 1
            ));
        }
        Setup::new().policy(&yaml).start()
    };
    // Load on the machine takes wall-clock time, but no CPU time of this process.
    let cpu_seconds = |server: &Server| server.metric("process_cpu_seconds_total");
    let small = cpu_seconds(&serving(5_000));
    let server = serving(50_000);
    let large = cpu_seconds(&server);
    println!("policies of 10,000 and of 100,000 nodes are served after {small} and {large} s of CPU time");
    assert!(large < 30.0 * small, "ten times as many nodes take {small} and {large} s");
    let loaded = eventually("the policy is logged", || server.log_lines("policy loaded").pop());
    assert_eq!(loaded["limits"], 50_000);
    let checked = server.run(&["check", "user", "u49999", "trade", "--json"]);
    assert!(checked.out.contains("user/u49999#gcra0"), "{checked:?}");
}
