//! Commands on a connection, and the classification of their errors.

use deadpool_redis::redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisResult, RedisWrite, ServerError, Value, aio::MultiplexedConnection,
};

use crate::{Failure, failure::cut};

/// Builds a command from its arguments.
pub fn command(args: &[&[u8]]) -> Cmd {
    let mut command = Cmd::with_capacity(args.len(), args.iter().map(|arg| arg.len()).sum());
    args.iter().for_each(|arg| command.write_arg(arg));
    command
}

/// Sends a command and awaits its reply, which may be an error of the server. With `asking`, `ASKING` precedes it,
/// because the key's hash slot is migrating to this server.
///
/// # Errors
/// The connection failed before the reply arrived.
pub async fn send(mut connection: MultiplexedConnection, command: &Cmd, asking: bool) -> RedisResult<Value> {
    if asking {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        // An error of `ASKING` also shows in the reply to the command. Boxed, because it is rare.
        let replies = Box::pin(send_all(connection, &pipeline)).await?;
        return Ok(replies.into_iter().next_back().unwrap_or_default());
    }
    connection.send_packed_command(command).await
}

/// Like [`send`], but returns an error reply as an error.
///
/// # Errors
/// The connection failed before the reply arrived, or the server replied with an error.
pub async fn query(connection: MultiplexedConnection, command: &Cmd, asking: bool) -> RedisResult<Value> {
    send(connection, command, asking).await?.extract_error()
}

/// Sends a pipeline and awaits the replies in order, each of which may be an error of the server.
///
/// # Errors
/// Some replies are missing.
pub async fn send_all(mut connection: MultiplexedConnection, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
    connection.send_packed_commands(pipeline, 0, pipeline.len()).await
}

/// Formats a server's error as the server sent it.
pub fn error_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// Classifies the error of a command. Unless the server replied with an error, the command may have run: the crate does
/// not report whether it was sent before the connection failed.
pub fn failure(error: RedisError) -> Failure {
    match ServerError::try_from(error) {
        Ok(error) => Failure::of_server(&error_text(&error)),
        Err(error) => Failure::Lost(cut(&describe(&error))),
    }
}

/// Describes why a connection failed.
pub(crate) fn describe(error: &RedisError) -> String {
    match (error.kind(), error.detail()) {
        // Redis quotes the arguments of a call that it does not know, and those of the script are not text.
        (ErrorKind::Parse, _) if error.to_string().contains("utf-8") => {
            format!("not the Redis protocol, or an error that quotes the call, as of a server without EVALSHA: {error}")
        }
        (ErrorKind::Parse, _) => format!("not the Redis protocol: {error}"),
        (ErrorKind::Io, _) if error.is_connection_dropped() && !error.is_connection_refusal() => {
            "the connection was closed".to_owned()
        }
        (ErrorKind::InvalidClientConfig, Some(why)) => why.to_owned(),
        _ => error.to_string(),
    }
}
