//! One command to a server, by the socket that no setting under test concerns.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use deadpool_redis::redis::{Parser, ServerError, Value};

/// What a server answers.
pub type Reply = Value;

/// How long a server may take for one command.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends commands on one connection, and gives the reply to the last.
///
/// # Errors
/// The server is not there, does not answer in time, or does not speak the protocol.
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

/// An error as the server writes it.
pub(crate) fn words(error: &ServerError) -> String {
    [Some(error.code()), error.details()].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A reply as a person reads it: one line a value.
pub(crate) fn text(reply: &Reply) -> String {
    match reply {
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).trim_end().to_owned(),
        Reply::SimpleString(text) => text.trim_end().to_owned(),
        Reply::Okay => "OK".to_owned(),
        Reply::Int(number) => number.to_string(),
        Reply::ServerError(error) => words(error),
        Reply::Array(replies) => replies.iter().map(text).collect::<Vec<_>>().join("\n"),
        Reply::Nil => String::new(),
        other => panic!("{other:?}"),
    }
}
