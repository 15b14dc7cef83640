//! A TCP proxy between one service and the store that can be cut: connections stay open, and no bytes pass until it is
//! restored.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::Outcome;

/// Address of the proxy, on the ports of the store's servers. The nodes of a Cluster report only their ports, so that a
/// client of the proxy is redirected to the proxy.
pub const HOST: &str = "127.0.0.2";

pub struct Proxy {
    is_cut: watch::Sender<bool>,
}

impl Proxy {
    /// Starts the proxy in front of the servers on these ports, on the current runtime.
    pub async fn start(ports: &[u16]) -> Outcome<Self> {
        let (is_cut, known) = watch::channel(false);
        for port in ports {
            let listener = TcpListener::bind((HOST, *port)).await?;
            tokio::spawn(accept(listener, *port, known.clone()));
        }
        Ok(Self { is_cut })
    }

    /// Cuts or restores the connections.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

async fn accept(listener: TcpListener, port: u16, is_cut: watch::Receiver<bool>) {
    while let Ok((client, _)) = listener.accept().await {
        let is_cut = is_cut.clone();
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                let _ = server.set_nodelay(true).and(client.set_nodelay(true));
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, is_cut.clone()));
                pass(from_server, to_client, is_cut).await;
            }
        });
    }
}

/// Forwards bytes until either end closes.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_cut: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if is_cut.wait_for(|is_cut| !is_cut).await.is_err() || to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
