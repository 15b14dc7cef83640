//! Commands to a server through its unix socket, which no setting under test affects.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use deadpool_redis::redis::{Parser, ServerError, Value};

/// A reply of a server.
pub type Reply = Value;

/// Read timeout of a reply.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends commands on one connection, and returns the reply to the last one.
///
/// # Errors
/// The server is not reachable, does not answer in time, or does not speak the protocol.
pub(crate) fn ask(socket: &Path, commands: &[&[&[u8]]]) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(&commands.iter().flat_map(|command| encoded(command)).collect::<Vec<_>>())?;
    let mut parser = Parser::new();
    let mut last = Value::Nil;
    for _ in commands {
        last = parser.parse_value(&mut stream).map_err(io::Error::other)?;
    }
    Ok(last)
}

fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Formats an error as the server sent it.
pub(crate) fn error_text(error: &ServerError) -> String {
    [Some(error.code()), error.details()].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Formats a reply, one value per line.
pub(crate) fn text(reply: &Reply) -> String {
    match reply {
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).trim_end().to_owned(),
        Reply::SimpleString(text) => text.trim_end().to_owned(),
        Reply::Okay => "OK".to_owned(),
        Reply::Int(number) => number.to_string(),
        Reply::ServerError(error) => error_text(error),
        Reply::Array(replies) => replies.iter().map(text).collect::<Vec<_>>().join("\n"),
        Reply::Nil => String::new(),
        other => panic!("{other:?}"),
    }
}
