//! A client of the proxy: HTTP/1.1 on one connection, one request at a time.

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::support::TIMEOUT;

pub struct Client(BufReader<TcpStream>);

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Answer {
    /// Returns the value of a header, which must not be repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} stands twice: {self:?}");
        value
    }

    /// Returns the value of a numeric header.
    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is no number: {self:?}"))
    }
}

impl Client {
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the proxy accepts connections");
        stream.set_nodelay(true).expect("set");
        Self(BufReader::new(stream))
    }

    /// Gets `/` with these headers.
    pub async fn get(&mut self, headers: &[(&str, &str)]) -> Answer {
        timeout(TIMEOUT, self.exchange(headers)).await.expect("an answer in time")
    }

    /// Gets `/` with these headers `times` times. Returns the statuses.
    pub async fn statuses(&mut self, times: usize, headers: &[(&str, &str)]) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..times {
            statuses.push(self.get(headers).await.status);
        }
        statuses
    }

    async fn exchange(&mut self, headers: &[(&str, &str)]) -> Answer {
        let mut request = "GET / HTTP/1.1\r\nhost: upstream\r\n".to_owned();
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        self.0.get_mut().write_all(request.as_bytes()).await.expect("written");
        let head = self.line().await;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {head:?}"));
        let mut answer = Answer { status, headers: Vec::new() };
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else {
                assert_eq!(line, "");
                break;
            };
            answer.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        // No server here uses chunked encoding.
        let mut body = vec![0; answer.number("content-length") as usize];
        self.0.read_exact(&mut body).await.expect("the whole body");
        answer
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("a line");
        assert!(line.ends_with("\r\n"), "the proxy hung up: {line:?}");
        line.trim_end().to_owned()
    }
}
