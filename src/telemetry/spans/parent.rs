//! The parent span in the headers of a request: W3C Trace Context, or else B3.

use hyper::HeaderMap;
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
/// Maximum length of a `tracestate`, in bytes; a longer one is dropped, as the recommendation allows.
const MAX_STATE_BYTES: usize = 512;
/// The lengths of the parts of a `traceparent`, which the propagator does not check.
const PARTS: [usize; 4] = [2, 32, 16, 2];

/// The span that a request names as its parent.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// The span.
    pub span: SpanContext,
    /// Whether the client leaves the sampling decision to the service, as only B3 can.
    pub is_deferred: bool,
}

/// Returns the span that the headers of a request name as its parent.
pub fn parent(headers: &HeaderMap) -> Option<Parent> {
    let of_b3;
    let (parent, is_deferred) = match headers.get(PARENT) {
        Some(_) => (single(headers, PARENT)?.trim(), false),
        None => {
            of_b3 = b3(headers)?;
            (of_b3.0.as_str(), of_b3.1)
        }
    };
    if !parent.split('-').map(str::len).take(PARTS.len()).eq(PARTS) {
        return None;
    }
    let states: Result<Vec<_>, _> = headers.get_all(STATE).iter().map(|value| value.to_str()).collect();
    let state = states.map(|states| states.join(",")).ok().filter(|state| state.len() <= MAX_STATE_BYTES);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers { parent, state });
    let span = context.span().span_context().clone();
    span.is_valid().then_some(Parent { span, is_deferred })
}

/// Returns the value of a header; `None` also for several values, which are ambiguous.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Converts the headers of B3, single or multiple, to a `traceparent`; `true`: without a sampling decision.
fn b3(headers: &HeaderMap) -> Option<(String, bool)> {
    let (trace, span, sampled) = match single(headers, "b3") {
        Some(one) => {
            let mut parts = one.trim().split('-');
            (parts.next()?, parts.next()?, parts.next().unwrap_or_default())
        }
        None => {
            let part = |name| single(headers, name).map(str::trim);
            let is_debug = part("x-b3-flags") == Some("1");
            let sampled = if is_debug { "d" } else { part("x-b3-sampled").unwrap_or_default() };
            (part("x-b3-traceid")?, part("x-b3-spanid")?, sampled)
        }
    };
    let flags = if matches!(sampled, "1" | "d" | "true") { "01" } else { "00" };
    // Short ids have 64 bits.
    let parent = format!("00-{:0>32}-{}-{flags}", trace.to_ascii_lowercase(), span.to_ascii_lowercase());
    Some((parent, sampled.is_empty()))
}

struct Headers<'h> {
    parent: &'h str,
    state: Option<String>,
}

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            PARENT => Some(self.parent),
            STATE => self.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![PARENT, STATE]
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn parent_of(headers: &[(&'static str, &str)]) -> Option<Parent> {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
        parent(&headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect())
    }

    fn of(headers: &[(&'static str, &str)]) -> Option<SpanContext> {
        parent_of(headers).map(|parent| parent.span)
    }

    #[test]
    fn a_valid_traceparent_is_parsed() {
        let read = |version: &str, flags: &str| of(&[(PARENT, &format!("{version}-{TRACE}-{SPAN}-{flags}"))]);
        let parent = read("00", "01").unwrap();
        assert_eq!((parent.trace_id().to_string(), parent.span_id().to_string()), (TRACE.to_owned(), SPAN.to_owned()));
        assert!(parent.is_sampled() && parent.is_remote());
        assert!(!read("00", "00").unwrap().is_sampled() && read("00", "03").unwrap().is_sampled());
        assert!(read("cc", "01-what-will-be").is_some(), "later versions may say more");
    }

    #[test]
    fn b3_is_read_where_there_is_no_traceparent() {
        let short = &TRACE[16..];
        let one = |sampled: &str| of(&[("b3", &format!("{TRACE}-{SPAN}{sampled}"))]).unwrap();
        assert_eq!((one("-1").trace_id().to_string(), one("").span_id().to_string()), (TRACE.into(), SPAN.into()));
        assert_eq!(["-1", "-d", "-0", ""].map(|sampled| one(sampled).is_sampled()), [true, true, false, false]);
        assert!(one("-1-05e3ac9a4f6e3b90").is_sampled(), "the caller's own parent");
        let several = |more| of(&[("x-b3-traceid", short), ("x-b3-spanid", SPAN), more]).unwrap();
        assert_eq!(several(("x-b3-sampled", "1")).trace_id().to_string(), format!("{}{short}", "0".repeat(16)));
        assert!(several(("x-b3-flags", "1")).is_sampled() && !several(("x-b3-sampled", "0")).is_sampled());
        for wrong in ["0", "1-2-3", "zz-zz-1", &format!("{TRACE}{TRACE}-{SPAN}-1"), &format!("{TRACE}-é-1")] {
            assert_eq!(of(&[("b3", wrong)]), None, "{wrong}");
        }
        let other = format!("00-{}-{SPAN}-01", TRACE.replace('a', "b"));
        let both = of(&[("b3", &format!("{TRACE}-{SPAN}-0")), (PARENT, &other)]).unwrap();
        assert!(both.is_sampled(), "a traceparent comes first");
        assert_eq!(of(&[("b3", &format!("{TRACE}-{SPAN}-1")), (PARENT, "00")]), None);
    }

    #[test]
    fn only_b3_without_a_sampling_state_defers_the_decision() {
        let (one, several) = (format!("{TRACE}-{SPAN}"), [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)]);
        let with = |header| [&several[..], &[header]].concat();
        let w3c = format!("00-{TRACE}-{SPAN}-00");
        for (headers, expected) in [
            (vec![("b3", &*one)], true),
            (several.to_vec(), true),
            (vec![("b3", &*format!("{one}-0"))], false),
            (vec![("b3", &*format!("{one}-1"))], false),
            (with(("x-b3-sampled", "0")), false),
            (with(("x-b3-sampled", "false")), false),
            (with(("x-b3-flags", "1")), false),
            (vec![(PARENT, &*w3c)], false),
        ] {
            assert_eq!(parent_of(&headers).unwrap().is_deferred, expected, "{headers:?}");
        }
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[16..]),
            format!("00-{TRACE}é-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", &TRACE[2..]),
            format!("00-{}é-{SPAN}-01", &TRACE[2..]),
        ] {
            assert_eq!(of(&[(PARENT, &text)]), None, "{text}");
        }
        let parent = format!("00-{TRACE}-{SPAN}-01");
        assert_eq!((of(&[(STATE, "a=1")]), of(&[(PARENT, &parent), (PARENT, &parent)])), (None, None), "which one?");
    }

    #[test]
    fn a_short_tracestate_is_kept() {
        let with = |states: &[&str]| {
            let parent = format!("00-{TRACE}-{SPAN}-01");
            let headers: Vec<_> =
                [(PARENT, &*parent)].into_iter().chain(states.iter().map(|text| (STATE, *text))).collect();
            of(&headers).unwrap().trace_state().header()
        };
        assert_eq!((with(&[]), with(&["a=1", "b=2,c=3"])), (String::new(), "a=1,b=2,c=3".to_owned()));
        let long = format!("a={0},b={0}", "x".repeat(254));
        assert_eq!(long.len(), MAX_STATE_BYTES + 1);
        assert_eq!((with(&[&long]), with(&[&long[..512], "a"]), with(&["é"])), Default::default());
        assert_eq!(with(&[&long[..512]]), long[..512]);
    }
}
