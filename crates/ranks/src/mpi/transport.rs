//! The trainer's exchanges over MPI's collective operations.
//!
//! Gathers have a separate communicator, so that they may run while another thread exchanges other values. Only one
//! thread at a time is in a call of the library ([`calls`]); all waits are polls.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use emberlm_kernels::{AddressedVector, Backend, SharedCommunicator};
use emberlm_trainer::{AddressTransport, Rank, Transport};
use mpi::Count;
use mpi::collective::CommunicatorCollectives;
use mpi::datatype::{Partition, PartitionMut};
use mpi::request::{Request, Scope, scope};
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::traits::{Buffer, BufferMut};

/// The waits of an exchange for the other ranks: it polls, and after a while it sleeps between two polls, so that it does
/// not occupy a CPU core.
struct WaitPolicy {
    polling: Duration,
    pause: Duration,
}

/// Of exchanges of numbers. They run during the backward pass, which needs the CPU. MPI makes progress only in calls, so
/// pauses are short.
const NUMBERS: WaitPolicy = WaitPolicy {
    polling: Duration::from_micros(20),
    pause: Duration::from_micros(20),
};

/// Of waits that may take long, as for rank 0 while it samples.
const LONG: WaitPolicy = WaitPolicy {
    polling: Duration::from_millis(2),
    pause: Duration::from_micros(200),
};

/// Exchanges with all processes of the job.
#[derive(Clone, Debug)]
pub struct MpiTransport {
    rank: Rank,
}

impl MpiTransport {
    pub(crate) fn new(rank: Rank) -> Self {
        Self { rank }
    }
}

/// The communicator of gathers. Never freed: MPI does so when the job ends.
static GATHERS: OnceLock<SharedCommunicator> = OnceLock::new();

/// Creates the communicator of gathers. All processes of the job must call this when they join.
pub(crate) fn create_communicators() {
    let create = || SharedCommunicator::new(SimpleCommunicator::world().duplicate());
    GATHERS.get_or_init(create);
}

/// Lets this thread call the library until the result is dropped.
fn calls() -> MutexGuard<'static, ()> {
    static CALLS: Mutex<()> = Mutex::new(());
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until an operation is complete.
fn wait<'a, D: ?Sized, S: Scope<'a>>(mut request: Request<'a, D, S>, policy: WaitPolicy) {
    let begun = Instant::now();
    loop {
        let tested = {
            let _calls = calls();
            request.test()
        };
        match tested {
            Ok(_) => return,
            Err(pending) => request = pending,
        }
        match begun.elapsed() < policy.polling {
            true => thread::yield_now(),
            false => thread::sleep(policy.pause),
        }
    }
}

/// Waits until all processes of the job wait here.
pub(crate) fn wait_for_all() {
    let world = SimpleCommunicator::world();
    let request = {
        let _calls = calls();
        world.immediate_barrier()
    };
    wait(request, LONG);
}

/// The slices that a rank sends in an exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Another slice to each of the others.
    Slices,
    /// The same slice to all.
    OneSlice,
}

/// Exchanges slices of equal length with every other rank. MPI's operations for equal slices would also copy the slice of a
/// rank to itself.
fn exchange<S: Buffer + ?Sized, R: BufferMut + ?Sized>(
    communicator: &SimpleCommunicator,
    rank: Rank,
    which: Sent,
    sent: &S,
    received: &mut R,
) {
    let slice = received.count() / (rank.world_size() as Count - 1).max(1);
    let places = (0..rank.world_size()).map(|index| rank.place_of(index));
    let counts: Vec<Count> = places
        .clone()
        .map(|place| place.map_or(0, |_| slice))
        .collect();
    let received_at: Vec<Count> = places
        .map(|place| place.map_or(0, |place| place as Count * slice))
        .collect();
    let sent_at = match which {
        Sent::Slices => received_at.clone(),
        Sent::OneSlice => vec![0; counts.len()],
    };
    let sent = Partition::new(sent, &counts[..], &sent_at[..]);
    let mut received = PartitionMut::new(received, &counts[..], &received_at[..]);
    scope(|scope| {
        let request = {
            let _calls = calls();
            communicator.immediate_all_to_all_varcount_into(scope, &sent, &mut received)
        };
        wait(request, NUMBERS);
    });
}

/// The communicator of gathers.
fn gathers() -> Result<&'static SimpleCommunicator, String> {
    let communicator = GATHERS.get().map(SharedCommunicator::get);
    communicator.ok_or_else(|| "the job was not joined".to_owned())
}

impl Transport for MpiTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        let world = SimpleCommunicator::world();
        exchange(&world, self.rank, Sent::Slices, sent, received);
        Ok(())
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        exchange(gathers()?, self.rank, Sent::OneSlice, own, received);
        Ok(())
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let world = SimpleCommunicator::world();
        let length = i32::try_from(own.len()).map_err(|_| format!("{} bytes", own.len()))?;
        let mut lengths = vec![0_i32; self.rank.world_size()];
        scope(|scope| {
            let lengths = &mut lengths[..];
            let request = {
                let _calls = calls();
                world.immediate_all_gather_into(scope, &length, lengths)
            };
            wait(request, LONG);
        });
        let mut places = Vec::with_capacity(lengths.len());
        let mut total = 0_i32;
        for &length in &lengths {
            places.push(total);
            total = total
                .checked_add(length)
                .ok_or("more than 2 GiB of descriptions")?;
        }
        if total == 0 {
            // MPI refuses buffers without an address.
            return Ok(vec![Vec::new(); lengths.len()]);
        }
        let mut all = vec![0_u8; total as usize];
        let mut partition = PartitionMut::new(&mut all[..], &lengths[..], &places[..]);
        scope(|scope| {
            let request = {
                let _calls = calls();
                world.immediate_all_gather_varcount_into(scope, own, &mut partition)
            };
            wait(request, NUMBERS);
        });
        let mut rest = &all[..];
        let texts = lengths.iter().map(|&length| {
            let own;
            (own, rest) = rest.split_at(length as usize);
            own.to_vec()
        });
        Ok(texts.collect())
    }
}

/// The memory of a GPU requires a library that accesses it, as a CUDA-aware one does.
impl<B: Backend> AddressTransport<B> for MpiTransport {
    fn all_to_all_addressed(
        &self,
        sent: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String> {
        let world = SimpleCommunicator::world();
        exchange(&world, self.rank, Sent::Slices, sent, received);
        Ok(())
    }

    fn all_gather_addressed(
        &self,
        own: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String> {
        exchange(gathers()?, self.rank, Sent::OneSlice, own, received);
        Ok(())
    }
}
