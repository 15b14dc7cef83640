//! Commands on a connection, and what its errors say of whether they ran.

use deadpool_redis::redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisWrite, ServerError, Value, aio::MultiplexedConnection,
};

use crate::store::Failure;

/// A command of these words.
pub fn command(words: &[&[u8]]) -> Cmd {
    let mut command = Cmd::with_capacity(words.len(), words.iter().map(|word| word.len()).sum());
    words.iter().for_each(|word| command.write_arg(word));
    command
}

/// Sends a command and awaits its reply, which may be an error of the server. With `asking`, because the key's slot is being
/// migrated to this server, `ASKING` goes right before it.
///
/// # Errors
/// [`Failure::Lost`]: the crate does not tell whether a command was sent before its connection failed.
pub async fn send(mut connection: MultiplexedConnection, command: Cmd, asking: bool) -> Result<Value, Failure> {
    if !asking {
        return connection.send_packed_command(&command).await.map_err(lost);
    }
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command);
    // What is wrong with ASKING is wrong with the command too, and its reply says so.
    let mut replies = send_all(&connection, &pipeline).await?;
    replies.pop().ok_or_else(|| Failure::Lost("a reply is missing".into()))
}

/// Sends commands together and awaits their replies, in order, each of which may be an error of the server.
///
/// # Errors
/// [`Failure::Lost`] when some replies are missing.
pub async fn send_all(connection: &MultiplexedConnection, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
    connection.clone().send_packed_commands(pipeline, 0, pipeline.len()).await.map_err(lost)
}

/// [`send`] where a server's error is one.
///
/// # Errors
/// [`Failure::Lost`], or what [`Failure::of_server`] makes of the server's error.
pub async fn query(connection: &MultiplexedConnection, command: Cmd, asking: bool) -> Result<Value, Failure> {
    answered(send(connection.clone(), command, asking).await?)
}

/// A reply, unless it is an error.
///
/// # Errors
/// What [`Failure::of_server`] makes of it.
pub fn answered(reply: Value) -> Result<Value, Failure> {
    match reply {
        Value::ServerError(error) => Err(Failure::of_server(&words(&error))),
        reply => Ok(reply),
    }
}

/// A server's error in the server's words.
pub fn words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// What is wrong with a connection.
pub fn trouble(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Parse => format!("not the Redis protocol: {error}"),
        ErrorKind::Io if error.is_connection_dropped() && !error.is_connection_refusal() => {
            "the connection was closed".to_owned()
        }
        _ => error.to_string(),
    }
}

fn lost(error: RedisError) -> Failure {
    Failure::Lost(trouble(&error).into())
}
