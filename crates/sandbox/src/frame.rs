//! The framing of messages between parent and worker: a length of 8 bytes, little-endian, then that many bytes.

use std::io::{self, ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};

/// Written by the worker when it is ready. Earlier output, such as a test program's first lines, is ignored.
const READY: &[u8; 16] = b"emberlm-sandbox\x01";
/// Maximum number of bytes before [`READY`].
const MAX_NOISE: usize = 1 << 16;

/// The limits that a worker sets for itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub memory: u64,
    pub stack: u64,
    pub seconds: u64,
    pub response: u64,
}

/// The outcome of a job, as the first byte of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response follows.
    Done,
    /// The response would be larger than allowed.
    TooLarge,
    /// The worker has no such job or cannot read the request. The reason follows.
    Refused,
}

/// A response of a worker.
#[derive(Debug)]
pub struct Response {
    pub outcome: Outcome,
    /// True if the worker exits after this response because it holds too much memory.
    pub last: bool,
    pub payload: Vec<u8>,
}

const OUTCOMES: [Outcome; 3] = [Outcome::Done, Outcome::TooLarge, Outcome::Refused];

pub fn write(to: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    to.write_all(&(payload.len() as u64).to_le_bytes())?;
    to.write_all(payload)
}

/// # Errors
/// The stream ended, or the frame is longer than `limit`.
pub fn read(from: &mut impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > limit {
        let message = format!("a frame of {length} bytes, more than {limit}");
        return Err(io::Error::new(ErrorKind::InvalidData, message));
    }
    let mut payload = Vec::new();
    from.take(length).read_to_end(&mut payload)?;
    match payload.len() as u64 == length {
        true => Ok(payload),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

pub fn write_response(to: &mut impl Write, response: &Response) -> io::Result<()> {
    let outcome = OUTCOMES.iter().position(|it| *it == response.outcome);
    to.write_all(&[outcome.unwrap_or_default() as u8, response.last.into()])?;
    write(to, &response.payload)?;
    to.flush()
}

/// # Errors
/// The stream ended, or it does not contain a response of at most `limit` bytes.
pub fn read_response(from: &mut impl Read, limit: u64) -> io::Result<Response> {
    let mut head = [0; 2];
    from.read_exact(&mut head)?;
    let outcome = OUTCOMES.get(usize::from(head[0])).copied();
    let Some(outcome) = outcome.filter(|_| head[1] <= 1) else {
        return Err(io::Error::new(ErrorKind::InvalidData, "no response"));
    };
    Ok(Response {
        outcome,
        last: head[1] == 1,
        payload: read(from, limit)?,
    })
}

pub fn write_ready(to: &mut impl Write) -> io::Result<()> {
    to.write_all(READY)?;
    to.flush()
}

/// # Errors
/// The stream ended, or too many other bytes came first.
pub fn read_ready(from: &mut impl Read) -> io::Result<()> {
    let mut last = [0; READY.len()];
    for _ in 0..MAX_NOISE {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        last.rotate_left(1);
        last[READY.len() - 1] = byte[0];
        if last == *READY {
            return Ok(());
        }
    }
    Err(io::Error::new(
        ErrorKind::InvalidData,
        "the program is no sandbox worker",
    ))
}
