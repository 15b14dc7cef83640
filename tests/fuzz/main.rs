//! Runs each target of `fuzz/` on its corpus, and on random mutations of it. `FUZZ_SEED` selects other mutations,
//! `FUZZ_RUNS` their number.

#![allow(clippy::expect_used)]

mod change;
// Some of its items are only used by the libFuzzer programs.
#[allow(dead_code)]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::{
    env,
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// Default number of generated inputs for each target, and the default seed.
const RUNS: u32 = 2_000;
const SEED: u64 = 1;

fn dir(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(of)
}

fn setting<T: FromStr<Err: Debug>>(name: &str, usual: T) -> T {
    env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error:?}")))
}

/// Returns the files of a directory below `fuzz`, sorted by name.
fn files(of: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir(of)).unwrap_or_else(|error| panic!("fuzz/{of}: {error}"));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn hold(name: &str) {
    let (_, target) = fuzz::TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    let mut corpus = Vec::new();
    for path in files(&format!("corpus/{name}")) {
        println!("{}", path.display());
        let bytes = fs::read(path).expect("a file");
        target(&bytes);
        corpus.push(bytes);
    }
    let (seed, cases) = (setting("FUZZ_SEED", SEED), setting("FUZZ_RUNS", RUNS));
    println!("FUZZ_SEED={seed} FUZZ_RUNS={cases}");
    let bytes = blake3::hash(format!("{name} {seed}").as_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, bytes.as_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, random);
    let held = runner.run(&change::changed(Arc::new(change::Corpus::new(corpus))), |bytes| {
        target(&bytes);
        Ok(())
    });
    match held {
        Ok(()) => {}
        Err(TestError::Fail(why, bytes)) => {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
            fs::write(&path, bytes).expect("room for what was found");
            panic!("{why}\nthe input is in {}; fixed, it belongs into fuzz/corpus/{name}", path.display());
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            hold(stringify!($name));
        })+

        const HELD: &[&str] = &[$(stringify!($name)),+];
    };
}

targets! {
    access_log,
    auth_file,
    batch,
    check,
    cluster_slots,
    descriptors,
    envoy_json,
    http_json,
    key,
    policy,
    ratelimit,
    redis_answer,
    redis_reply,
    reserve,
    reset,
    settle,
    snapshot,
    snapshot_file,
    trace,
}

#[test]
fn every_fuzz_target_has_a_test_a_program_and_a_corpus() {
    let known: Vec<_> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(known, HELD);
    let named = |of: &str| -> Vec<_> {
        let stem = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
        files(of).iter().map(stem).collect()
    };
    assert_eq!(named("src/bin"), known);
    assert_eq!(named("corpus"), known);
    for name in known {
        assert!(files(&format!("corpus/{name}")).len() >= 3, "the corpus of {name} is thin");
    }
}
