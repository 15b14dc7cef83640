//! Runs of the script beside the lanes, on one connection.

use super::{
    connection::{Connection, Reply, encode_command},
    encode::call_head,
    script::{self, Task},
};
use crate::store::{Failure, failure::RefusalCode};

/// Runs the script with one key, whose slot may be on its way to this server (`asking`). A server that has lost the script
/// gets it again.
///
/// # Errors
/// Why there is no reply, or the server's refusal.
pub async fn script(connection: &mut Connection, key: &[u8], call: &[u8], asking: bool) -> Result<Reply, Failure> {
    match once(connection, key, call, asking).await {
        Err(failure) if failure.refusal() == Some(RefusalCode::NoScript) => {
            connection.load_script(script::text()).await?;
            once(connection, key, call, asking).await
        }
        other => other,
    }
}

async fn once(connection: &mut Connection, key: &[u8], call: &[u8], asking: bool) -> Result<Reply, Failure> {
    if asking {
        connection.command(&[b"ASKING"]).await?;
    }
    let sha = connection.script_sha().to_owned();
    connection.command(&[b"EVALSHA", sha.as_bytes(), b"1", key, call]).await
}

/// Whether the server runs the script, takes writes and allows all that checks need, before anything is charged there: a
/// right that is missing would be noticed in the middle of a write.
///
/// # Errors
/// What stands in the way.
pub async fn probe(connection: &mut Connection, key: &[u8]) -> Result<(), Failure> {
    match script(connection, key, &call_head(None, 0, Task::Probe, 0), false).await {
        // The slot is another server's by now, but this one answers.
        Err(failure) if matches!(failure.refusal(), Some(RefusalCode::Moved | RefusalCode::Ask)) => Ok(()),
        other => other.map(drop),
    }
}

/// Sends commands together and awaits their replies: in their order, each the server's own.
///
/// # Errors
/// Why some replies are missing, or the first refusal.
pub async fn all(connection: &mut Connection, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, Failure> {
    let mut bytes = Vec::new();
    commands.iter().for_each(|command| encode_command(&mut bytes, command));
    connection.send(&bytes).await?;
    let mut replies = Vec::with_capacity(commands.len());
    for _ in commands {
        replies.push(connection.receive().await?);
    }
    let refusal = replies.iter().find_map(|reply| if let Reply::Error(text) = reply { Some(text) } else { None });
    refusal.map_or(Ok(()), |text| Err(Failure::of_server(text)))?;
    Ok(replies)
}
