//! One command to a server, by the socket that no setting under test concerns.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use redis_protocol::resp2::{decode::decode, types::OwnedFrame};

/// What a server answers.
pub type Reply = OwnedFrame;

/// How long a server may take for one command.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends commands on one connection, and gives the reply to the last.
///
/// # Errors
/// The server is not there, does not answer in time, or does not speak the protocol.
pub fn ask(socket: &Path, commands: &[&[&[u8]]]) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(&commands.iter().flat_map(|command| encoded(command)).collect::<Vec<_>>())?;
    let (mut input, mut chunk, mut left) = (Vec::new(), [0; 16_384], commands.len());
    loop {
        while let Some((reply, length)) = decode(&input).map_err(io::Error::other)? {
            input.drain(..length);
            left -= 1;
            if left == 0 {
                return Ok(reply);
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => input.extend_from_slice(&chunk[..bytes]),
        }
    }
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

/// A reply as a person reads it: one line a value.
pub fn text(reply: &Reply) -> String {
    match reply {
        Reply::SimpleString(bytes) | Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).trim_end().to_owned(),
        Reply::Integer(number) => number.to_string(),
        Reply::Error(text) => text.clone(),
        Reply::Array(replies) => replies.iter().map(text).collect::<Vec<_>>().join("\n"),
        Reply::Null => String::new(),
    }
}
