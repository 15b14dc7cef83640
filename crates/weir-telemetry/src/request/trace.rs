//! The trace that a request is part of, as W3C Trace Context has it.

/// Longest `tracestate` that is kept, in bytes; a longer one is left out, as the recommendation allows.
const MAX_STATE_BYTES: usize = 512;
/// The flag of a caller that has a span itself.
const SAMPLED: u8 = 1;

/// The number of a span.
pub type SpanId = [u8; 8];

/// A trace, and the caller's place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace's number.
    pub trace_id: [u8; 16],
    /// The number of the caller's span; zeros where the trace begins here.
    pub parent: [u8; 8],
    /// Whether spans of it are wanted.
    pub sampled: bool,
    /// What tracing systems hand on to each other.
    pub state: String,
}

impl Context {
    /// What a `traceparent` says; `None` where it is none.
    pub fn read(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.trim_matches([' ', '\t']).split('-');
        let [version] = number(parts.next()?)?;
        let (trace_id, parent) = (number(parts.next()?)?, number(parts.next()?)?);
        let [flags] = number(parts.next()?)?;
        // Later versions may say more; this one may not, and the last is none.
        let is_whole = parts.next().is_none() || version > 0;
        let is_one = version != u8::MAX && trace_id != [0; 16] && parent != [0; 8];
        (is_whole && is_one).then_some(Self { trace_id, parent, sampled: flags & SAMPLED != 0, state: String::new() })
    }

    /// With these values of `tracestate`, unless they are too long or no such text.
    #[must_use]
    pub fn with_state<'s>(mut self, values: impl Iterator<Item = &'s [u8]>) -> Self {
        for value in values {
            let separated = usize::from(!self.state.is_empty());
            let room = MAX_STATE_BYTES - self.state.len();
            match std::str::from_utf8(value) {
                Ok(text)
                    if text.len() + separated <= room && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) =>
                {
                    self.state.push_str(if separated > 0 { "," } else { "" });
                    self.state.push_str(text);
                }
                _ => {
                    self.state.clear();
                    break;
                }
            }
        }
        self
    }

    /// A trace that begins here.
    pub fn root() -> Option<Self> {
        let trace_id: [u8; 16] = rand::random();
        (trace_id != [0; 16]).then_some(Self { trace_id, parent: [0; 8], sampled: true, state: String::new() })
    }

    /// Whether the trace begins here.
    pub fn is_root(&self) -> bool {
        self.parent == [0; 8]
    }

    /// The part of the trace's number that is by chance, as a number.
    pub fn chance(&self) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|index| self.trace_id[index + 8]))
    }

    /// The trace's number as texts have it.
    pub fn trace(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace_id))
    }
}

/// A number of so many bytes in lower-case hexadecimal digits.
fn number<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_traceparent_is_read() {
        let read = |version: &str, flags: &str| Context::read(&format!("{version}-{TRACE}-{SPAN}-{flags}"));
        let context = read("00", "01").unwrap();
        assert_eq!((context.trace().as_str(), context.parent[0], context.sampled), (TRACE, 0xb7, true));
        assert_eq!(context.chance(), 0x8448_eb21_1c80_319c);
        assert!(!read("00", "00").unwrap().sampled && read("00", "03").unwrap().sampled);
        assert!(read("cc", "01-what-will-be").is_some(), "later versions may say more");
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
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
            format!("00-{}é-{SPAN}-01", &TRACE[2..]),
        ] {
            assert_eq!(Context::read(&text), None, "{text}");
        }
    }

    #[test]
    fn a_tracestate_is_kept_where_it_is_short() {
        let with = |values: &[&str]| {
            let context = Context::read(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
            context.with_state(values.iter().map(|value| value.as_bytes())).state
        };
        let long = "x".repeat(MAX_STATE_BYTES);
        assert_eq!((with(&[]), with(&["a=1", "b=2,c=3"])), (String::new(), "a=1,b=2,c=3".to_owned()));
        assert_eq!((with(&[&long]), with(&[&long, "a"]), with(&["é"])), (long.clone(), String::new(), String::new()));
    }
}
