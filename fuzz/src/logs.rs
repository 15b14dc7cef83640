//! Input of `weir simulate`: traces and access logs.

use weir_core::{algorithm::Bounds, domain::time::MAX_MOMENT};

use futures_util::FutureExt;
use weir::{
    cli::simulate::{
        access::{AccessLog, Arrivals, Field, KeyFrom, SecondBuffer},
        lines::{Entry, LineParser, Trace},
        trace::Line,
    },
    limiter::Limiter,
};

use super::fixture::{self, Memory, NOW};

/// Each line of an access log is a check or is reported as none. The first line of the input is the form of the keys.
pub fn access_log(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (form, lines) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(key_from) = KeyFrom::parse(form) else { return };
    for arrivals in [Arrivals::Spread, Arrivals::Together] {
        read(
            lines,
            AccessLog {
                key_from: key_from.clone(),
                cost_from: Field::parse("bytes?").ok(),
                time_from: None,
                domain: String::new(),
                arrivals,
                second_buffer: SecondBuffer::default(),
            },
        );
    }
}

/// Each line of a trace is a request or is reported as none.
pub fn trace(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read(text, Trace);
    }
}

fn read(text: &str, mut parser: impl LineParser) {
    let (mut entries, mut lines) = (Vec::new(), 0);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        lines += 1;
        parser.parse(lines, line, &mut entries);
    }
    parser.finish(&mut entries);
    let mut numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=lines), "each line once");
    let limiter = fixture::limiter(fixture::store(NOW), fixture::policy());
    entries.iter().for_each(|entry| replay(entry, &limiter));
}

fn replay(entry: &Entry, limiter: &Limiter<Memory>) {
    let line = match &entry.line {
        Ok(line) => line,
        Err(why) => return assert!(!why.is_empty()),
    };
    assert!((0..=MAX_MOMENT).contains(&line.at_us()), "{line:?}");
    match line {
        Line::Check(line) => {
            if let Ok(request) = line.request(&Bounds::default()) {
                let handle = limiter.policy();
                assert!(limiter.check(&handle, &request).now_or_never().is_some(), "memory does not wait");
            }
        }
        Line::Reset(line) => {
            if let Ok(request) = line.request() {
                let reset = limiter.reset(&request, line.subtree).now_or_never();
                reset.expect("memory answers at once").expect("memory forgets");
            }
        }
    }
}
