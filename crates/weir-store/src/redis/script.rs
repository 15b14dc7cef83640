//! The one script: what the algorithms' Lua halves share, the halves, the driver that runs them, and the tasks.

use std::{borrow::Cow, sync::LazyLock};

use deadpool_redis::redis::{RedisResult, Script, ServerErrorKind, Value, aio::MultiplexedConnection};

use super::command::{command, query};
use weir_core::{
    algorithm::{Entry, LIST, LUA_PRELUDE},
    hold,
};

/// The script's text, the same on every replica of one version.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let halves = LIST.iter().map(|entry| Cow::from(entry.lua));
        let table = |name: &str, values: Vec<String>| format!("local {name} = {{{}}}\n", values.join(", "));
        let of_all = |what| LIST.iter().map(|entry| function_of(entry, what)).collect();
        let tables = table("steps", LIST.iter().map(|entry| entry.name.to_owned()).collect())
            + &table("unit_charges", of_all("charge"))
            + &table("nexts", of_all("next"));
        let parts = LUA_PRELUDE.iter().map(|(_, part)| Cow::from(*part)).chain(halves);
        let own = [
            hold::LUA,
            include_str!("script/plan.lua"),
            include_str!("script/states.lua"),
            include_str!("script/charge.lua"),
            include_str!("script/undo.lua"),
            include_str!("script/afterwards.lua"),
            include_str!("script/reserve.lua"),
            include_str!("script/driver.lua"),
            include_str!("script/tasks.lua"),
        ];
        parts.chain([tables.into()]).chain(own.map(Cow::from)).collect()
    });
    &TEXT
}

/// An algorithm's function for this besides its step, or `false`.
fn function_of(entry: &Entry, what: &str) -> String {
    let name = format!("{}_{what}", entry.name);
    if entry.lua.contains(&format!("local function {name}(")) { name } else { "false".to_owned() }
}

/// The name under which servers have the script: its SHA-1.
pub(crate) fn sha() -> &'static str {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(text()));
    SCRIPT.get_hash()
}

/// The task of a call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Decides plans.
    Decide = 0,
    /// Forgets states of one anchor.
    Reset = 1,
    /// Shows that the server runs the script and takes writes.
    Probe = 2,
    /// Tells what is held of states of one anchor.
    Holds = 3,
}

/// Gives a server the script.
///
/// # Errors
/// Why that is not certain.
pub async fn load(connection: MultiplexedConnection) -> RedisResult<()> {
    query(connection, &command(&[b"SCRIPT", b"LOAD", text().as_bytes()]), false).await.map(drop)
}

/// Runs the script outside the pipelines of checks, with one key, whose slot may be migrating to this server (`asking`). A
/// server that has lost the script gets it again.
///
/// # Errors
/// The connection failed before the reply, or the server answered with an error.
pub async fn run(connection: MultiplexedConnection, key: &[u8], call: &[u8], asking: bool) -> RedisResult<Value> {
    let command = command(&[b"EVALSHA", sha().as_bytes(), b"1", key, call]);
    match query(connection.clone(), &command, asking).await {
        Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
            load(connection.clone()).await?;
            query(connection, &command, asking).await
        }
        other => other,
    }
}
