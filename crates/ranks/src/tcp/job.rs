//! This process's membership of a job over TCP, and the trainer's exchanges.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use emberlm_trainer::{Rank, Transport};
use sysinfo::System;

use super::TcpJoinError;
use super::links::{Channel, End, Links};
use super::rendezvous::{self, PATIENCE};
use crate::TcpLaunch;

/// The time in which the first rank that is left ends the others after a loss.
const GRACE: Duration = Duration::from_secs(5);

/// See [`crate::Job`].
pub struct TcpJob {
    transport: TcpTransport,
    local: Rank,
    host: String,
    is_finished: bool,
}

impl TcpJob {
    /// See [`crate::Job::join`].
    ///
    /// # Errors
    /// The other ranks cannot be reached.
    pub fn join(
        launch: &TcpLaunch,
        note: impl Fn(&str),
        lost: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Self, TcpJoinError> {
        let host = System::host_name().unwrap_or_default();
        let meeting = rendezvous::meet(launch, &host, PATIENCE, note)?;
        let local = meeting.local_rank(launch.rank);
        let hosts: Vec<String> = meeting.members.into_iter().map(|of| of.host).collect();
        let (own, size) = (launch.rank, launch.world_size);
        let is_first = Arc::new(AtomicBool::new(true));
        let ended = move |end, links: &Links| match end {
            End::Aborted(code) => {
                // So that the end of this process is no loss to those that the abort has not reached yet.
                links.abort(code);
                std::process::exit(code.into())
            }
            // The others end because of the first one.
            End::Lost(..) if !is_first.swap(false, Ordering::Relaxed) => {}
            // The first rank that is left ends the others.
            End::Lost(rank, reason) if own == usize::from(rank == 0) => {
                lost(&format!(
                    "rank {rank} of {size} on {} is lost: {reason}",
                    hosts[rank]
                ));
                links.abort(1);
                std::process::exit(1);
            }
            End::Lost(..) => {
                thread::sleep(GRACE);
                std::process::exit(1);
            }
        };
        let failed = |error: std::io::Error| TcpJoinError::Connection {
            rank: launch.rank,
            reason: error.to_string(),
        };
        Ok(Self {
            transport: TcpTransport {
                rank: Rank::new(launch.rank, size).unwrap_or(Rank::SINGLE),
                links: Links::new(meeting.streams, ended).map_err(failed)?,
            },
            local,
            host,
            is_finished: false,
        })
    }

    /// See [`crate::Job::rank`].
    pub fn rank(&self) -> Rank {
        self.transport.rank
    }

    /// See [`crate::Job::local_rank`].
    pub fn local_rank(&self) -> Rank {
        self.local
    }

    /// See [`crate::Job::host`].
    pub fn host(&self) -> &str {
        &self.host
    }

    /// See [`crate::Job::transport`].
    pub fn transport(&self) -> TcpTransport {
        self.transport.clone()
    }

    /// See [`crate::Job::wait_for_all`].
    pub fn wait_for_all(&self) {
        // A rank that is lost ends this process.
        let _ = self.transport.gather(Channel::Barrier, &[]);
    }

    /// See [`crate::Job::finish`].
    pub fn finish(mut self) {
        self.wait_for_all();
        self.transport.links.leave();
        self.is_finished = true;
    }

    /// See [`crate::Job::abort`].
    pub fn abort(&self, code: u8) -> ! {
        self.transport.links.abort(code);
        std::process::exit(code.into())
    }
}

impl Drop for TcpJob {
    fn drop(&mut self) {
        if !self.is_finished {
            self.abort(1);
        }
    }
}

/// The exchanges of numbers in f32, little-endian.
#[derive(Clone, Debug)]
pub struct TcpTransport {
    rank: Rank,
    links: Arc<Links>,
}

impl TcpTransport {
    /// The messages of all ranks, in rank order.
    fn gather(&self, channel: Channel, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        for rank in self.links.others_after(self.rank.index()) {
            self.links.send(rank, channel, own)?;
        }
        (0..self.rank.world_size())
            .map(|rank| match rank == self.rank.index() {
                true => Ok(own.to_vec()),
                false => self.links.receive(rank, channel),
            })
            .collect()
    }

    /// Receives a slice of each other rank, in rank order.
    fn receive(&self, channel: Channel, received: &mut [f32]) -> Result<(), String> {
        let others = self.rank.world_size() - 1;
        let slices = received.chunks_exact_mut((received.len() / others.max(1)).max(1));
        for (rank, slice) in self.links.others().zip(slices) {
            let bytes = self.links.receive(rank, channel)?;
            let (numbers, rest) = bytes.as_chunks::<4>();
            if numbers.len() != slice.len() || !rest.is_empty() {
                let (found, expected) = (bytes.len(), 4 * slice.len());
                return Err(format!(
                    "rank {rank} sent {found} bytes instead of {expected}"
                ));
            }
            for (number, bytes) in slice.iter_mut().zip(numbers) {
                *number = f32::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }
}

/// The bytes of numbers.
fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

impl Transport for TcpTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        let others = self.rank.world_size() - 1;
        let length = sent.len() / others.max(1);
        for rank in self.links.others_after(self.rank.index()) {
            if let Some(place) = self.rank.place_of(rank) {
                let slice = &sent[place * length..][..length];
                self.links.send(rank, Channel::Numbers, &bytes(slice))?;
            }
        }
        self.receive(Channel::Numbers, received)
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        let own = bytes(own);
        for rank in self.links.others_after(self.rank.index()) {
            self.links.send(rank, Channel::Gathers, &own)?;
        }
        self.receive(Channel::Gathers, received)
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.gather(Channel::Bytes, own)
    }
}
