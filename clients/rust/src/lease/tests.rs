//! Leases of a fake service, which each test scripts.

use std::sync::Mutex;

use tempfile::TempDir;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep},
};
use tonic::Code;

use super::*;
use crate::{
    Client,
    fake_service::{Call, serve, virtual_time},
    proto::LeaseResponse,
};

/// Starts a service, and a client that leases.
fn started() -> (Client, UnboundedReceiver<Call>, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("weir.sock");
    let calls = serve(&socket);
    let weir = Client::builder(format!("unix:{}", socket.display())).lease(true).build().expect("a client");
    (weir, calls, dir)
}

fn allowed() -> CheckResponse {
    CheckResponse { allowed: true, ..CheckResponse::default() }
}

/// Answers a request for the terms of a key that cannot be leased.
fn without_terms() -> LeaseResponse {
    LeaseResponse { lease: 1, sequence: 1, decision: Some(allowed()), ..LeaseResponse::default() }
}

#[tokio::test]
async fn a_check_that_waits_behind_the_opening_of_the_stream_has_its_own_deadline() {
    virtual_time();
    let (weir, mut calls, _dir) = started();
    let (opening, mut opened) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Some(call) = calls.recv().await {
            if call.method == "Check" {
                call.answer(&allowed());
                continue;
            }
            unanswered.push(call);
            // The test may have ended.
            let _ = opening.send(());
        }
    });
    let patient = weir.clone();
    tokio::spawn(async move {
        let check = Check::new(["first"]).deadline(Duration::from_secs(60));
        while patient.check(&check).await.is_ok() {}
    });
    opened.recv().await.expect("a stream");
    let check = Check::new(["second"]).deadline(Duration::from_secs(1));
    let late = loop {
        let asked = Instant::now();
        if let Err(error) = weir.check(&check).await {
            break (error, asked.elapsed().as_secs());
        }
    };
    assert_eq!(late, (super::late(), 1));
    // The stream is replaced, however long the first check waits.
    assert!(timeout(Duration::from_secs(1), opened.recv()).await.is_ok());
}

#[tokio::test]
async fn the_end_of_an_accepted_stream_repeats_its_checks_whatever_the_status() {
    virtual_time();
    for code in [Code::Unauthenticated, Code::Unimplemented, Code::ResourceExhausted, Code::Ok] {
        let (weir, mut calls, _dir) = started();
        let methods = Arc::<Mutex<Vec<_>>>::default();
        let called = Arc::clone(&methods);
        tokio::spawn(async move {
            while let Some(call) = calls.recv().await {
                let is_again = called.lock().expect("no panic").contains(&call.method);
                called.lock().expect("no panic").push(call.method.clone());
                match &*call.method {
                    "Lease" if is_again => call.answer(&without_terms()),
                    "Lease" => call.fail(code),
                    _ => call.answer(&allowed()),
                }
            }
        });
        // The check that requests the lease is the last one.
        let (check, mut checks) = (Check::new(["api"]).deadline(Duration::from_secs(1)), 0);
        while !methods.lock().expect("no panic").contains(&"Lease".to_owned()) {
            assert!(weir.check(&check).await.expect("an answer").allowed, "{code:?}");
            checks += 1;
        }
        let methods = methods.lock().expect("no panic");
        assert_eq!(methods[checks - 1..], ["Lease", "Lease"], "{code:?}");
    }
}

#[tokio::test]
async fn a_check_of_a_lost_stream_waits_for_a_service_that_starts() {
    virtual_time();
    let (weir, mut calls, dir) = started();
    let (answer, mut answered) = oneshot::channel();
    tokio::spawn(async move {
        while let Some(call) = calls.recv().await
            && call.method == "Check"
        {
            call.answer(&allowed());
        }
        drop(calls);
        sleep(Duration::from_millis(200)).await;
        let socket = dir.path().join("weir.sock");
        std::fs::remove_file(&socket).expect("removed");
        let mut calls = serve(&socket);
        let call = calls.recv().await.expect("a call");
        // The client may be gone.
        let _ = answer.send(call.method.clone());
        call.answer(&without_terms());
        std::future::pending::<()>().await;
    });
    let check = Check::new(["api"]).deadline(Duration::from_secs(2));
    let repeated = loop {
        assert!(weir.check(&check).await.expect("an answer").allowed);
        if let Ok(method) = answered.try_recv() {
            break method;
        }
    };
    assert_eq!(repeated, "Lease");
}
