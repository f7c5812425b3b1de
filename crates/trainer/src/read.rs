//! All transfers of numbers from the device to the trainer on the host.
//!
//! A read waits for all queued work, so on an asynchronous device it stalls both sides. This module counts
//! the reads. It excludes those of the thread that writes checkpoints and of the measurement in
//! [`crate::peak`].

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Tensor, TensorData};

static READS: AtomicUsize = AtomicUsize::new(0);

/// The number of reads so far, in the whole process.
pub fn reads() -> usize {
    READS.load(Ordering::Relaxed)
}

/// Reads a tensor's values.
pub(crate) fn host_read<B: Backend, const D: usize, K: BasicOps<B>>(
    tensor: Tensor<B, D, K>,
) -> TensorData {
    READS.fetch_add(1, Ordering::Relaxed);
    tensor.into_data()
}
