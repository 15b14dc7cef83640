//! The subset of the Redis protocol (RESP) that Weir uses.

/// Takes the first command from the buffer, if it is complete.
pub fn take_command(buffer: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut rest = &buffer[..];
    let count = header(&mut rest, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = header(&mut rest, b'$')?;
        words.push(rest.get(..length)?.to_vec());
        rest = rest.get(length + 2..)?;
    }
    let used = buffer.len() - rest.len();
    buffer.drain(..used);
    Some(words)
}

fn header(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    assert_eq!(rest[0], kind, "not the protocol: {:?}", String::from_utf8_lossy(rest));
    let number = std::str::from_utf8(&rest[1..end - 1]).expect("a number").parse().expect("a number");
    *rest = &rest[end + 1..];
    Some(number)
}

pub enum Reply {
    Simple(&'static str),
    Error(String),
    Number(i64),
    Bulk(Vec<u8>),
    Verbatim(&'static str),
    Array(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(&'static str, Reply)>),
}

impl Reply {
    pub fn text(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let mut line = |text: String| out.extend_from_slice(format!("{text}\r\n").as_bytes());
        match self {
            Self::Simple(text) => line(format!("+{text}")),
            Self::Error(text) => line(format!("-{text}")),
            Self::Number(number) => line(format!(":{number}")),
            Self::Verbatim(text) => line(format!("={}\r\ntxt:{text}", text.len() + 4)),
            Self::Bulk(bytes) => {
                line(format!("${}", bytes.len()));
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(items) | Self::Push(items) => {
                let kind = if matches!(self, Self::Push(_)) { '>' } else { '*' };
                line(format!("{kind}{}", items.len()));
                items.iter().for_each(|item| item.write(out));
            }
            Self::Map(entries) => {
                line(format!("%{}", entries.len()));
                for (name, value) in entries {
                    Self::text(name).write(out);
                    value.write(out);
                }
            }
        }
    }
}

#[test]
fn a_command_is_read_when_complete() {
    let bytes = b"*2\r\n$4\r\nPING\r\n$2\r\na\n\r\n*1\r\n$4\r\nPING\r\n";
    let first = bytes.len() - 14;
    for cut in 0..first {
        assert_eq!(take_command(&mut bytes[..cut].to_vec()), None, "{cut}");
    }
    let mut buffer = bytes.to_vec();
    assert_eq!(take_command(&mut buffer), Some(vec![b"PING".to_vec(), b"a\n".to_vec()]));
    assert_eq!(take_command(&mut buffer), Some(vec![b"PING".to_vec()]));
    assert!(buffer.is_empty());
}
