use weir_core::{domain::time::SECOND, quota::QuotaTiming};

use super::*;

#[test]
fn a_bucket_without_a_limit_is_abandoned_too() {
    let timing = QuotaTiming { idle: 30 * SECOND, ..QuotaTiming::default() };
    let mut state = QuotaState::new(Divider::new(timing), 1, 10, 1);
    let number = state.add(0, Box::from(*b"bucket"), QuotaPath::default(), 0).unwrap();
    let stream = state.open(Arc::default(), None);
    let mut report = |allowed, seconds| {
        let usage = Usage { allowed, denied: 0, elapsed: 5 * SECOND };
        state.report(stream, number, &usage, seconds * SECOND).unwrap()
    };
    for (allowed, seconds) in [(1, 0), (0, 29), (1, 30), (0, 59)] {
        assert!(matches!(report(allowed, seconds), Some(Action::AllowAll)), "{seconds} s");
    }
    assert!(matches!(report(0, 60), Some(Action::Abandon)));
    state.sweep();
    assert_eq!((state.bucket_count(), state.weight), (0, 0));
}
