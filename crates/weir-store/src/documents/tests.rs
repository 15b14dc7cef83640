use std::{
    fs,
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};

use weir_core::domain::{Clock, ManualClock};

use super::*;

fn put(name: &str, document: Option<&str>) -> Change {
    let text = |text: &str| text.to_owned();
    Change { name: text(name), document: document.map(text), expected: None, actor: text("me") }
}

fn all(documents: &MemoryDocuments) -> Vec<(String, String)> {
    let unknown = ChangeId { millis: u64::MAX, number: 0 };
    let Changes::All { documents, .. } = documents.changes(Some(unknown)) else { panic!("all are wanted") };
    documents
}

#[test]
fn changes_are_read_from_a_log_position() {
    let documents = MemoryDocuments::new(Arc::new(ManualClock::new(5_000)));
    let first = documents.change(&put("a", Some("1"))).unwrap().unwrap();
    let second = documents.change(&put("a", Some("2"))).unwrap().unwrap();
    let third = documents.change(&put("a", None)).unwrap().unwrap();
    assert_eq!(
        (first.before.as_deref(), second.before.as_deref(), third.before.as_deref()),
        (None, Some("1"), Some("2"))
    );
    assert_eq!([first.id, second.id, third.id].map(|id| id.to_string()), ["5-0", "5-1", "5-2"]);
    assert_eq!(documents.changes(Some(first.id)), Changes::Some(vec![second.clone(), third.clone()]));
    assert_eq!(documents.changes(Some(third.id)), Changes::Some(vec![]));
    let unknown = ChangeId { millis: 1, number: 0 };
    let all = Changes::All { documents: vec![], since: Some(third.id), is_lost: false };
    assert_eq!(documents.changes(Some(unknown)), all);
    assert_eq!(documents.log(None, 2), [third.clone(), second.clone()]);
    assert_eq!(documents.log(Some(second.id), 9), [first]);
}

#[test]
fn a_change_is_made_only_to_what_was_expected() {
    let documents = MemoryDocuments::new(Arc::default() as Arc<ManualClock>);
    assert_eq!(documents.change(&put("a", None)).unwrap(), None, "there is none to remove");
    documents.change(&put("a", Some("1"))).unwrap();
    let expecting = |document: &str| Change { expected: Some(document.to_owned()), ..put("a", None) };
    assert_eq!(documents.change(&expecting("2")).unwrap(), None);
    assert!(documents.change(&expecting("1")).unwrap().is_some());
}

#[test]
fn a_file_keeps_documents_and_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.overrides");
    let open = || MemoryDocuments::open(&path, Arc::default() as Arc<ManualClock>);
    let documents = open().unwrap();
    documents.change(&put("a", Some("1"))).unwrap();
    documents.change(&put("b", Some("\"two\"\n"))).unwrap();
    documents.change(&put("a", None)).unwrap();
    let log = documents.log(None, 9);
    drop(documents);
    let documents = open().unwrap();
    assert_eq!(all(&documents), [("b".to_owned(), "\"two\"\n".to_owned())]);
    assert_eq!(documents.log(None, 9), log);
    drop(documents);

    // An incomplete line was never answered, so it is dropped.
    let whole = fs::read_to_string(&path).unwrap();
    // The appended line ends within a UTF-8 character.
    fs::write(&path, [whole.as_bytes(), b"{\"id\":\"9-0\",\"name\":\"c\xc3"].concat()).unwrap();
    let documents = open().unwrap();
    assert_eq!(documents.log(None, 9), log);
    documents.change(&put("d", Some("4"))).unwrap();
    drop(documents);
    assert_eq!(all(&open().unwrap()).len(), 2);

    // A line that lacks only its line break is kept, and completed.
    fs::write(&path, whole.trim_end()).unwrap();
    let documents = open().unwrap();
    assert_eq!((all(&documents).len(), documents.log(None, 9)), (1, log));
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    documents.change(&put("d", Some("4"))).unwrap();
    drop(documents);
    assert_eq!(all(&open().unwrap()).len(), 2);

    fs::write(&path, format!("{whole}nothing\n")).unwrap();
    let error = open().err().unwrap().to_string();
    assert!(error.contains("snapshot.overrides, line 4: not a change"), "{error}");
}

/// A clock whose reads block: the first `wait` reports the call, the second one lets it return.
struct Halting(Barrier);

impl Clock for Halting {
    fn now(&self) -> i64 {
        self.0.wait();
        self.0.wait();
        0
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}

#[test]
fn reads_do_not_wait_for_a_change_that_is_being_made() {
    let clock = Arc::new(Halting(Barrier::new(2)));
    let documents = Arc::new(MemoryDocuments::new(Arc::clone(&clock) as Arc<dyn Clock>));
    thread::scope(|scope| {
        let changing = scope.spawn(|| documents.change(&put("a", Some("1"))));
        clock.0.wait();
        let (sender, read) = mpsc::channel();
        let reading = Arc::clone(&documents);
        thread::spawn(move || sender.send((all(&reading), reading.log(None, 9))));
        let before = read.recv_timeout(Duration::from_secs(30));
        clock.0.wait();
        assert_eq!(before, Ok((vec![], vec![])), "not made yet, and read at once");
        assert!(changing.join().unwrap().unwrap().is_some());
    });
    assert_eq!(all(&documents).len(), 1);
}

#[test]
fn a_file_that_another_process_has_written_to_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let open = || MemoryDocuments::open(&path, Arc::default() as Arc<ManualClock>).unwrap();
    let documents = open();
    documents.change(&put("a", Some("1"))).unwrap();
    let backup = fs::read_to_string(&path).unwrap();
    documents.change(&put("a", Some("2"))).unwrap();
    let longer = backup.repeat(3);
    for content in [&backup, &longer, ""] {
        fs::write(&path, content).unwrap();
        let error = documents.change(&put("b", Some("1"))).unwrap_err();
        assert!(
            matches!(&error, ChangeError::File(cause) if cause.to_string().contains("another process")),
            "{error:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        assert_eq!(open().log(None, 9).len(), content.lines().count());
    }
}

#[test]
fn a_long_file_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let line = |number: usize| {
        let (name, after) = if number == 0 { ("kept", "1") } else { ("other", "2") };
        format!(
            "{{\"id\":\"{number}-0\",\"name\":\"{name}\",\"before\":null,\"after\":\"{after}{number}\",\"actor\":\"me\"}}\n"
        )
    };
    fs::write(&path, (0..=MAX_LOG).map(line).collect::<String>()).unwrap();
    let open = || MemoryDocuments::open(&path, Arc::default() as Arc<ManualClock>).unwrap();
    let before = all(&open());
    assert!(fs::read_to_string(&path).unwrap().lines().count() < MAX_LOG / 5);
    assert_eq!((all(&open()), before.len()), (before, 2));
}
