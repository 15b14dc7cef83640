//! Tests of snapshots: restored states and rejected files.

mod formats;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use smallvec::SmallVec;
use tempfile::TempDir;
use weir_core::testing::{Random, cases, parse};

use super::*;
use crate::{MemoryStore, SystemClock, memory::MemorySettings};
use weir_core::{
    algorithm::{Bounds, LIST},
    domain::{
        Charge, Key, ManualClock,
        key::domain_name,
        time::{DAY, MAX_MOMENT},
    },
    plan::{Decisions, Level, Limit, Origin, Plan},
};

const NOW: Micros = 1_790_000_000_000_000;
/// Domains with their anchors. One name is long enough to be hashed.
const DOMAINS: [(&str, u8); 4] =
    [("", 2), ("api", 1), ("a domain with a name of more than sixty-four bytes, all of them plain", 3), ("z", 32)];

type Store = MemoryStore<Arc<ManualClock>>;

struct Scenery {
    limits: Vec<Limit>,
    keys: Vec<(Key, u8)>,
}

impl Scenery {
    fn new(random: &mut Random) -> Self {
        let params = |random: &mut Random| {
            let entry = &LIST[random.below(LIST.len())];
            (entry.parse)(entry.examples[random.below(entry.examples.len())], &Bounds::default()).unwrap()
        };
        let limits = (0..6).map(|ordinal| {
            let name = random.once_in(2).then_some("named");
            let origin = random.pick(&[Origin::Policy, Origin::Request]);
            Limit::new(origin, name, "*", ordinal, false, params(random))
        });
        let limits = limits.collect();
        let keys = (0..12).map(|_| {
            let (domain, anchor) = random.pick(&DOMAINS);
            let segments: Vec<_> =
                (0..random.within(1, 5)).map(|_| "s".repeat(random.pick(&[1, 2, 64, 65, 1_024]))).collect();
            (Key::new(domain, &segments).unwrap(), anchor)
        });
        Self { limits, keys: keys.collect() }
    }

    /// Returns a plan for a random key, with positive and negative costs.
    fn plan(&self, random: &mut Random) -> Plan<'_> {
        let (key, anchor) = &self.keys[random.below(self.keys.len())];
        let mut depths: Vec<_> = (0..3).map(|_| random.within(1, key.depth() as i64) as u8).collect();
        depths.sort_unstable();
        let levels: SmallVec<_> = depths
            .into_iter()
            .map(|depth| {
                Level::new(key, depth, *anchor, &self.limits[random.below(self.limits.len())], random.within(-2, 6))
            })
            .collect();
        Plan::new(levels, random.pick(&[Charge::AllOrNothing, Charge::Independent]), None)
    }
}

fn store(max_keys: usize, now: Micros) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(now));
    (MemoryStore::new(MemorySettings { max_keys, ..MemorySettings::default() }, Arc::clone(&clock)), clock)
}

fn anchor_of(domain: &[u8]) -> u8 {
    DOMAINS.iter().find(|(name, _)| domain_name(name) == domain).unwrap().1
}

fn load(path: &Path, store: &Store) -> Result<Loaded, SnapshotError> {
    Snapshot::open(path)?.unwrap().load_into(store, anchor_of)
}

fn snapshot_path() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.snapshot");
    (dir, path)
}

#[test]
fn a_store_loaded_from_a_snapshot_decides_like_the_original() {
    let (_dir, path) = snapshot_path();
    cases(300, |seed| {
        let mut random = seed.clone();
        let scenery = Scenery::new(&mut random);
        let ((first, clock), mut now) = (store(10_000, NOW), NOW);
        let decide =
            |store: &Store, random: &mut Random| -> Decisions { store.verdict(&scenery.plan(random)).decisions };
        for _ in 0..40 {
            now += random.magnitude(1 << 30);
            clock.set(now);
            decide(&first, &mut random);
        }
        let saved = save(&first, &path).unwrap();
        assert_eq!(saved.bytes, fs::metadata(&path).unwrap().len());
        let snapshot = Snapshot::open(&path).unwrap().unwrap();
        assert_eq!(snapshot.clock(), now);
        // A different number of shards and different hash seeds.
        let (second, later) = store(1 << 20, now);
        let loaded = snapshot.load_into(&second, anchor_of).unwrap();
        assert_eq!(loaded, Loaded { states: saved.states, expired: 0, left_out: 0 });
        for _ in 0..20 {
            now += random.magnitude(1 << 30);
            clock.set(now);
            later.set(now);
            assert_eq!(decide(&first, &mut random.clone()), decide(&second, &mut random));
        }
    });
}

/// Creates a store with one state for each of `keys` keys, all of which expire one day after [`NOW`].
fn filled(keys: usize) -> (Store, Limit) {
    let params = parse("gcra", &[("burst", "9"), ("count", "10"), ("period", "10d")]);
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params);
    let (store, _) = store(1_000_000, NOW);
    (0..keys).for_each(|number| assert_eq!(ask(&store, &limit, "stable", number, 1), 9));
    (store, limit)
}

fn ask(store: &Store, limit: &Limit, kind: &str, number: usize, cost: i64) -> u64 {
    ask_key(store, limit, &Key::new("", &[kind, &number.to_string()]).unwrap(), cost)
}

/// Charges `cost` units and returns the remaining ones.
fn ask_key(store: &Store, limit: &Limit, key: &Key, cost: i64) -> u64 {
    let levels = SmallVec::from_iter([Level::new(key, key.depth() as u8, 2, limit, cost)]);
    store.verdict(&Plan::new(levels, Charge::AllOrNothing, None)).decisions[0].remaining
}

#[test]
fn expired_states_are_skipped_and_excess_states_are_counted() {
    let (_dir, path) = snapshot_path();
    let (first, limit) = filled(1_000);
    for (max_keys, now, expired, left_out) in
        [(1_000, NOW + DAY - 1, 0, 0), (1_000, NOW + DAY, 1_000, 0), (400, NOW, 0, 600)]
    {
        save(&first, &path).unwrap();
        let (second, _) = store(max_keys, now);
        assert_eq!(load(&path, &second).unwrap(), Loaded { states: 1_000, expired, left_out });
        assert_eq!(second.stats().keys, 1_000 - (expired + left_out) as usize);
        assert_eq!(second.stats().left_out as u64, left_out);
    }
    // States that have already expired are not written.
    first.clock.set(NOW + DAY);
    ask(&first, &limit, "new", 0, 1);
    assert_eq!(save(&first, &path).unwrap().states, 1);
}

#[test]
fn the_later_expiry_of_duplicate_states_is_kept() {
    let (_dir, path) = snapshot_path();
    let (first, limit) = filled(1);
    let (earlier, later) = (path.with_extension("earlier"), path.with_extension("later"));
    save(&first, &earlier).unwrap();
    ask(&first, &limit, "stable", 0, 2);
    save(&first, &later).unwrap();
    for files in [[&earlier, &later], [&later, &earlier]] {
        let (second, _) = store(1, NOW);
        for file in files {
            assert_eq!(load(file, &second).unwrap(), Loaded { states: 1, expired: 0, left_out: 0 });
        }
        assert_eq!(ask(&second, &limit, "stable", 0, 0), 7);
    }
}

#[test]
fn stable_states_are_saved_despite_concurrent_changes() {
    const STABLE: usize = 5_000;
    let (_dir, path) = snapshot_path();
    let (first, limit) = filled(0);
    // All in one shard, so that it is written in slices while states move.
    let key = |kind: &str, number: usize| Key::new("", &["one", "anchor", kind, &number.to_string()]).unwrap();
    for number in 0..STABLE {
        ask_key(&first, &limit, &key("comes and goes", number), 1);
        ask_key(&first, &limit, &key("stable", number), 3);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..STABLE).cycle() {
                let key = key("comes and goes", number);
                ask_key(&first, &limit, &key, 1);
                if number % 64 == 0 {
                    first.reset_now(&key, 2, false);
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..20 {
            save(&first, &path).unwrap();
            let (second, _) = store(1_000_000, NOW);
            load(&path, &second).unwrap();
            let lost = (0..STABLE).filter(|number| ask_key(&second, &limit, &key("stable", *number), 0) != 7).count();
            done.store(lost > 0, Ordering::Relaxed);
            assert_eq!(lost, 0);
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn refusal(path: &Path) -> String {
    load(path, &store(1_000, NOW).0).map(|loaded| panic!("{loaded:?}")).unwrap_err().to_string()
}

/// Changes the file's content and updates its checksum.
fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = fs::read(path).unwrap();
    content.truncate(content.len() - CHECKSUM);
    change(&mut content);
    content.extend_from_slice(blake3::hash(&content).as_bytes());
    fs::write(path, content).unwrap();
}

fn at(content: &[u8], text: &str) -> usize {
    content.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

/// Returns the offset after the algorithms' names: the first state's algorithm number.
fn first_state(content: &[u8]) -> usize {
    let last = LIST.last().unwrap().name;
    at(content, last) + last.len()
}

#[test]
fn damaged_or_truncated_files_are_rejected() {
    let (_dir, path) = snapshot_path();
    save(&filled(3).0, &path).unwrap();
    let whole = fs::read(&path).unwrap();
    for index in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[index] ^= 0x10;
        fs::write(&path, damaged).unwrap();
        refusal(&path);
        fs::write(&path, &whole[..index]).unwrap();
        assert!(refusal(&path).contains("damaged or was cut short"), "{index} bytes");
    }
    fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    assert!(refusal(&path).contains("damaged"));
    fs::write(&path, whole).unwrap();
    assert_eq!(load(&path, &store(1_000, NOW).0).unwrap().states, 3);
}

#[test]
fn foreign_or_newer_files_are_rejected_with_a_reason() {
    let (_dir, path) = snapshot_path();
    assert!(Snapshot::open(&path).unwrap().is_none());
    fs::write(&path, "schema: { user: {} }").unwrap();
    assert_eq!(refusal(&path), "is not a snapshot");
    fs::write(&path, "").unwrap();
    assert!(refusal(&path).contains("cut short"));
    let write = || assert_eq!(save(&filled(3).0, &path).unwrap().states, 3);
    write();
    rewrite(&path, |content| content[8] = 3);
    assert!(refusal(&path).starts_with("has the format 3, of a later version"), "{}", refusal(&path));
    write();
    rewrite(&path, |content| {
        let name = at(content, "gcra");
        content[name..name + 4].copy_from_slice(b"grca");
    });
    assert_eq!(refusal(&path), "holds states of the algorithm `grca`, which this version of weir does not know");
    // The file defines its own order of algorithms, and an unknown one without states is ignored.
    write();
    rewrite(&path, |content| {
        let name = at(content, "fixed_window");
        content[name] = b'F';
    });
    assert_eq!(load(&path, &store(1_000, NOW).0).unwrap().states, 3);
    let nonsense: [fn(&mut Vec<u8>); 5] = [
        // The clock.
        |content| content[12..20].copy_from_slice(&(MAX_MOMENT + 1).to_le_bytes()),
        // The second word of the first state, a numerator.
        |content| {
            let words = first_state(content) + 3;
            content[words + 8..words + 16].copy_from_slice(&0.5_f64.to_le_bytes());
        },
        // The length of a state's name.
        |content| {
            let name = at(content, "stable");
            content[name - 1] = 200;
        },
        // The number of a state's algorithm.
        |content| {
            let number = first_state(content);
            content[number] = 200;
        },
        // The number of states.
        |content| {
            let count = content.len() - 8;
            content[count] = 9;
        },
    ];
    for change in nonsense {
        write();
        rewrite(&path, change);
        assert!(refusal(&path).starts_with("holds an invalid state"), "{}", refusal(&path));
    }
}

#[test]
fn the_file_is_private_and_written_atomically() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, path) = snapshot_path();
    let (first, _) = filled(10);
    save(&first, &path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let names = || fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names(), 1, "nothing is left beside it");
    // Renaming a file over a directory fails.
    let folder = dir.path().join("folder");
    fs::create_dir_all(folder.join("full")).unwrap();
    save(&first, &folder).unwrap_err();
    assert_eq!(names(), 2, "nothing is left beside it after a failure");
    assert_eq!(set_aside(&path).unwrap(), Some(dir.path().join("weir.snapshot.rejected")));
    assert_eq!(set_aside(&path).unwrap(), None);
}

#[test]
fn the_clock_resumes_at_the_time_of_the_snapshot() {
    let ahead = MAX_MOMENT - DAY;
    assert!(weir_core::domain::Clock::now(&SystemClock::resuming_at(ahead)) >= ahead);
    let wall = weir_core::domain::Clock::now(&SystemClock::new());
    let resumed = weir_core::domain::Clock::now(&SystemClock::resuming_at(wall - DAY));
    assert!((wall..wall + DAY).contains(&resumed));
}

#[test]
fn the_path_is_locked_and_stale_temporary_files_are_removed() {
    let (dir, path) = snapshot_path();
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let others = ["weir.snapshot.0123.tmp", "weir.snapshot.lock", "weir.snapshot.old.tmp", "weir.tmp"];
    let left = ["weir.snapshot.0123456789abcdef.tmp", "weir.snapshot.tmp"];
    others.iter().chain(&left).for_each(|name| fs::write(dir.path().join(name), "").unwrap());
    let lock = SnapshotLock::take(&path).unwrap();
    assert!(lock.is_some());
    assert_eq!(names(), others);
    assert!(SnapshotLock::take(&path).unwrap().is_none());
    drop(lock);
    assert!(SnapshotLock::take(&path).unwrap().is_some());
}
