//! Accounts of the memory of requests, with limits for each request and for all together.
//!
//! Each request has an account from the first byte of its body to the last byte of its answer. Key-value caches are not
//! counted: they are allocated once.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes per unit of the budget. A semaphore has 32-bit counts.
const UNIT: usize = 1 << 10;
/// The reason that memory cannot be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The request would need more memory than one request may use.
    #[error(
        "the request and its answers may take {} KiB of memory, more than the {} KiB that one request may: \
         shorten it, lower n, max_tokens or the number of log-probabilities, or stream the answer",
        .bytes.div_ceil(1 << 10),
        .most >> 10
    )]
    Request {
        /// The memory that it would need in bytes.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// All memory for requests is currently in use.
    #[error(
        "the requests under way take all of the {} KiB of memory that they may; try again later",
        .most >> 10
    )]
    All {
        /// The limit in bytes.
        most: usize,
    },
}

/// The memory budget of all requests. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    each: usize,
    all: usize,
    left: Arc<Semaphore>,
}

/// Memory reserved for a request, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Memory,
    bytes: usize,
    units: Option<OwnedSemaphorePermit>,
}

impl Memory {
    pub fn new(each: usize, all: usize) -> Self {
        let units = (all / UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            each: each.min(all),
            all,
            left: Arc::new(Semaphore::new(units)),
        }
    }

    /// A reservation of nothing yet.
    pub fn account(&self) -> Reservation {
        Reservation {
            memory: self.clone(),
            bytes: 0,
            units: None,
        }
    }

    /// Reserves memory.
    ///
    /// # Errors
    /// Those of [`Reservation::add`].
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, MemoryError> {
        let mut reservation = self.account();
        reservation.add(bytes)?;
        Ok(reservation)
    }
}

impl Reservation {
    /// Reserves more memory.
    ///
    /// # Errors
    /// All together exceeds the limit per request, or `bytes` the remaining memory.
    pub fn add(&mut self, bytes: usize) -> Result<(), MemoryError> {
        let (memory, sum) = (&self.memory, self.bytes.saturating_add(bytes));
        let units = sum.div_ceil(UNIT) - self.bytes.div_ceil(UNIT);
        let units = u32::try_from(units).ok().filter(|_| sum <= memory.each);
        let units = units.ok_or(MemoryError::Request {
            bytes: sum,
            most: memory.each,
        })?;
        let added = Arc::clone(&memory.left).try_acquire_many_owned(units);
        let added = added.map_err(|_| MemoryError::All { most: memory.all })?;
        match &mut self.units {
            Some(units) => units.merge(added),
            None => self.units = Some(added),
        }
        self.bytes = sum;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_grow_up_to_the_limits_and_are_released() {
        let memory = Memory::new(4 * UNIT, 6 * UNIT);
        let mut first = memory.account();
        for _ in 0..4 {
            first.add(UNIT / 2).unwrap();
        }
        // Only whole units are taken.
        assert_eq!(memory.left.available_permits(), 4);
        assert!(first.add(3 * UNIT).is_err());
        let second = memory.reserve(3 * UNIT + 1).unwrap();
        assert_eq!(memory.left.available_permits(), 0);
        assert!(first.add(UNIT).is_err());
        assert_eq!(first.bytes, 2 * UNIT);
        drop(second);
        first.add(2 * UNIT).unwrap();
        drop(first);
        assert_eq!(memory.left.available_permits(), 6);
    }
}
