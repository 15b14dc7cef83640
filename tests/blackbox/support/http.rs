//! A plain HTTP/1.1 client: one request, one connection.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
};

use super::PATIENCE;

/// Gets a page from `host:port` or `unix:PATH`: its status and body.
pub fn get(address: &str, path: &str) -> io::Result<(u16, String)> {
    match address.strip_prefix("unix:") {
        Some(socket) => {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, path)
        }
        None => {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, path)
        }
    }
}

fn exchange(mut stream: impl Read + Write, path: &str) -> io::Result<(u16, String)> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let wrong = || io::Error::other(format!("no answer but {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    Ok((status, body.to_owned()))
}

/// The value of a series in Prometheus text, 0 where it is not there.
pub fn metric(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}
