use weir_core::{domain::time::SECOND, quota::Terms};

use super::*;

#[test]
fn a_bucket_without_a_limit_is_abandoned_too() {
    let terms = Terms { idle: 30 * SECOND, ..Terms::default() };
    let mut book = Book::new(Divider::new(terms), 1, 10, 1);
    let number = book.add(0, Box::from(*b"bucket"), QuotaPath::default(), 0).unwrap();
    let stream = book.open(Arc::default(), None);
    let mut report = |allowed, seconds| {
        let usage = Usage { allowed, denied: 0, elapsed: 5 * SECOND };
        book.report(stream, number, &usage, seconds * SECOND).unwrap()
    };
    for (allowed, seconds) in [(1, 0), (0, 29), (1, 30), (0, 59)] {
        assert!(matches!(report(allowed, seconds), Some(Action::AllowAll)), "{seconds} s");
    }
    assert!(matches!(report(0, 60), Some(Action::Abandon)));
    book.sweep();
    assert_eq!((book.bucket_count(), book.places), (0, 0));
}
