//! Files as written by earlier versions. A change of the format needs a number of its own, and a file beside these.

use weir_core::hold::{HoldId, Renewal};

use super::*;

/// A state of `gcra`, in hexadecimal.
const FORMAT_1: &str = include_str!("format-1.hex");
/// The same with a lease of four units.
const FORMAT_2: &str = include_str!("format-2.hex");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn files_of_earlier_versions_are_read() {
    let (_dir, path) = snapshot_path();
    for (format, written, left) in [(1, FORMAT_1, 9), (2, FORMAT_2, 5)] {
        let content = bytes(written.trim_end());
        assert_eq!(content[8], format);
        fs::write(&path, content).unwrap();
        let (store, _) = store(10, NOW);
        assert_eq!(load(&path, &store).unwrap(), Loaded { states: 1, expired: 0, left_out: 0 });
        let (_, limit) = filled(0);
        assert_eq!(ask(&store, &limit, "stable", 0, 0), left);
        let id = HoldId { owner: 0x0123_4567_89ab_cdef, number: u64::MAX - 1 };
        let renewal = Renewal { id, sequence: 6, spent: 1, kept: 3, want: 0, ttl: 10_000_000 };
        let key = Key::new("", &["stable", "0"]).unwrap();
        let level = Level::new(&key, 2, 2, &limit, 0);
        let plan = Plan::new(SmallVec::from_iter([level]), Charge::AllOrNothing, None);
        assert_eq!(store.renew_now(&plan, &renewal).is_kept, format == 2);
    }
}
