//! `weir config check`.

use std::time::Duration;

use crate::support::{
    Folder, finish,
    pki::{Authority, Leaf},
    run, weir,
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[2, 1, 86400]] } } } }";

#[test]
fn config_check_prints_the_effective_settings_or_the_error() {
    let dir = Folder::of(&[("limits.yaml", POLICY), ("empty.yaml", "# none\n")]);
    let path = |name: &str| dir.path(name);
    let checked = |settings: &str| {
        let limits = if settings.contains("limits:") { "" } else { "\nlimits: limits.yaml" };
        run(&["config", "check", &dir.write("weir.yaml", format!("{settings}{limits}"))])
    };
    let good = checked("limits: limits.yaml\nstore: { url: 'redis://:geheim@nowhere', max_keys: 5000000 }");
    assert_eq!((good.code, good.err.as_str()), (0, ""), "{good:?}");
    for expected in [
        "policy          1 domains, 1 limits\n",
        "authentication  off\n",
        "2240 MB  states (store.max_keys), of the policy's largest limit: 5000000 of 448 bytes\n",
        "1280 MB  what they take by longer keys, and by limits of requests: 5000000 of 256 bytes\n",
        "MB  charges after an outage (store.redis.charge_after_outage.max_keys): 100000 of 1024 bytes\n",
        "MB  gRPC decisions that wait (grpc.max_concurrent_requests): 10000 of ",
        "MB  in all\n",
    ] {
        assert!(good.out.contains(expected), "{expected}: {}", good.out);
    }
    assert!(!good.out.contains("geheim"), "{}", good.out);
    let unlimited = checked("limits: empty.yaml\nlimits_allow_empty: true");
    assert!(unlimited.out.contains("policy          1 domains, 0 limits\n"), "{unlimited:?}");
    let authority = Authority::new("a CA");
    let [pair, soon, old] = [
        Leaf::host("localhost"),
        Leaf::host("localhost").lasting(Duration::from_secs(10 * 86_400)),
        Leaf::host("localhost").until(2021),
    ]
    .map(|leaf| authority.sign(leaf));
    for (pair, name) in [(&pair, "good"), (&soon, "soon"), (&old, "old")] {
        pair.write(path("").as_ref(), name);
    }
    dir.write("ca.pem", &authority.pem);
    let tls = |name: &str, key: &str| format!("cert: {name}.pem, key: {key}.key");
    let good = checked(&format!("grpc: {{ tls: {{ {}, client_ca: ca.pem }} }}", tls("good", "good")));
    for expected in [
        "authentication  on\n".to_owned(),
        format!("certificate     grpc.tls.cert: {} expires 2100-01-01, in ", path("good.pem")),
        format!("certificate     grpc.tls.client_ca: {} expires ", path("ca.pem")),
    ] {
        assert!(good.out.contains(&expected) && !good.out.contains("warning"), "{expected}: {good:?}");
    }
    for (name, expected) in [("soon", "expires soon"), ("old", "has expired")] {
        let run = checked(&format!("http: {{ tls: {{ {} }} }}", tls(name, name)));
        let expected =
            format!("warning: http.tls.cert: a certificate in {} {expected}\n", path(&format!("{name}.pem")));
        assert!(run.code == 0 && run.out.contains(&expected), "{expected}: {run:?}");
    }
    let token =
        |digit: &str, rest: &str| format!("{{ roles: [check], tokens: [{{ sha256: {}{rest} }}] }}", digit.repeat(64));
    let clients = [
        ("ever", token("1", "")),
        ("late", token("2", ", expires: 2100-01-01")),
        ("old", token("3", ", expires: 2021-01-01")),
    ];
    for (count, expected) in [
        (1, vec![]),
        (2, vec!["token           auth.file: the first token, of late, expires 2100-01-01, in "]),
        (
            3,
            vec![
                "token           auth.file: the first token, of old, expired 2021-01-01, ",
                "warning: auth.file: a token of old has expired\n",
            ],
        ),
    ] {
        let clients: String = clients[..count].iter().map(|(name, rest)| format!("  {name}: {rest}\n")).collect();
        dir.write("auth.yaml", format!("clients:\n{clients}"));
        let run = checked("auth: { file: auth.yaml }");
        let lines = |start: &str| run.out.lines().filter(|line| line.starts_with(start)).count();
        assert!(run.code == 0 && expected.iter().all(|line| run.out.contains(line)), "{expected:?}: {run:?}");
        assert_eq!(lines("token ") + lines("warning: "), expected.len(), "{run:?}");
    }
    let at = |place: &str| format!("{}:{place}: ", path("weir.yaml"));
    let not_the_key = format!("grpc.tls: {}: not the key of the certificate in {}", path("soon.key"), path("good.pem"));
    for (settings, expected) in [
        ("grpc: { message_timeout: 1us }", "grpc.message_timeout must be 100ms to 1d".to_owned()),
        ("limits: nowhere.yaml", "nowhere.yaml".to_owned()),
        (
            "limits: empty.yaml",
            format!("{}limits: {}: the file has no content; to lift", at("1:9"), path("empty.yaml")),
        ),
        ("auth: { file: nowhere.yaml }", format!("{}auth.file: {}", at("1:15"), path("nowhere.yaml"))),
        (
            "store: { snapshot: { path: nowhere/w.snapshot } }",
            format!("{}the snapshot {} cannot be written: No such file", at("1:28"), path("nowhere/w.snapshot")),
        ),
        (
            "http: { tls: { cert: nowhere.pem, key: nowhere.pem } }",
            format!("{}http.tls: {}: No such file", at("1:9"), path("nowhere.pem")),
        ),
        ("grpc: { tls: { cert: good.pem, key: soon.key } }", format!("{}{not_the_key}\n", at("1:9"))),
        (
            "grpc: { tls: { cert: good.pem, key: good.key, client_ca: weir.yaml } }",
            format!("{}grpc.tls: {}: it contains no certificate", at("1:9"), path("weir.yaml")),
        ),
        (
            "tracing: { otlp_endpoint: 'https://h:1', ca: weir.yaml }",
            format!("{}tracing.ca: {}: it contains no certificate", at("1:46"), path("weir.yaml")),
        ),
        (
            "tracing: { otlp_endpoint: 'https://a..b:1', ca: good.pem }",
            format!("{}tracing.otlp_endpoint: `a..b` is not a host name", at("1:27")),
        ),
        (
            "{ limits: nowhere.yaml, grpc: { tls: { cert: nowhere.pem, key: good.key } } }",
            format!(
                "{}: No such file or directory (os error 2)\n{}limits: {}: No such",
                path("nowhere.pem"),
                at("1:11"),
                path("nowhere.yaml")
            ),
        ),
        (
            "{ limits: nowhere.yaml, store: { url: 'rediss://h', redis: { password_file: nowhere, tls: { ca: nowhere.pem } } } }",
            format!(
                "{}store.redis.password_file: password file {}: No such file or directory (os error 2)\n{}store.redis.tls: {}: No such \
                 file or directory (os error 2)\n{}limits: ",
                at("1:77"),
                path("nowhere"),
                at("1:86"),
                path("nowhere.pem"),
                at("1:11"),
            ),
        ),
    ] {
        let bad = checked(settings);
        assert_eq!((bad.code, bad.out.as_str()), (2, ""), "{settings}");
        assert!(bad.err.contains(&expected), "{expected}: {}", bad.err);
    }
}

/// The settings of `deploy/` and the bound that the text next to them names, in whole GB.
#[test]
fn the_memory_bounds_of_deployments_are_as_documented() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("a file");
    let checked = |limits: &str, settings: Option<&str>, variables: &[(&str, &str)]| {
        let mut check = weir();
        check.args(["config", "check", "--limits", &format!("{root}/{limits}")]).args(settings);
        let run = finish(check.envs(variables.iter().copied()));
        let total = run.out.lines().find_map(|line| line.trim().strip_suffix(" MB  in all")).map(str::to_owned);
        let megabytes: u64 = total.unwrap_or_else(|| panic!("{run:?}")).trim().parse().expect("a number");
        format!(" {} GB with ", megabytes.div_ceil(1_000))
    };
    let (manifests, compose, values) =
        (read("deploy/kubernetes/deployment.yaml"), read("deploy/compose.yaml"), read("deploy/helm/weir/values.yaml"));
    let bound = checked("deploy/kubernetes/limits", Some(&format!("{root}/deploy/kubernetes/weir.yaml")), &[]);
    assert!(manifests.contains(&bound), "{bound}");
    assert!(read("docs/deploying.md").contains(&bound), "{bound}");

    let variables = compose.lines().filter_map(|line| line.trim().strip_prefix("WEIR_")?.split_once(": "));
    let variables: Vec<_> = variables.map(|(name, value)| (format!("WEIR_{name}"), value)).collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let bound = checked("deploy/compose/limits", None, &variables);
    assert!(variables.len() > 3 && compose.contains(&bound), "{bound}");

    let settings: String = values
        .lines()
        .skip_while(|line| *line != "settings:")
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with(' '))
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)))
        .collect();
    let dir = Folder::of(&[("weir.yaml", &settings)]);
    for store in ["memory", "redis://store"] {
        let bound = checked("deploy/kubernetes/limits", Some(&dir.path("weir.yaml")), &[("WEIR_STORE__URL", store)]);
        assert!(settings.contains("max_connections:") && values.contains(&bound), "{store}: {bound}");
    }
}
