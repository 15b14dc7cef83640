//! A minimal HTTP/1.1 client with full control over the bytes it sends.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
};

use serde_json::Value;

use super::TIMEOUT;

pub trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A client connection.
pub struct Client(BufReader<Box<dyn Stream>>);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Header names, in lower case, and values.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// Returns the value of a header, which must not be repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(found, _)| found == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} stands twice in {self:?}");
        value
    }

    /// Returns the value of a numeric header.
    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {self:?}"))
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Client {
    /// Connects to `host:port` or `unix:PATH`.
    pub fn connect(address: &str) -> io::Result<Self> {
        let stream: Box<dyn Stream> = match address.strip_prefix("unix:") {
            Some(socket) => {
                let stream = UnixStream::connect(socket)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
            None => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
        };
        Ok(Self(BufReader::new(stream)))
    }

    /// Uses an open stream.
    pub fn over(stream: impl Stream + 'static) -> Self {
        Self(BufReader::new(Box::new(stream)))
    }

    /// Sends the head of a request whose body has this length, and the available part of the body.
    pub fn send(
        &mut self,
        request: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("{request} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        let stream = self.0.get_mut();
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        stream.write_all(body)
    }

    /// Sends more of a body.
    pub fn send_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    pub fn receive(&mut self) -> io::Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("no status line"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let value = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let body = if value("transfer-encoding") == Some("chunked") {
            self.chunks()?
        } else {
            let mut body = vec![0; value("content-length").map_or(0, |length| length.parse().expect("a length"))];
            self.0.read_exact(&mut body)?;
            body
        };
        Ok(Answer { status, headers, body: String::from_utf8(body).map_err(io::Error::other)? })
    }

    /// Sends a request and receives its answer.
    pub fn ask(&mut self, request: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Answer> {
        self.send(request, headers, Some(body.len()), body)?;
        self.receive()
    }

    /// Posts JSON.
    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.ask(&format!("POST {path}"), &headers, body.to_string().as_bytes()).expect("it answers")
    }

    /// Waits until the service closes the connection. Returns false if it sends anything before.
    pub fn ends(&mut self) -> bool {
        self.0.fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            self.0.read_exact(&mut body[start..])?;
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Gets a path from `host:port` or `unix:PATH` over a separate connection: status and body.
pub fn get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let answer = Client::connect(address)?.ask(&format!("GET {path}"), &[("connection", "close")], b"")?;
    Ok((answer.status, answer.body))
}

/// Returns a series in Prometheus text format, 0 if it is missing.
pub fn metric(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}
