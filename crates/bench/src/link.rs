//! A transport with the bandwidth of a given network.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use emberlm_trainer::{Rank, Transport};

/// A transport that measures the time of its exchanges, which take at least as long as the bytes that a rank sends need on
/// its link. A waiting thread leaves the CPU to others, as with a network card.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

struct Shared {
    inner: Box<dyn Transport>,
    /// `None` for the transport's own.
    bytes_per_second: Option<f64>,
    /// Held by the exchange that uses the link.
    wire: Mutex<()>,
    spent: Mutex<Duration>,
}

impl Link {
    /// A link of `gigabytes` per second in each direction.
    pub fn new(inner: Box<dyn Transport>, gigabytes: Option<f64>) -> Self {
        Self(Arc::new(Shared {
            inner,
            bytes_per_second: gigabytes.map(|gigabytes| gigabytes * 1e9),
            wire: Mutex::default(),
            spent: Mutex::default(),
        }))
    }

    /// The time of exchanges since the last call.
    pub fn take_spent(&self) -> Duration {
        std::mem::take(&mut *self.0.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn exchange(
        &self,
        numbers: usize,
        exchange: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        exchange()?;
        if let Some(bandwidth) = self.0.bytes_per_second {
            let least = Duration::from_secs_f64((4 * numbers) as f64 / bandwidth);
            let _wire = self.0.wire.lock().unwrap_or_else(PoisonError::into_inner);
            thread::sleep(least.saturating_sub(begun.elapsed()));
        }
        *self.0.spent.lock().unwrap_or_else(PoisonError::into_inner) += begun.elapsed();
        Ok(())
    }
}

impl Transport for Link {
    fn rank(&self) -> Rank {
        self.0.inner.rank()
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        self.exchange(sent.len(), || self.0.inner.all_to_all(sent, received))
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        let others = self.rank().world_size() - 1;
        self.exchange(others * own.len(), || {
            self.0.inner.all_gather(own, received)
        })
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.0.inner.all_gather_bytes(own)
    }
}
