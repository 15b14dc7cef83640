//! How deep a reply is nested, looked at before it is decoded: the decoder calls itself for each array within an array.

use smallvec::SmallVec;

/// Arrays within arrays that are read. What servers answer here has three at most.
const MAX_DEPTH: usize = 8;

/// Whether the reply at the beginning of `input`, as far as it has come, can be decoded without going deep.
pub fn is_bounded(input: &[u8]) -> bool {
    let mut open: SmallVec<[u64; MAX_DEPTH]> = SmallVec::new();
    let mut rest = input;
    while let Some((line, after)) = line(rest) {
        let (kind, length) = (line.first(), length(line));
        rest = after;
        match (kind, length) {
            (Some(b'*'), Some(length @ 1..)) => {
                open.push(length);
                if open.len() > MAX_DEPTH {
                    return false;
                }
                continue;
            }
            (Some(b'$'), Some(length)) => {
                let text = usize::try_from(length).ok().and_then(|length| length.checked_add(2));
                let Some(after) = text.and_then(|length| rest.get(length..)) else { return true };
                rest = after;
            }
            _ => {}
        }
        // One value is over, and with the last of its values an array.
        while let Some(values) = open.last_mut() {
            *values -= 1;
            if *values > 0 {
                break;
            }
            open.pop();
        }
        if open.is_empty() {
            return true;
        }
    }
    true
}

fn line(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&input[..end], &input[end + 2..]))
}

/// The length behind the kind; `None` for what is no length, such as that of a null.
fn length(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line.get(1..)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_replies_are_read() {
        for reply in [
            "+OK\r\n",
            "$3\r\nabc\r\n",
            "$-1\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
            "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
            "$6\r\n*1\r\n*1\r\n",
            "*1000\r\n$5\r\n",
            "",
        ] {
            assert!(is_bounded(reply.as_bytes()), "{reply:?}");
        }
        assert!(is_bounded("*1\r\n*1\r\n:1\r\n".repeat(1_000).as_bytes()), "the first value only counts");
    }

    #[test]
    fn what_goes_deep_is_not() {
        assert!(is_bounded("*1\r\n".repeat(MAX_DEPTH).as_bytes()));
        assert!(!is_bounded("*1\r\n".repeat(MAX_DEPTH + 1).as_bytes()));
        let behind = format!("*2\r\n:1\r\n{}", "*2\r\n+x\r\n".repeat(MAX_DEPTH));
        assert!(!is_bounded(behind.as_bytes()), "also behind other values");
    }
}
