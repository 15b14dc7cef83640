//! The single Lua script: the algorithms' shared code, their Lua halves, the driver that runs them, and the other
//! tasks.

use std::sync::LazyLock;

use deadpool_redis::redis::{RedisResult, Script, ServerErrorKind, Value, aio::MultiplexedConnection};

use super::command::{command, query};
use weir_core::{
    algorithm::{Entry, LIST, LUA_PRELUDE},
    hold,
};

/// Returns the script's text, identical on all replicas of one version.
pub(super) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let algorithms = LIST.iter().enumerate().map(|(index, entry)| {
            let number = index + 1;
            format!("if number == {number} then\n{}end\n", algorithm(entry))
        });
        let holds = [
            "step",
            "reset",
            "last_deadline",
            "charge",
            "expire",
            "forget_expired",
            "renew",
            "has_capacity",
            "reserve",
            "settle_reserved",
        ]
        .map(|name| format!("{name} = hold_{name}"));
        let holds = format!("{{{}, TTL = HOLD_TTL, KEPT = KEPT, RELEASED = RELEASED}}", holds.join(", "));
        let within = [
            include_str!("script/plan.lua").to_owned(),
            include_str!("script/states.lua").to_owned(),
            include_str!("script/charge.lua").to_owned(),
            include_str!("script/outage_charge.lua").to_owned(),
            function("undoing()", include_str!("script/undo.lua"), "undo"),
            function(
                "reservations()",
                include_str!("script/reserve.lua"),
                "put_record, reserve, answer_again, is_claimed, remember_answer, delete_answer",
            ),
            include_str!("script/driver.lua").to_owned(),
            include_str!("script/tasks.lua").to_owned(),
        ];
        [
            format!("local function algorithm_functions(number)\n{}end\n", algorithms.collect::<String>()),
            function("hold_functions()", hold::LUA, &holds),
            include_str!("script/call.lua").to_owned(),
            format!("local function run_call()\n{}end\nreturn run_call()\n", within.concat()),
        ]
        .concat()
    });
    &TEXT
}

/// Wraps `text` in a function that returns the names in `returned`, so that its definitions are created only when
/// needed.
fn function(head: &str, text: &str, returned: &str) -> String {
    format!("local function {head}\n{text}return {returned}\nend\n")
}

/// Builds the body of an algorithm's function: the shared code that it uses and its own code. It returns the step, the
/// charge, the `next_after` function, the function of how long a state is kept, and the undo by mark; `false` for those
/// that the algorithm lacks.
fn algorithm(entry: &Entry) -> String {
    let mut text = entry.lua.to_owned();
    for (file, part) in LUA_PRELUDE.iter().rev() {
        let name = file.trim_end_matches(".lua");
        // Every part except the first defines names that start with its own.
        if *part == LUA_PRELUDE[0].1 || [format!("{name}_"), format!("{name}(")].iter().any(|used| text.contains(used))
        {
            text.insert_str(0, part);
        }
    }
    let [charge, next, kept] = ["charge", "next", "kept"].map(|what| format!("{}_{what}", entry.name));
    let defined = [&*charge, &next, &kept, "runs_without"]
        .map(|name| if text.contains(&format!("local function {name}(")) { name } else { "false" });
    format!("{text}return {}, {}\n", entry.name, defined.join(", "))
}

/// Returns the script's SHA-1, by which servers cache it.
pub(crate) fn sha() -> &'static str {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(text()));
    SCRIPT.get_hash()
}

/// The task of a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Decides plans.
    Decide = 0,
    /// Deletes states of one anchor.
    Reset = 1,
    /// Tests that the server runs the script and accepts writes.
    Probe = 2,
    /// Changes a document.
    ChangeDocument = 3,
}

/// Loads the script into a server's cache.
///
/// # Errors
/// The connection failed before the reply arrived, or the server replied with an error.
pub(super) async fn load(connection: MultiplexedConnection) -> RedisResult<()> {
    query(connection, &command(&[b"SCRIPT", b"LOAD", text().as_bytes()]), false).await.map(drop)
}

/// Runs the script outside the pipelines of checks, with keys of one hash slot. With `asking`, it is migrating to this
/// server. After `NOSCRIPT` it loads the script and retries once.
///
/// # Errors
/// The connection failed before the reply arrived, or the server replied with an error.
pub(super) async fn run(
    connection: MultiplexedConnection,
    keys: &[&[u8]],
    call: &[u8],
    asking: bool,
) -> RedisResult<Value> {
    let count = keys.len().to_string();
    let command = command(&[&[b"EVALSHA", sha().as_bytes(), count.as_bytes()], keys, &[call]].concat());
    match query(connection.clone(), &command, asking).await {
        Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
            load(connection.clone()).await?;
            query(connection, &command, asking).await
        }
        other => other,
    }
}
