//! The messages by which ranks find each other: the bytes of [`MAGIC`], a length and JSON. A foreign program at the other end
//! sends something else.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Begins each message. The last byte is the version of the messages and of [`super::links`]' frames.
const MAGIC: &[u8; 8] = b"emberlm\x01";

/// The longest message. That of a job of 10,000 ranks takes about 1 MB.
const LONGEST: u32 = 16 << 20;

/// The first message of a rank to rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// See [`crate::TcpLaunch::job`].
    pub job: String,
    pub version: String,
    pub world_size: usize,
    pub rank: usize,
    pub member: Member,
}

/// The place of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// The name of the host.
    pub host: String,
    /// The address of the host, as rank 0 sees it; `None` for rank 0's own.
    pub address: Option<IpAddr>,
    /// The port at which the rank listens.
    pub port: u16,
    /// The index and the number of ranks on the host, if the launcher says so.
    pub local: Option<[usize; 2]>,
}

/// An answer of rank 0.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The rank is expected, and waits for the members.
    Welcome,
    /// All ranks have come. The secret keeps others from connecting to them.
    Members { secret: u64, members: Vec<Member> },
    /// The rank belongs to another job, which may listen at another port.
    AnotherJob,
    /// The rank is not expected.
    Refused(String),
}

/// The first message of a rank to one that it connects to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Connect {
    pub secret: u64,
    pub rank: usize,
}

pub(super) fn write(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    stream.write_all(&[&MAGIC[..], &length.to_le_bytes(), &json].concat())
}

/// Reads a message.
///
/// # Errors
/// The stream ends or is too slow, or the bytes are not those of a message.
pub(super) fn read<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut start = [0; 12];
    stream.read_exact(&mut start)?;
    let (magic, length) = start.split_at(MAGIC.len());
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    if magic != MAGIC || length > LONGEST {
        return Err(io::Error::other("not a message of emberlm"));
    }
    let mut json = Vec::new();
    stream.take(length.into()).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}
