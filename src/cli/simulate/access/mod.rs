//! Traces from access logs: each line is a check of a key made from its fields.

mod common;
mod envoy;
mod key_from;
mod record;
mod text_fields;

use clap::ValueEnum;

pub use key_from::{Field, KeyFrom};
use record::Record;
use weir_core::domain::{
    Micros,
    time::{MAX_MOMENT, SECOND},
};

use super::{
    lines::{Entry, LineParser},
    timestamps::Timestamp,
    trace::{CheckLine, Line},
};

/// Maximum number of lines of one second that are spread over it together; further lines are spread over it again.
const MAX_BUFFERED_LINES: usize = 100_000;

/// How the lines of one second are placed when a log has whole seconds only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// Evenly over it, in their order
    Spread,
    /// All at its beginning: the worst case
    Together,
}

/// The interpretation of the lines of a log.
pub struct AccessLog {
    pub key_from: KeyFrom,
    pub cost_from: Option<Field>,
    pub time_from: Option<String>,
    pub domain: String,
    pub arrivals: Arrivals,
    pub second_buffer: SecondBuffer,
}

/// Lines of one second, held back until the last of them is read.
#[derive(Default)]
pub struct SecondBuffer {
    second: Micros,
    lines: Vec<(u64, CheckLine)>,
}

impl AccessLog {
    fn parse_line(&self, text: &str) -> Result<(Timestamp, CheckLine), String> {
        let record = Record::parse(text)?;
        let timestamp = Timestamp::parse(&record.time(self.time_from.as_deref())?)?;
        let cost = self.cost_from.as_ref().map(|field| cost(field, &record)).transpose()?;
        let key = self.key_from.key(&record)?;
        Ok((timestamp, CheckLine::new(timestamp.at, self.domain.clone(), key, cost)))
    }
}

fn cost(field: &Field, record: &Record<'_>) -> Result<i64, String> {
    let value = field.value(record)?;
    match &*value {
        // Logs write `-` if nothing was sent.
        "-" => Ok(0),
        text => {
            let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
            number.ok_or_else(|| format!("`{}` must be a whole number from 0, not `{text}`", field.name()))
        }
    }
}

impl LineParser for AccessLog {
    fn parse(&mut self, number: u64, text: &str, into: &mut Vec<Entry>) {
        match self.parse_line(text) {
            Ok((timestamp, line)) if timestamp.is_whole_second && self.arrivals == Arrivals::Spread => {
                self.second_buffer.add(number, line, into);
            }
            Ok((_, line)) => {
                self.finish(into);
                into.push(Entry { number, line: Ok(Line::Check(line)) });
            }
            Err(why) => into.push(Entry { number, line: Err(why) }),
        }
    }

    fn finish(&mut self, into: &mut Vec<Entry>) {
        self.second_buffer.flush(into);
    }
}

impl SecondBuffer {
    fn add(&mut self, number: u64, line: CheckLine, into: &mut Vec<Entry>) {
        if line.at_us != self.second || self.lines.len() >= MAX_BUFFERED_LINES {
            self.flush(into);
            self.second = line.at_us;
        }
        self.lines.push((number, line));
    }

    fn flush(&mut self, into: &mut Vec<Entry>) {
        let all = self.lines.len() as Micros;
        into.extend(self.lines.drain(..).zip(0..).map(|((number, mut line), index)| {
            line.at_us = (line.at_us + index * SECOND / all).min(MAX_MOMENT);
            Entry { number, line: Ok(Line::Check(line)) }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(arrivals: Arrivals) -> AccessLog {
        let (key_from, cost_from) = (KeyFrom::parse("{user}").unwrap(), Some(Field::parse("bytes?").unwrap()));
        let (time_from, domain) = (Some("at".to_owned()), "d".to_owned());
        AccessLog { key_from, cost_from, time_from, domain, arrivals, second_buffer: SecondBuffer::default() }
    }

    fn arrivals_of(arrivals: Arrivals, lines: &[&str]) -> Vec<(u64, Result<Micros, String>)> {
        let (mut log, mut entries) = (log(arrivals), Vec::new());
        for (line, number) in lines.iter().zip(1..) {
            log.parse(number, line, &mut entries);
        }
        log.finish(&mut entries);
        entries.into_iter().map(|entry| (entry.number, entry.line.map(|line| line.at_us()))).collect()
    }

    #[test]
    fn lines_of_one_second_are_spread_evenly_over_it() {
        let at = |at: &str| format!(r#"{{"at":{at},"user":"a"}}"#);
        let lines = ["5", "5", "5", "6", "5", "6.25", "5"].map(at);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let times = |arrivals| arrivals_of(arrivals, &lines).into_iter().map(|(_, at)| at.unwrap()).collect::<Vec<_>>();
        let spread = [5_000_000, 5_333_333, 5_666_666, 6_000_000, 5_000_000, 6_250_000, 5_000_000];
        assert_eq!(times(Arrivals::Spread), spread);
        let together = [5_000_000, 5_000_000, 5_000_000, 6_000_000, 5_000_000, 6_250_000, 5_000_000];
        assert_eq!(times(Arrivals::Together), together);
    }

    #[test]
    fn arrivals_are_capped_at_the_maximum_time() {
        let last = MAX_MOMENT / SECOND;
        let line = format!(r#"{{"at":{last},"user":"a"}}"#);
        let times = arrivals_of(Arrivals::Spread, &[&line, &line]);
        assert_eq!(times, [(1, Ok(last * SECOND)), (2, Ok(MAX_MOMENT))]);
    }

    #[test]
    fn lines_buffered_per_second_are_bounded() {
        let line = r#"{"at":5,"user":"a"}"#;
        let arrivals = arrivals_of(Arrivals::Spread, &vec![line; MAX_BUFFERED_LINES + 2]);
        assert_eq!(arrivals[MAX_BUFFERED_LINES - 1], (MAX_BUFFERED_LINES as u64, Ok(5_999_990)));
        assert_eq!(
            arrivals[MAX_BUFFERED_LINES..].iter().map(|(_, at)| at.clone()).collect::<Vec<_>>(),
            [Ok(5_000_000), Ok(5_500_000)]
        );
    }

    #[test]
    fn costs_must_be_non_negative_integers() {
        let mut log = log(Arrivals::Spread);
        let mut cost = |bytes: &str| {
            let mut entries = Vec::new();
            log.parse(1, &format!(r#"{{"at":5.5,"user":"a","bytes":{bytes}}}"#), &mut entries);
            entries.remove(0).line.map(|line| matches!(line, Line::Check(_)))
        };
        for good in ["7", "\"8\"", "0", "\"-\"", "null"] {
            assert_eq!(cost(good), Ok(true), "{good}");
        }
        for bad in ["-1", "1.5", "\"x\"", "[]", "true"] {
            assert!(cost(bad).is_err(), "{bad}");
        }
    }
}
