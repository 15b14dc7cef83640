//! The client commands: their output and exit codes.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Folder, Server, finish, run, server::Setup, weir};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[2, 1, 86400]] } } } }";

#[test]
fn check_exits_with_0_when_allowed_1_when_refused_and_2_on_an_error() {
    let server = Server::with_policy(POLICY);
    for left in [2, 1, 0] {
        let allowed = server.run(&["check", "user", "alex"]);
        assert_eq!((allowed.code, allowed.err.as_str()), (0, ""));
        assert!(allowed.out.starts_with(&format!("allowed; {left} of 3 left, ")), "{}", allowed.out);
    }
    let refused = server.run(&["check", "user", "alex"]);
    assert_eq!((refused.code, refused.err.as_str()), (1, ""));
    assert!(refused.out.starts_with("refused by user/*#gcra0: 0 of 3 left, retry after "), "{}", refused.out);

    let never = server.run(&["check", "user", "berta", "--cost", "4"]);
    assert_eq!(never.code, 1);
    assert!(never.out.contains("never: the cost is above the limit"), "{}", never.out);

    let unlimited = server.run(&["check", "group"]);
    assert_eq!((unlimited.code, unlimited.out.as_str()), (0, "allowed: no limit applies\n"));

    for (args, expected) in [
        (
            &["check", "user", "alex", "--domain", "nowhere"][..],
            "no policy defines the domain `nowhere` (NOT_FOUND); did you mean the default domain (without --domain)?\n",
        ),
        (&["check", "user", ""], "segment 1 is empty (INVALID_ARGUMENT)"),
        (&["check", "user", "--cost", "4294967297"], "a cost must be -2^32 to 2^32"),
        (&["check", "user", "--factor=-1"], "a factor must be a number from 0"),
        (&["check", "user", "--max-wait", "2d"], "max_wait must be 0 to 1 day"),
        (&["check", "user", "--max-wait", "soon"], "`soon` is not a duration"),
    ] {
        let failed = server.run(args);
        assert_eq!((failed.code, failed.out.as_str()), (2, ""), "{args:?}");
        assert!(failed.err.contains(expected), "{args:?}: {}", failed.err);
    }

    // It accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let late = run(&["check", "user", "alex", "--timeout", "50ms", "--addr", &address]);
    assert_eq!(late.err, format!("weir: no answer from {address} within 50ms (DEADLINE_EXCEEDED)\n"));

    // The error says that the port is an HTTP port.
    for command in [&["check", "a"][..], &["reset", "a"], &["health"]] {
        let failed = run(&[command, &["--addr", &server.http]].concat());
        assert_eq!((failed.code, failed.out.as_str()), (2, ""), "{command:?}");
        assert!(failed.err.contains("an HTTP server answers there, and not gRPC"), "{command:?}: {}", failed.err);
    }
}

#[test]
fn an_unmatched_key_is_a_warning_with_a_suggestion() {
    let policy =
        "schema: { user: { children: { '*': { limits: [2, 1, 9], children: { trade: { limits: [2, 1, 9] } } } } } }";
    let server = Server::with_policy(policy);
    let all = "; limits apply to `user *`, `user * trade`\n";
    for (key, hint) in [
        (&["usr", "alex", "trade"][..], "`usr alex trade`; did you mean `user alex trade`?\n"),
        (&["user/alex/trade"], "`user/alex/trade`: each segment is an argument; did you mean `user alex trade`?\n"),
        (&["user"], &format!("`user`{all}")),
        (&["every one"], &format!("`'every one'`{all}")),
    ] {
        for more in [&[][..], &["--json"]] {
            let checked = server.run(&[&["check"], key, more].concat());
            assert_eq!((checked.code, checked.err), (0, format!("weir: warning: no limit applies to {hint}")));
            let reserved = server.run(&[&["reserve"], key, more].concat());
            assert_eq!((reserved.code, reserved.err), (0, format!("weir: warning: no limit applies to {hint}")));
        }
        let reset = server.run(&[&["reset"], key].concat());
        assert_eq!((reset.code, reset.out), (0, format!("nothing to reset: {} had no state\n", key.join(" / "))));
        assert_eq!(reset.err, format!("weir: warning: no limit applies to {hint}"));
    }
    for (command, args) in
        [("keys", &["user/alex"][..]), ("holds", &["user/alex", "--json"]), ("usage", &["user/alex"])]
    {
        let listed = server.run(&[&[command], args].concat());
        let warning =
            "weir: warning: no keys under `user/alex`: each segment is an argument; did you mean `user alex`?\n";
        assert_eq!((listed.code, listed.err.as_str()), (0, warning), "{command}");
    }
    let lifted = server.run(&["check", "user", "alex", "--factor", "0"]);
    assert_eq!((lifted.code, lifted.err.as_str()), (0, ""));
    let known = server.run(&["reset", "user", "berta"]);
    assert_eq!((known.out.as_str(), known.err.as_str()), ("nothing to reset: user / berta had no state\n", ""));
}

#[test]
fn an_unknown_domain_is_an_error_that_lists_the_known_ones() {
    let setup = Setup::new();
    for domain in ["shop", "web"] {
        std::fs::write(setup.path(&format!("{domain}.yaml")), format!("domain: {domain}\nschema: {{}}\n"))
            .expect("written");
    }
    let files = setup.dir.path().to_owned();
    let server = setup.limits(files).start();
    for (domain, expected) in
        [("shpo", "; did you mean --domain shop?\n"), ("elsewhere", "; there are --domain shop, --domain web\n")]
    {
        let unknown = server.run(&["check", "a", "--domain", domain]);
        assert_eq!(unknown.code, 2);
        assert_eq!(unknown.err, format!("weir: no policy defines the domain `{domain}` (NOT_FOUND){expected}"));
    }
    let unlimited = server.run(&["check", "a", "--domain", "shop"]);
    assert_eq!(unlimited.err, "weir: warning: no limit applies to `a`: its domain has no limits\n");
}

#[test]
fn check_sends_all_its_options_and_prints_the_same_json_as_simulate() {
    let server = Server::with_policy(POLICY);
    let peek = |args: &[&str]| server.run(&[&["check", "user", "alex", "--json"], args].concat()).json();
    assert_eq!(peek(&["--cost", "2"])["remaining"], 1);
    assert_eq!(peek(&["--cost", "0"])["remaining"], 1);
    assert_eq!(peek(&["--cost", "-1"])["remaining"], 2);
    // Twice the limit: a burst of 4 at twice the rate, so the spent unit counts half.
    assert_eq!(peek(&["--cost", "0", "--factor", "0.5"])["limit"], 5);
    let lifted = peek(&["--factor", "0", "--max-wait", "1d"]);
    assert_eq!((&lifted["allowed"], &lifted["limit"], &lifted["binding"]), (&json!(true), &Value::Null, &Value::Null));

    let output = server.run(&["check", "user", "berta", "--json", "--cost", "3"]);
    assert_eq!(output.code, 0);
    let fresh = json!({ "allowed": true, "limit": 3, "remaining": 0, "retry_after_us": null,
        "next_after_us": 86_400_000_000_i64,
        "reset_after_us": 259_200_000_000_i64, "wait_us": 0, "never": false });
    let mut summary = fresh.clone();
    summary["binding"] = json!(0);
    let mut level = json!({ "name": "user/*#gcra0", "depth": 2, "shadow": false });
    level.as_object_mut().expect("a map").extend(fresh.as_object().expect("a map").clone());
    summary["levels"] = json!([level]);
    assert_eq!(output.json(), summary);
    let refused = server.run(&["check", "user", "berta", "--json"]);
    assert_eq!((refused.code, &refused.json()["allowed"]), (1, &json!(false)));
}

#[test]
fn reset_clears_a_key_and_reports_whether_it_had_state() {
    let server = Server::with_policy(POLICY);
    for (args, expected, existed) in [
        (&["reset", "user", "alex"][..], "nothing to reset: user / alex had no state\n", false),
        (&["reset", "user", "alex"], "reset user / alex; it had state\n", true),
        (&["reset", "user", "--subtree"], "reset user and every key below it; it had no state of its own\n", false),
    ] {
        if expected != "nothing to reset: user / alex had no state\n" {
            assert_eq!(server.run(&["check", "user", "alex", "--cost", "3"]).code, 0);
            assert_eq!(server.run(&["check", "user", "alex"]).code, 1);
        }
        let reset = server.run(args);
        assert_eq!((reset.code, reset.out.as_str()), (0, expected));
        assert_eq!(server.run(&["check", "user", "alex"]).code, 0);
        let again = server.run(&["reset", "user", "alex", "--json"]).json();
        assert_eq!(again, json!({ "existed": true, "scanned": false, "removed": true }), "{existed}");
    }
    assert_eq!(
        server.run(&["reset", "usr", "--subtree"]).out,
        "nothing to reset: neither usr nor a key below it had state\n"
    );
    let bad = server.run(&["reset", "user", ""]);
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("segment 1 is empty"), "{}", bad.err);
}

#[test]
fn a_reset_without_subtree_keeps_the_keys_below() {
    let policy = "schema: { '*': { limits: [0, 1, 86400], children: { '*': { limits: [0, 1, 86400] } } } }";
    let server = Server::with_policy(policy);
    assert_eq!(server.run(&["check", "a", "b"]).code, 0);
    assert_eq!(server.run(&["reset", "a"]).code, 0);
    let refused = server.run(&["check", "a", "b"]);
    assert_eq!(refused.code, 1);
    assert!(refused.out.starts_with("refused by */*#gcra0"), "{}", refused.out);
    assert_eq!(server.run(&["reset", "a", "--subtree"]).code, 0);
    assert_eq!(server.run(&["check", "a", "b"]).code, 0);
}

#[test]
fn commands_report_an_unreachable_server() {
    let free = "127.0.0.1:1";
    for args in [&["check", "a"][..], &["reset", "a"], &["health"]] {
        let failed = run(&[args, &["--addr", free, "--timeout", "30s"]].concat());
        assert_eq!((failed.code, failed.out.as_str()), (2, ""));
        assert!(failed.err.contains(&format!("cannot reach a service at {free}")), "{}", failed.err);
    }
}

#[test]
fn serving_without_a_policy_needs_allow_all() {
    let dir = Folder::new();
    let policy = dir.write("limits.yaml", POLICY);
    let tried = |arguments: &[&str], variables: &[(&str, &str)]| {
        finish(weir().current_dir(dir.path("")).args(arguments).envs(variables.iter().copied()))
    };
    for arguments in [&[][..], &["serve"], &["config", "check"], &["--store", "memory"]] {
        let refused = tried(arguments, &[]);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{arguments:?}");
        for expected in ["weir: no policy: ", "--limits PATH", "--allow-all"] {
            assert!(refused.err.contains(expected), "{arguments:?}: {expected}: {}", refused.err);
        }
    }
    let missing = "limits: nope.yaml: No such file or directory (os error 2)\n";
    let flag = tried(&["serve", "--limits", "nope.yaml"], &[]);
    assert_eq!((flag.code, flag.err.lines().last()), (2, Some(format!("weir: --limits: {missing}").trim_end())));
    let variable = tried(&[], &[("WEIR_LIMITS", "nope.yaml")]);
    assert_eq!(
        (variable.code, variable.err.lines().last()),
        (2, Some(format!("weir: WEIR_LIMITS: {missing}").trim_end()))
    );
    let both = [("WEIR_LIMITS", policy.as_str()), ("WEIR_ALLOW_ALL", "true")];
    let refused = tried(&["serve"], &both);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("weir: WEIR_ALLOW_ALL: allow_all is set, and so is limits ("), "{}", refused.err);
    assert_eq!(tried(&["serve", "--allow-all", "--limits", "limits.yaml"], &[]).code, 2);
    // Flags override variables.
    let allowed = tried(&["config", "check", "--allow-all"], &both[..1]);
    assert!(allowed.out.contains("policy          1 domains, 0 limits\n"), "{allowed:?}");
    let limited = tried(&["config", "check", "--limits", "limits.yaml"], &both[1..]);
    assert!(limited.out.contains("policy          1 domains, 1 limits\n"), "{limited:?}");
    // An unreadable settings file differs from a missing one: it is an error.
    std::fs::create_dir(dir.path("config")).expect("made");
    for make in [|path: &str| std::os::unix::fs::symlink("nowhere", path), |path: &str| std::fs::create_dir(path)] {
        let path = dir.path("config/weir.yaml");
        make(&path).expect("made");
        let refused = tried(&[], &[("WEIR_ALLOW_ALL", "true")]);
        assert!(refused.code == 2 && refused.err.starts_with("weir: config/weir.yaml: "), "{refused:?}");
        // Only a symlink can be removed like this, and must be, before the directory can be created.
        let _ = std::fs::remove_file(&path);
    }
}

#[test]
fn an_expanded_wildcard_is_rejected() {
    let dir = Folder::of(&["a.yaml", "b.yaml", ".hidden"].map(|name| (name, POLICY)));
    for (command, expected) in [
        (&["check", "user", "a.yaml", "b.yaml"][..], "the shell replaces an unquoted `*`"),
        (&["reset", "user", "a.yaml", "b.yaml", "trade"], "the shell replaces an unquoted `*`"),
        (&["limits", "explain", "a.yaml", "user", "a.yaml", "b.yaml"], "the shell replaces an unquoted `*`"),
        (&["ban", "user", "a.yaml", "b.yaml", "--reason", "x"], "unquoted `*`. Quote it: '*'"),
        (&["unban", "a.yaml", "b.yaml"], "unquoted `*`. Quote it: '*'"),
        (&["overrides", "a.yaml", "b.yaml"], "unquoted `*`. Quote it: '*'"),
        (&["limits", "lint", "a.yaml", "b.yaml"], "lint takes one file or one directory, not `a.yaml` and `b.yaml`"),
    ] {
        let refused = finish(weir().current_dir(dir.path("")).args(command));
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{command:?}");
        assert!(refused.err.contains(expected), "{command:?}: {}", refused.err);
    }
    let meant = finish(weir().current_dir(dir.path("")).args(["limits", "explain", "a.yaml", "user", "b.yaml"]));
    assert_eq!(meant.code, 0, "{}", meant.err);
}

#[test]
fn invalid_arguments_are_explained() {
    for (arguments, expected) in [
        (&["check", "a", "--cost", "abc"][..], "'--cost <COST>': `abc` is not a cost; write a whole number"),
        (&["check", "a", "--cost", "1.5"], "`1.5` is not a cost"),
        (&["check", "a", "--factor", "half"], "'--factor <FACTOR>': `half` is not a factor; write a number from 0"),
        (&["check", "a", "--max-wait", "soon"], "'--max-wait <TIME>': `soon` is not a duration; write 500us"),
        (&["check", "a", "--request-id", ""], "a value is required for '--request-id <ID>' but none was supplied"),
        (&["override", "set", "a", "--reason", "x", "--times", "0"], "--times must be 0.000001 to 1000000, not `0`"),
        (
            &["override", "set", "a", "--reason", "x", "--times", "1e7"],
            "--times must be 0.000001 to 1000000, not `1e7`",
        ),
        (&["ban", "--reason", "x"], "<KEY|--all-keys>"),
        (&["unban"], "<KEY|--all-keys>"),
        (&["override", "set", "--reason", "x", "--shadow"], "<KEY|--all-keys>"),
        (&["override", "end", "--domain", "shop"], "<KEY|--all-keys>"),
        // As with an empty `$REASON` that is not quoted.
        (
            &["ban", "user", "--reason", "--dry-run"],
            "a value is required for '--reason <REASON>' but none was supplied",
        ),
        (
            &["override", "set", "user", "--reason", "x", "--limits", "--dry-run"],
            "'--limits <YAML>': `--dry-run` is an option; write limits in YAML, such as `{ gcra: { burst: 4, count: 5, period: 60s } }`",
        ),
        (&["ban", "user", "--all-keys", "--reason", "x"], "cannot be used with '--all-keys'"),
        (&["ban", r"user/a\", "--reason", "x"], r"the key `user/a\` ends with a `\` that escapes nothing"),
        (&["check", "a", "--addr", "localhost"], "`localhost` has no port; write localhost:8081"),
        (&["check", "a", "--addr", "grpc://localhost:8081"], "`grpc://` is not a scheme"),
        (
            &["serve", "--allow-all", "--store", "localhost:6379"],
            "`localhost:6379` has no scheme; for a Redis server write",
        ),
    ] {
        let wrong = run(arguments);
        assert_eq!((wrong.code, wrong.out.as_str()), (2, ""), "{arguments:?}");
        assert!(wrong.err.contains(expected), "{arguments:?}: {}", wrong.err);
    }
}

#[test]
fn a_full_disk_behind_standard_error_changes_no_answer() {
    let full = || fs::File::create("/dev/full").expect("opened");
    let server = Server::with_policy(POLICY);
    let checked = weir().args(["check", "group", "--addr", &server.grpc]).stderr(full()).output().expect("it runs");
    assert_eq!((checked.status.code(), &*checked.stdout), (Some(0), &b"allowed: no limit applies\n"[..]));
    let failed = weir().args(["check", "", "--addr", &server.grpc]).stderr(full()).output().expect("it runs");
    assert_eq!(failed.status.code(), Some(2));
    for command in [&["completions", "bash"][..], &["schema", "policy"]] {
        let full = weir().args(command).stdout(full()).output().expect("it runs");
        assert_eq!(full.status.code(), Some(2));
        let err = String::from_utf8(full.stderr).expect("text");
        assert!(err.contains("No space left on device") && !err.contains("panicked"), "{err}");
    }
}

#[test]
fn shells_complete_commands_and_options() {
    for (shell, expected) in [
        ("bash", "complete -F _weir"),
        ("zsh", "#compdef weir"),
        ("fish", "complete -c weir"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion"),
    ] {
        let script = run(&["completions", shell]);
        assert_eq!((script.code, script.err.as_str()), (0, ""), "{shell}");
        for expected in [expected, "explain", "max-wait"] {
            assert!(script.out.contains(expected), "{shell}: {expected}");
        }
    }
    assert_eq!(run(&["completions", "nushell"]).code, 2);
}

#[test]
fn every_command_has_help() {
    let client = ["--addr", "--timeout", "--json"];
    let cases: [(&[&str], &[&str]); 11] = [
        (&[], &["serve", "check", "reset", "health", "limits", "simulate", "migrate"]),
        (&["serve"], &["--config", "--limits", "--allow-all", "--store", "SIGHUP"]),
        (&["check"], &["<KEY>...", "--domain", "--cost", "--factor", "--max-wait"]),
        (&["reset"], &["<KEY>...", "--domain", "--subtree"]),
        (&["health"], &["--service"]),
        (&["limits"], &["lint", "explain"]),
        (&["limits", "lint"], &["<PATH>", "--against", "--strict", "--max-period", "--json"]),
        (&["limits", "explain"], &["<PATH>", "<KEY>...", "--domain", "--json"]),
        (&["migrate"], &["envoy-ratelimit"]),
        (&["migrate", "envoy-ratelimit"], &["--env-file"]),
        (&["simulate"], &["--limits", "--store", "--trace", "--summary", "--max-period"]),
    ];
    for (command, mentions) in cases {
        let help = run(&[command, &["--help"]].concat());
        assert_eq!((help.code, help.err.as_str()), (0, ""));
        let asks_a_service = matches!(command, ["check" | "reset" | "health"]);
        let more: &[&str] = if asks_a_service { &client } else { &[] };
        for text in mentions.iter().chain(more) {
            assert!(help.out.contains(text), "{command:?} --help does not mention {text}:\n{}", help.out);
        }
    }
    assert!(run(&["--version"]).out.starts_with("weir "));
}

#[test]
fn invalid_command_lines_are_rejected() {
    for args in
        [&["chekc"][..], &["check"], &["reset"], &["limits"], &["check", "a", "--addr", "nowhere"], &["serve", "-x"]]
    {
        let wrong = finish(weir().args(args));
        assert_eq!((wrong.code, wrong.out.as_str()), (2, ""), "{args:?}");
        assert!(!wrong.err.is_empty());
    }
}
