use std::{sync::Arc, task::Waker};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinHandle,
};

use super::*;

/// Reads in order: the connection and the number of bytes.
type Reads = Arc<Mutex<Vec<(usize, u64)>>>;

fn queue() -> FairQueue {
    FairQueue::start(&Handle::current())
}

/// Makes a connection that has received `bytes`, with its client.
async fn connection(queue: &FairQueue, bytes: u64) -> (FairStream<DuplexStream>, DuplexStream) {
    let (server, mut client) = duplex(1 << 21);
    client.write_all(&vec![0; usize::try_from(bytes).unwrap()]).await.unwrap();
    (FairStream::new(server, queue.clone()), client)
}

/// Reads until the end, in a task.
fn read(number: usize, mut connection: FairStream<DuplexStream>, reads: &Reads) -> JoinHandle<()> {
    let reads = Arc::clone(reads);
    tokio::spawn(async move {
        let mut buffer = [0; 3_000];
        while let Ok(bytes @ 1..) = connection.read(&mut buffer).await {
            reads.lock().push((number, bytes as u64));
        }
    })
}

/// Merges consecutive reads of one connection.
fn in_a_row(reads: &Reads) -> Vec<(usize, u64)> {
    let mut rows: Vec<(usize, u64)> = Vec::new();
    for &(number, bytes) in &*reads.lock() {
        match rows.last_mut() {
            Some((last, sum)) if *last == number => *sum += bytes,
            _ => rows.push((number, bytes)),
        }
    }
    rows
}

fn sum(reads: &Reads) -> u64 {
    reads.lock().iter().map(|(_, bytes)| bytes).sum()
}

#[tokio::test]
async fn busy_connections_alternate() {
    let (queue, reads) = (queue(), Reads::default());
    let (first, first_client) = connection(&queue, 3 * LARGE.turn).await;
    let (second, second_client) = connection(&queue, 3 * LARGE.turn).await;
    drop((first_client, second_client));
    for reader in [read(1, first, &reads), read(2, second, &reads)] {
        reader.await.unwrap();
    }
    let at_once = LARGE.first + LARGE.shared;
    let (first_rest, second_rest) = (LARGE.turn - at_once, LARGE.turn - LARGE.first);
    let rows = [(at_once, LARGE.first), (LARGE.turn, LARGE.turn), (LARGE.turn, LARGE.turn), (first_rest, second_rest)];
    let rows = rows.map(|(first, second)| [(1, first), (2, second)]);
    assert_eq!(in_a_row(&reads), rows.as_flattened());
}

#[tokio::test]
async fn a_connection_that_sends_little_does_not_wait_for_a_turn_of_each_busy_one() {
    let (queue, reads) = (queue(), Reads::default());
    let mut clients = Vec::new();
    for number in 0..20 {
        let (busy, client) = connection(&queue, 100 * LARGE.turn).await;
        read(number, busy, &reads);
        clients.push(client);
    }
    let (mut server, mut client) = connection(&queue, 0).await;
    tokio::spawn(async move {
        while let Ok(byte) = server.read_u8().await {
            server.write_u8(byte).await.unwrap();
        }
    });
    let mut meanwhile = Vec::new();
    for _ in 0..100 {
        let before = sum(&reads);
        client.write_u8(1).await.unwrap();
        client.read_u8().await.unwrap();
        meanwhile.push(sum(&reads) - before);
    }
    // The first one includes the very first turn.
    assert!(meanwhile[1..].iter().all(|bytes| *bytes <= 2 * LARGE.turn), "{meanwhile:?}");
    assert!(meanwhile[20..].iter().all(|bytes| *bytes <= 2 * SMALL.turn), "{meanwhile:?}");
    let before = sum(&reads);
    for _ in 0..SMALL_TURNS + 4 {
        yield_now().await;
    }
    assert!(sum(&reads) - before >= SMALL_TURNS * SMALL.turn, "the busy ones go on");
    let before = sum(&reads);
    for _ in 0..4 {
        yield_now().await;
    }
    assert!(sum(&reads) - before >= 3 * LARGE.turn, "turns are large again once nobody gains by small ones");
}

#[tokio::test]
async fn a_connection_that_closes_leaves_the_queue() {
    let (queue, reads) = (queue(), Reads::default());
    let (mut closed, _client) = connection(&queue, 2 * LARGE.turn).await;
    let (next, next_client) = connection(&queue, 2 * LARGE.turn).await;
    drop(next_client);
    let mut buffer = vec![0; usize::try_from(LARGE.first + LARGE.shared).unwrap()];
    closed.read_exact(&mut buffer).await.unwrap();
    let rest = Pin::new(&mut closed).poll_read(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut buffer));
    assert!(rest.is_pending());
    drop(closed);
    read(1, next, &reads).await.unwrap();
    assert_eq!(sum(&reads), 2 * LARGE.turn);
}

#[tokio::test]
async fn unused_shared_bytes_are_left_for_others() {
    let queue = queue();
    let (mut server, _client) = connection(&queue, LARGE.first + 1).await;
    let mut buffer = vec![0; usize::try_from(LARGE.first + 1).unwrap()];
    server.read_exact(&mut buffer).await.unwrap();
    let more = Pin::new(&mut server).poll_read(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut buffer));
    assert!(more.is_pending());
    assert_eq!(queue.state.shared.load(Ordering::Relaxed), LARGE.shared - 1);
    queue.return_shared(LARGE.shared);
    assert_eq!(queue.state.shared.load(Ordering::Relaxed), LARGE.shared);
}
