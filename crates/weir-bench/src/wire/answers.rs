//! Answers, decoded as far as they are counted.

use prost::Message;
use tonic::Code;

/// The error of a check or call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The gRPC status code.
    pub code: Code,
    /// The status message.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Makes the error of a broken connection.
    pub(crate) fn unavailable(cause: impl ToString) -> Self {
        Self::new(Code::Unavailable, cause.to_string())
    }
}

/// The answers of one call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Checks that were allowed.
    pub allowed: u64,
    /// Checks that were refused.
    pub refused: u64,
    /// Checks decided without the shared store.
    pub degraded: u64,
    /// Failures, each with its number of checks.
    pub faults: Vec<(u64, Fault)>,
}

impl Answers {
    /// Makes the answers of `checks` checks that failed for the same reason.
    pub(crate) fn failed(checks: u64, fault: Fault) -> Self {
        Self { faults: vec![(checks, fault)], ..Self::default() }
    }

    fn add(&mut self, check: Check) {
        if let Some(error) = check.error {
            return self.faults.push((1, Fault::new(Code::from_i32(error.code), error.message)));
        }
        self.allowed += u64::from(check.allowed);
        self.refused += u64::from(!check.allowed);
        self.degraded += u64::from(check.degraded);
    }
}

/// The message type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A `weir.v1.CheckResponse`.
    Check,
    /// A `weir.v1.CheckBatchResponse`.
    Batch,
    /// Envoy's `RateLimitResponse`.
    Envoy,
}

/// Fields of `weir.v1.CheckResponse`.
#[derive(Clone, PartialEq, Message)]
struct Check {
    #[prost(bool, tag = "1")]
    allowed: bool,
    #[prost(bool, tag = "8")]
    degraded: bool,
    #[prost(message, optional, tag = "11")]
    error: Option<CheckError>,
}

#[derive(Clone, PartialEq, Message)]
struct CheckError {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    results: Vec<Check>,
}

/// Fields of `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, Message)]
struct Envoy {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

/// Decodes the answer to a call of `checks` checks. Missing and undecodable answers are faults.
pub(crate) fn read(kind: Kind, checks: u64, message: &[u8]) -> Answers {
    let mut answers = Answers::default();
    let read = match kind {
        Kind::Check => Check::decode(message).map(|check| answers.add(check)),
        Kind::Batch => Batch::decode(message).map(|batch| batch.results.into_iter().for_each(|it| answers.add(it))),
        Kind::Envoy => Envoy::decode(message).map(|envoy| match envoy.overall_code {
            1 => answers.allowed += 1,
            2 => answers.refused += 1,
            other => answers.faults.push((1, Fault::new(Code::Internal, format!("overall_code is {other}")))),
        }),
    };
    if let Err(error) = read {
        return Answers::failed(checks, Fault::new(Code::Internal, format!("the answer cannot be read: {error}")));
    }
    let answered = answers.allowed + answers.refused + answers.faults.iter().map(|(count, _)| count).sum::<u64>();
    if answered < checks {
        answers.faults.push((checks - answered, Fault::new(Code::Internal, "fewer answers than checks")));
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::proto::{CheckBatchResponse, CheckResponse, Error, LevelResult};

    fn check(allowed: bool) -> CheckResponse {
        let levels = vec![LevelResult { name: "a".to_owned(), allowed: !allowed, ..Default::default() }];
        CheckResponse { allowed, levels, limit: 7, degraded: allowed, ..Default::default() }
    }

    #[test]
    fn counted_fields_are_decoded_and_others_ignored() {
        let passed = Answers { allowed: 1, degraded: 1, ..Default::default() };
        assert_eq!(read(Kind::Check, 1, &check(true).encode_to_vec()), passed);
        assert_eq!(read(Kind::Check, 1, &check(false).encode_to_vec()), Answers { refused: 1, ..Default::default() });
        let error = Error { code: 3, message: "no key".to_owned(), ..Default::default() };
        let wrong = CheckResponse { error: Some(error), ..Default::default() };
        let batch = CheckBatchResponse { results: vec![check(true), wrong, check(false), check(true)] };
        let faults = vec![(1, Fault::new(Code::InvalidArgument, "no key"))];
        let expected = Answers { allowed: 2, refused: 1, degraded: 2, faults };
        assert_eq!(read(Kind::Batch, 4, &batch.encode_to_vec()), expected);
    }

    #[test]
    fn a_missing_answer_is_a_fault() {
        let batch = CheckBatchResponse { results: vec![check(false)] };
        let answers = read(Kind::Batch, 3, &batch.encode_to_vec());
        assert_eq!((answers.refused, &answers.faults[0].0), (1, &2));
        let unreadable = read(Kind::Batch, 3, b"\xff");
        assert_eq!((unreadable.refused, unreadable.faults[0].0, unreadable.faults[0].1.code), (0, 3, Code::Internal));
    }

    #[test]
    fn the_overall_code_decides_an_envoy_answer() {
        use weir_envoy::envoy::service::ratelimit::v3::RateLimitResponse;
        let coded = |overall_code| RateLimitResponse { overall_code, ..Default::default() }.encode_to_vec();
        assert_eq!(read(Kind::Envoy, 1, &coded(1)).allowed, 1);
        assert_eq!(read(Kind::Envoy, 1, &coded(2)).refused, 1);
        assert_eq!(read(Kind::Envoy, 1, &coded(0)).faults.len(), 1);
    }
}
