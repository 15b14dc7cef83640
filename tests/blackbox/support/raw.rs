//! Handwritten HTTP/2, for misbehaving clients that no library can simulate.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use super::TIMEOUT;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;
/// The HTTP/2 error code for abusive clients.
pub const ENHANCE_YOUR_CALM: u32 = 11;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Maximum length of a frame's payload.
const MAX_FRAME_BYTES: usize = 16 << 10;
/// Length of the gRPC prefix of a message: compressed flag and length.
const MESSAGE_HEAD_BYTES: usize = 5;

/// A connection whose frames are written one by one.
pub struct Raw {
    stream: TcpStream,
    /// The next stream to open.
    next: u32,
}

impl Raw {
    /// Connects and sends the preface, with an initial window of `window` bytes for each stream.
    pub fn connect(address: &str, window: u32) -> io::Result<Self> {
        let mut raw = Self::connect_silently(address)?;
        raw.preface(window)?;
        Ok(raw)
    }

    /// Connects and sends nothing.
    pub fn connect_silently(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, next: 1 })
    }

    /// Sends the preface, with an initial window of `window` bytes for each stream.
    pub fn preface(&mut self, window: u32) -> io::Result<()> {
        self.write(PREFACE)?;
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend_from_slice(&window.to_be_bytes());
        self.frame(SETTINGS, 0, 0, &settings)
    }

    /// Enlarges the connection's flow-control window.
    pub fn more_window(&mut self, bytes: u32) -> io::Result<()> {
        self.frame(WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes())
    }

    /// Opens the next stream, from 1, as a gRPC call.
    pub fn call(&mut self, path: &str) -> io::Result<()> {
        self.call_with(path, &[])
    }

    /// Opens the next stream, from 1, as a gRPC call with these headers.
    pub fn call_with(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let usual = [("content-type", "application/grpc"), ("te", "trailers")];
        self.head(0, "POST", path, &[&usual, headers].concat())
    }

    /// Opens the next stream as a complete GET request.
    pub fn get(&mut self, path: &str) -> io::Result<()> {
        self.head(END_STREAM, "GET", path, &[])
    }

    fn head(&mut self, flags: u8, method: &str, path: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut block = Vec::new();
        let usual = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
        for (name, value) in usual.iter().chain(headers) {
            // A literal field without indexing: a zero byte, then both texts with their lengths.
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).expect("short"));
                block.extend_from_slice(text.as_bytes());
            }
        }
        let stream = self.next;
        self.next += 2;
        self.frame(HEADERS, END_HEADERS | flags, stream, &block)
    }

    /// Opens the next stream as a gRPC call with one message.
    pub fn ask(&mut self, path: &str, message: &impl prost::Message) -> io::Result<()> {
        self.ask_all(path, &framed(message))
    }

    /// Opens the next stream as a gRPC call with these messages, each of them [`framed`].
    pub fn ask_all(&mut self, path: &str, messages: &[u8]) -> io::Result<()> {
        let stream = self.next;
        self.call(path)?;
        self.frame(DATA, END_STREAM, stream, messages)
    }

    /// Opens the next stream as a gRPC call with these bytes, without ending it.
    pub fn begin(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let stream = self.next;
        self.call(path)?;
        self.frame(DATA, 0, stream, bytes)
    }

    /// Reads and drops all available bytes.
    pub fn discard(&mut self) -> io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        self.stream.set_nonblocking(true)?;
        let read = loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.stream.set_nonblocking(false)?;
        read
    }

    /// Sends a message on stream 1, without ending it.
    pub fn message(&mut self, message: &impl prost::Message) -> io::Result<()> {
        self.frame(DATA, 0, 1, &framed(message))
    }

    /// Sends a message `count` times on stream 1, each in a separate frame, all in one write.
    pub fn messages(&mut self, message: &impl prost::Message, count: usize) -> io::Result<()> {
        let mut frame = Vec::new();
        put_frame(&mut frame, DATA, 0, 1, &framed(message));
        self.write(&frame.repeat(count))
    }

    /// Sends the only message of stream 1.
    pub fn only_message(&mut self, message: &impl prost::Message) -> io::Result<()> {
        self.frame(DATA, END_STREAM, 1, &framed(message))
    }

    /// Sends a part of a [`framed`] message on stream 1, without ending it.
    pub fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(MAX_FRAME_BYTES).try_for_each(|bytes| self.frame(DATA, 0, 1, bytes))
    }

    /// Reads the first message that the service sends on any stream.
    pub fn answer<M: prost::Message + Default>(&mut self) -> io::Result<M> {
        loop {
            let (kind, payload) = self.read_frame()?;
            if kind == DATA && payload.len() >= MESSAGE_HEAD_BYTES {
                return Ok(M::decode(&payload[MESSAGE_HEAD_BYTES..])?);
            }
        }
    }

    /// Acknowledges a PING that was never sent.
    pub fn stray_ack(&mut self) -> io::Result<()> {
        self.frame(PING, ACK, 0, &[7; 8])
    }

    /// Sends the start of a frame, but not the rest of its length.
    pub fn half_a_frame(&mut self) -> io::Result<()> {
        self.write(&[0, 1, 0, DATA, 0, 0, 0, 0, 1, 0, 0])
    }

    /// Shuts down the write side, and reads until the service closes.
    pub fn close_half(mut self) -> io::Result<Vec<u8>> {
        self.no_more()?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        Ok(rest)
    }

    /// Shuts down the write side.
    pub fn no_more(&mut self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Opens this many calls and resets each immediately, all in one write (rapid reset).
    pub fn take_back(&mut self, path: &str, count: u32) -> io::Result<()> {
        // POST and http by their indexes in the static table, then path and content type as literals.
        let mut block = vec![0x83, 0x86];
        for (name, value) in [(&[0x04][..], path), (&[0x0f, 0x10], "application/grpc")] {
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).expect("short"));
            block.extend_from_slice(value.as_bytes());
        }
        let mut bytes = Vec::new();
        for _ in 0..count {
            put_frame(&mut bytes, HEADERS, END_HEADERS, self.next, &block);
            put_frame(&mut bytes, RST_STREAM, 0, self.next, &CANCEL.to_be_bytes());
            self.next += 2;
        }
        self.write(&bytes)
    }

    /// Sends this many PINGs and empty SETTINGS, all in one write.
    pub fn pings_and_settings(&mut self, count: usize) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            put_frame(&mut bytes, PING, 0, 0, &[7; 8]);
            put_frame(&mut bytes, SETTINGS, 0, 0, &[]);
        }
        self.write(&bytes)
    }

    /// Starts the headers of a call and continues them with `count` fields of `size` bytes, at most 126, without an
    /// end.
    pub fn head_without_end(&mut self, size: u8, count: usize) -> io::Result<()> {
        let mut field = vec![0, 1, b'a', size];
        field.resize(field.len() + usize::from(size), b'b');
        let mut bytes = Vec::new();
        put_frame(&mut bytes, HEADERS, 0, self.next, &[0x83, 0x86]);
        for _ in 0..count {
            put_frame(&mut bytes, CONTINUATION, 0, self.next, &field);
        }
        self.write(&bytes)
    }

    /// Sets the timeout of writes.
    pub fn wait_at_most(&mut self, time: std::time::Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(time))
    }

    /// Reads until the service closes. Returns the error code of its GOAWAY, unless it was lost because the service
    /// closed with unread bytes.
    pub fn end(&mut self) -> io::Result<Option<u32>> {
        let mut goodbye = None;
        loop {
            match self.read_frame() {
                Ok((GOAWAY, payload)) => goodbye = payload[4..8].try_into().ok().map(u32::from_be_bytes),
                Ok(_) => {}
                Err(error) if is_closed(&error) => return Ok(goodbye),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the service closes, and answers its PINGs.
    pub fn drained(&mut self) -> io::Result<()> {
        loop {
            match self.read_frame() {
                Ok((PING, payload)) => self.frame(PING, ACK, 0, &payload)?,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the type and payload of the next frame.
    fn read_frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((head[3], payload))
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut frame = Vec::new();
        put_frame(&mut frame, kind, flags, stream, payload);
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }
}

/// Adds the gRPC prefix to a message.
pub fn framed(message: &impl prost::Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut data = vec![0];
    data.extend_from_slice(&u32::try_from(body.len()).expect("short").to_be_bytes());
    data.extend_from_slice(&body);
    data
}

fn put_frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    bytes.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// Whether an error means that the other side has closed.
pub fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
