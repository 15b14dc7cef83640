//! HTTP/2 by hand, for clients that misbehave in ways no library offers.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use super::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A connection whose frames are written one by one.
pub struct Raw(TcpStream);

impl Raw {
    /// Connects and sends the preface; the service may then send at most `window` bytes on each stream.
    pub fn connect(address: &str, window: u32) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut raw = Self(stream);
        raw.write(PREFACE)?;
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend_from_slice(&window.to_be_bytes());
        raw.frame(SETTINGS, 0, 0, &settings)?;
        Ok(raw)
    }

    /// Opens stream 1 as a gRPC call.
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
        self.frame(HEADERS, END_HEADERS, 1, &block)
    }

    /// Sends a message on stream 1.
    pub fn message(&mut self, message: &impl prost::Message) -> io::Result<()> {
        let body = message.encode_to_vec();
        let mut data = vec![0];
        data.extend_from_slice(&u32::try_from(body.len()).expect("short").to_be_bytes());
        data.extend_from_slice(&body);
        self.frame(DATA, 0, 1, &data)
    }

    /// Sends the beginning of a frame that is announced to be longer.
    pub fn half_a_frame(&mut self) -> io::Result<()> {
        self.write(&[0, 1, 0, DATA, 0, 0, 0, 0, 1, 0, 0])
    }

    /// Says that nothing more will come, and reads what the service sends until it closes.
    pub fn close_half(mut self) -> io::Result<Vec<u8>> {
        self.0.shutdown(std::net::Shutdown::Write)?;
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest)?;
        Ok(rest)
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}
