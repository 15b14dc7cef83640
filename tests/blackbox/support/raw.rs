//! HTTP/2 by hand, for clients that misbehave in ways no library offers.

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
/// What is said to those who ask too much.
pub const ENHANCE_YOUR_CALM: u32 = 11;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// What gRPC puts before a message: whether it is compressed, and its length.
const MESSAGE_HEAD_BYTES: usize = 5;

/// A connection whose frames are written one by one.
pub struct Raw {
    stream: TcpStream,
    /// The next stream that is not open yet.
    next: u32,
}

impl Raw {
    /// Connects and sends the preface; the service may then send at most `window` bytes on each stream.
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

    /// Sends the preface; the service may then send at most `window` bytes on each stream.
    pub fn preface(&mut self, window: u32) -> io::Result<()> {
        self.write(PREFACE)?;
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend_from_slice(&window.to_be_bytes());
        self.frame(SETTINGS, 0, 0, &settings)
    }

    /// Lets the service send so many bytes more on all streams together.
    pub fn more_window(&mut self, bytes: u32) -> io::Result<()> {
        self.frame(WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes())
    }

    /// Opens the next stream, the first time stream 1, as a gRPC call.
    pub fn call(&mut self, path: &str) -> io::Result<()> {
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            // A literal field without indexing: a zero, then both texts with their lengths.
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).expect("short"));
                block.extend_from_slice(text.as_bytes());
            }
        }
        let stream = self.next;
        self.next += 2;
        self.frame(HEADERS, END_HEADERS, stream, &block)
    }

    /// Opens the next stream as a gRPC call with this message alone.
    pub fn ask(&mut self, path: &str, message: &impl prost::Message) -> io::Result<()> {
        self.ask_all(path, &framed(message))
    }

    /// The same with these messages, each of them [`framed`].
    pub fn ask_all(&mut self, path: &str, messages: &[u8]) -> io::Result<()> {
        let stream = self.next;
        self.call(path)?;
        self.frame(DATA, END_STREAM, stream, messages)
    }

    /// Opens the next stream as a gRPC call with these bytes, and more may follow.
    pub fn begin(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let stream = self.next;
        self.call(path)?;
        self.frame(DATA, 0, stream, bytes)
    }

    /// Reads what is there, and drops it.
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

    /// Sends a message on stream 1, and more may follow.
    pub fn message(&mut self, message: &impl prost::Message) -> io::Result<()> {
        self.frame(DATA, 0, 1, &framed(message))
    }

    /// Sends the only message of stream 1.
    pub fn only_message(&mut self, message: &impl prost::Message) -> io::Result<()> {
        self.frame(DATA, END_STREAM, 1, &framed(message))
    }

    /// Sends a part of what is [`framed`] on stream 1, and more may follow.
    pub fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame(DATA, 0, 1, bytes)
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

    /// Sends the beginning of a frame that is announced to be longer.
    pub fn half_a_frame(&mut self) -> io::Result<()> {
        self.write(&[0, 1, 0, DATA, 0, 0, 0, 0, 1, 0, 0])
    }

    /// Says that nothing more will come, and reads what the service sends until it closes.
    pub fn close_half(mut self) -> io::Result<Vec<u8>> {
        self.no_more()?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        Ok(rest)
    }

    /// Says that nothing more will come.
    pub fn no_more(&mut self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Opens so many calls and takes each back at once, all in one write.
    pub fn take_back(&mut self, path: &str, count: u32) -> io::Result<()> {
        // POST and http by their numbers in the static table, then the path and the type as they are.
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

    /// Sends so many pings and empty settings, all in one write.
    pub fn pings_and_settings(&mut self, count: usize) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            put_frame(&mut bytes, PING, 0, 0, &[7; 8]);
            put_frame(&mut bytes, SETTINGS, 0, 0, &[]);
        }
        self.write(&bytes)
    }

    /// Begins the head of a call, and goes on with fields of `size` bytes, at most 126, so many of them, without an end.
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

    /// How long a write may wait.
    pub fn wait_at_most(&mut self, time: std::time::Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(time))
    }

    /// Reads until the service closes; the reason of its goodbye, unless that was lost because more was sent than it read.
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

    /// The type of the next frame, and its payload.
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

/// A message as it is sent: with its length before it.
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
