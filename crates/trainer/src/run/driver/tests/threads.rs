//! Ranks that are threads of one process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use burn_flex::Flex;
use emberlm_kernels::AddressedVector;

use crate::peers::{AddressTransport, Rank, Transport};

/// The meeting point of ranks that run as threads of one process.
struct Hub {
    barrier: Barrier,
    slots: Mutex<Vec<Vec<u8>>>,
}

/// One of the ranks.
pub(super) struct Threads {
    rank: Rank,
    hub: Arc<Hub>,
    /// The meeting point of the gathers of parameters.
    gathers: Arc<Hub>,
    /// Bytes sent to other ranks.
    pub(super) sent: Arc<AtomicUsize>,
}

impl Threads {
    /// All ranks of a world.
    pub(super) fn all(world_size: usize) -> Vec<Self> {
        let [hub, gathers] = [(), ()].map(|()| Arc::new(Hub::new(world_size)));
        let ranks = (0..world_size).map(|index| Self {
            rank: Rank::new(index, world_size).unwrap(),
            hub: Arc::clone(&hub),
            gathers: Arc::clone(&gathers),
            sent: Arc::default(),
        });
        ranks.collect()
    }

    /// Counts bytes that this rank sends to every other rank.
    fn count(&self, bytes: usize) {
        let others = self.rank.world_size() - 1;
        self.sent.fetch_add(bytes * others, Ordering::Relaxed);
    }
}

impl Hub {
    fn new(world_size: usize) -> Self {
        Self {
            barrier: Barrier::new(world_size),
            slots: Mutex::new(vec![Vec::new(); world_size]),
        }
    }

    /// Hands over a rank's bytes and returns those of all ranks.
    fn exchange(&self, rank: Rank, own: Vec<u8>) -> Vec<Vec<u8>> {
        self.slots.lock().unwrap()[rank.index()] = own;
        self.barrier.wait();
        let all = self.slots.lock().unwrap().clone();
        self.barrier.wait();
        all
    }

    fn exchange_numbers(&self, rank: Rank, own: &[f32]) -> Vec<Vec<f32>> {
        let own = own.iter().flat_map(|x| x.to_le_bytes()).collect();
        let numbers = |bytes: Vec<u8>| {
            let (numbers, _) = bytes.as_chunks::<4>();
            numbers.iter().map(|&x| f32::from_le_bytes(x)).collect()
        };
        self.exchange(rank, own).into_iter().map(numbers).collect()
    }
}

impl Transport for Threads {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        let slice = sent.len() / (self.rank.world_size() - 1);
        self.count(4 * slice);
        let all = self.hub.exchange_numbers(self.rank, sent);
        for (index, of_rank) in all.iter().enumerate() {
            let from = Rank::new(index, all.len()).unwrap();
            if let (Some(to), Some(place)) =
                (self.rank.place_of(index), from.place_of(self.rank.index()))
            {
                received[to * slice..][..slice].copy_from_slice(&of_rank[place * slice..][..slice]);
            }
        }
        Ok(())
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        self.count(4 * own.len());
        let mut all = self.gathers.exchange_numbers(self.rank, own);
        all.remove(self.rank.index());
        received.copy_from_slice(&all.concat());
        Ok(())
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.count(own.len());
        Ok(self.hub.exchange(self.rank, own.to_vec()))
    }
}

/// Only for memory of the host.
impl AddressTransport<Flex> for Threads {
    fn all_to_all_addressed(
        &self,
        sent: &AddressedVector<Flex>,
        received: &mut AddressedVector<Flex>,
    ) -> Result<(), String> {
        self.all_to_all(sent.host().unwrap(), received.host_mut().unwrap())
    }

    fn all_gather_addressed(
        &self,
        own: &AddressedVector<Flex>,
        received: &mut AddressedVector<Flex>,
    ) -> Result<(), String> {
        self.all_gather(own.host().unwrap(), received.host_mut().unwrap())
    }
}
