//! Sentinels are asked to fail over while the master is well. They leave it a master for a while: what is charged there in
//! that time is lost.

use crate::{
    servers::{SentinelOptions, Sentinels, Server as Redis, eventually},
    service::{patient, runtime, window},
    support::{
        Server, eventually_async,
        requests::{check, peek},
    },
};

const UNITS: u64 = 1_000;
/// Keys, so that every connection of the service is asked by.
const KEYS: u64 = 100;
/// What the service logs.
const SWITCHED: &str = "the Sentinels name another master";

#[test]
fn a_master_that_was_replaced_alive_is_left_at_once() {
    let all = Sentinels::start(&SentinelOptions::default());
    let policy = format!("schema: {{ user: {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }}", window(UNITS));
    let setup = || patient(&all.url()).policy(&policy);
    let (service, runtime) = (setup().start(), runtime());
    runtime.block_on(charge_each(&service));
    has_all_of(&all.data[1 - all.master()], &all.data[all.master()]);

    let old = all.leave_behind();
    eventually("the switch is seen", || match service.log().iter().any(|line| line.contains(SWITCHED)) {
        true => Ok(()),
        false => Err(format!("{:#?}", service.log())),
    });
    runtime.block_on(charge_each(&service));

    // It has never known the old one.
    let other = setup().start();
    for number in 0..KEYS {
        assert_eq!(runtime.block_on(left(&other, number)), UNITS - 2, "both charges of key {number}");
    }
    assert_eq!(all.data[old].info("role").as_deref(), Ok("master"), "nobody has told it yet");
}

async fn charge_each(service: &Server) {
    let mut client = service.client().await;
    for number in 0..KEYS {
        let answer = client.check(check(&["user", &number.to_string()])).await.expect("an answer").into_inner();
        assert!(answer.allowed && !answer.degraded, "{answer:?}");
    }
}

async fn left(service: &Server, number: u64) -> u64 {
    let mut client = service.client().await;
    eventually_async("the store answers", async || {
        let answer = client.check(peek(&["user", &number.to_string()])).await.expect("an answer").into_inner();
        (!answer.degraded).then_some(answer.remaining)
    })
    .await
}

/// Waits until the replica has all that its master has by now.
fn has_all_of(replica: &Redis, master: &Redis) {
    let offset = |server: &Redis, name| server.info(name)?.parse::<u64>().map_err(|error| error.to_string());
    let written = offset(master, "master_repl_offset").expect("an offset");
    eventually("the replica has it all", || match offset(replica, "slave_repl_offset")? {
        read if read >= written => Ok(()),
        read => Err(format!("{read} of {written}")),
    });
}
