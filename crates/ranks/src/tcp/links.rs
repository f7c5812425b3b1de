//! The connections of a rank with all others.
//!
//! A thread for each connection takes what arrives, so that no exchange waits for another and the end of a rank is noticed at
//! once. A frame is a kind, a length and as many bytes.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two signs of life, and the time without one after which a rank counts as lost.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LIFE: Duration = Duration::from_secs(120);
/// The time that a rank waits for a connection to abort the others, or for them to leave.
const FAREWELL: Duration = Duration::from_secs(10);

/// The exchanges, each of which has its own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Numbers,
    Gathers,
    Bytes,
    Barrier,
}

const CHANNELS: usize = 4;

/// The kinds of frames after those of the channels.
const HEART: u8 = 4;
const ABORT: u8 = 5;
const LEAVE: u8 = 6;

/// The reason for which a rank ends this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It aborts the job with this exit code.
    Aborted(u8),
    /// Its connection has ended, for this reason.
    Lost(usize, String),
}

/// Connections with all other ranks.
#[derive(Debug)]
pub(super) struct Links {
    /// By rank; `None` for this rank.
    peers: Vec<Option<Mutex<TcpStream>>>,
    inbox: Arc<Inbox>,
    /// True when this rank leaves or aborts the job. It sends no signs of life from then on, which would reach closed
    /// connections, and no rank counts as lost any more.
    is_ending: AtomicBool,
}

#[derive(Debug)]
struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State {
    /// The messages that have arrived, by rank and channel.
    messages: Vec<[VecDeque<Vec<u8>>; CHANNELS]>,
    /// The ranks that have left the job at its end.
    left: Vec<bool>,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more comes from a rank.
    fn leaves(&self, rank: usize) {
        self.state().left[rank] = true;
        self.arrived.notify_all();
    }
}

impl Links {
    /// Takes the connections. `ended` is called on another thread, at most once for each rank.
    pub fn new(
        streams: Vec<Option<TcpStream>>,
        ended: impl Fn(End, &Self) + Clone + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let count = streams.len();
        let inbox = Arc::new(Inbox {
            state: Mutex::new(State {
                messages: (0..count).map(|_| Default::default()).collect(),
                left: vec![false; count],
            }),
            arrived: Condvar::new(),
        });
        let mut received = Vec::new();
        for (rank, stream) in streams.iter().enumerate() {
            if let Some(stream) = stream {
                stream.set_read_timeout(Some(LIFE))?;
                received.push((rank, stream.try_clone()?));
            }
        }
        let peers = streams.into_iter().map(|stream| stream.map(Mutex::new));
        let links = Arc::new(Self {
            peers: peers.collect(),
            inbox,
            is_ending: AtomicBool::new(false),
        });
        for (rank, stream) in received {
            let (inbox, ended, links) =
                (links.inbox.clone(), ended.clone(), Arc::downgrade(&links));
            thread::Builder::new()
                .name(format!("rank {rank}"))
                .spawn(move || {
                    let (end, links) = (take_all(rank, stream, &inbox), links.upgrade());
                    match (end, links) {
                        (Some(End::Lost(..)), Some(links))
                            if links.is_ending.load(Ordering::SeqCst) =>
                        {
                            inbox.leaves(rank);
                        }
                        (Some(end), Some(links)) => ended(end, &links),
                        _ => {}
                    }
                })?;
        }
        let beating = Arc::downgrade(&links);
        thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || {
                while let Some(links) = beating.upgrade() {
                    links.beat();
                    drop(links);
                    thread::sleep(HEARTBEAT);
                }
            })?;
        Ok(links)
    }

    /// A sign of life to all ranks, unless something is being sent, which is one.
    fn beat(&self) {
        for peer in self.peers.iter().flatten() {
            if let Ok(mut stream) = peer.try_lock()
                && !self.is_ending.load(Ordering::SeqCst)
            {
                // The thread that receives notices a failure.
                let _ = write_frame(&mut stream, HEART, &[]);
            }
        }
    }

    /// The other ranks.
    pub fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.peers.len()).filter(|&rank| self.peers[rank].is_some())
    }

    /// The other ranks from the one after `rank` on, so that not all send to the same one first.
    pub fn others_after(&self, rank: usize) -> impl Iterator<Item = usize> {
        let count = self.peers.len();
        (1..count).map(move |distance| (rank + distance) % count)
    }

    /// Sends a message to a rank.
    pub fn send(&self, rank: usize, channel: Channel, message: &[u8]) -> Result<(), String> {
        let Some(peer) = &self.peers[rank] else {
            return Ok(());
        };
        let mut stream = peer.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&mut stream, channel as u8, message).map_err(|error| {
            drop(stream);
            // The thread that receives notices the loss, too, and ends the process.
            thread::sleep(FAREWELL);
            format!("cannot send to rank {rank}: {error}")
        })
    }

    /// The next message of a rank.
    pub fn receive(&self, rank: usize, channel: Channel) -> Result<Vec<u8>, String> {
        let mut state = self.inbox.state();
        loop {
            if let Some(message) = state.messages[rank][channel as usize].pop_front() {
                return Ok(message);
            }
            if state.left[rank] {
                return Err(format!("rank {rank} has left the job"));
            }
            let woken = self.inbox.arrived.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the other ranks' processes with this exit code.
    pub fn abort(&self, code: u8) {
        self.is_ending.store(true, Ordering::SeqCst);
        let end = Instant::now() + FAREWELL;
        for peer in self.peers.iter().flatten() {
            // Another thread may wait for a rank that does not take anything any more.
            while let Err(TryLockError::WouldBlock) = peer.try_lock().map(|mut stream| {
                let _ = stream.set_write_timeout(Some(FAREWELL));
                let _ = write_frame(&mut stream, ABORT, &[code]);
            }) && Instant::now() < end
            {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Leaves the job. Waits for the others, whose last frames would be lost with an open connection.
    pub fn leave(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        for peer in self.peers.iter().flatten() {
            let mut stream = peer.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = write_frame(&mut stream, LEAVE, &[]);
        }
        let end = Instant::now() + FAREWELL;
        let mut state = self.inbox.state();
        while self.others().any(|rank| !state.left[rank]) {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            let woken = self.inbox.arrived.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        for peer in self.peers.iter().flatten() {
            let stream = peer.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn write_frame(stream: &mut TcpStream, kind: u8, message: &[u8]) -> io::Result<()> {
    let mut start = [kind; 9];
    start[1..].copy_from_slice(&(message.len() as u64).to_le_bytes());
    match message.len() {
        // In one packet.
        0..1024 => stream.write_all(&[&start[..], message].concat()),
        _ => {
            stream.write_all(&start)?;
            stream.write_all(message)
        }
    }
}

/// Takes the frames of a rank until it leaves or ends the job.
fn take_all(rank: usize, mut stream: TcpStream, inbox: &Inbox) -> Option<End> {
    let lost = |reason: String| Some(End::Lost(rank, reason));
    loop {
        let (kind, message) = match read_frame(&mut stream) {
            Ok(frame) => frame,
            Err(error) => {
                return lost(match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("no sign of life for {} s", LIFE.as_secs())
                    }
                    _ => "its connection has ended".to_owned(),
                });
            }
        };
        match (kind, message.as_slice()) {
            (HEART, _) => {}
            (ABORT, &[code]) => return Some(End::Aborted(code)),
            (LEAVE, _) => {
                inbox.leaves(rank);
                return None;
            }
            (channel, _) if usize::from(channel) < CHANNELS => {
                inbox.state().messages[rank][usize::from(channel)].push_back(message);
                inbox.arrived.notify_all();
            }
            (kind, _) => return lost(format!("it sent a frame of the unknown kind {kind}")),
        }
    }
}

fn read_frame(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut start = [0; 9];
    stream.read_exact(&mut start)?;
    let [kind, length @ ..] = start;
    let length = u64::from_le_bytes(length);
    // Grows with what arrives.
    let mut message = Vec::new();
    if length > 0 {
        stream.take(length).read_to_end(&mut message)?;
        if message.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((kind, message))
}
