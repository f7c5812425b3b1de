//! The one way by which the trainer's numbers come from a device to the host.
//!
//! Reading waits for all that the device was asked for before, so that where it works behind the host each read is a
//! pause of both. What is read here is counted; what a checkpoint's own thread writes is not, nor the one measurement of the
//! machine's [`crate::peak`].

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Tensor, TensorData};

static READS: AtomicUsize = AtomicUsize::new(0);

/// Reads so far, in the whole process.
pub fn reads() -> usize {
    READS.load(Ordering::Relaxed)
}

/// The tensor's values on the host.
pub(crate) fn host_read<B: Backend, const D: usize, K: BasicOps<B>>(
    tensor: Tensor<B, D, K>,
) -> TensorData {
    READS.fetch_add(1, Ordering::Relaxed);
    tensor.into_data()
}

/// A tensor of one number, on the host.
pub(crate) fn host_number<B: Backend>(tensor: Tensor<B, 1>) -> f64 {
    let data = host_read(tensor);
    data.iter::<f64>().next().unwrap_or(f64::NAN)
}
