//! Measures this machine's peak matrix multiplication throughput and the bandwidth of the device memory.

use std::time::Instant;

use burn::tensor::{DType, Device, Tensor};
use emberlm_kernels::{Backend, Precision, ops};

/// The shortest product, in seconds, that can be timed reliably.
const MIN_PRODUCT_SECONDS: f64 = 0.02;
const SMALLEST: usize = 512;
const LARGEST: usize = 8192;

/// The peak FLOP/s of a product of two square matrices in this precision: the best of three, at a size that
/// takes at least 20 ms. Training reports its utilization relative to it. Releases the device memory of the
/// matrices.
pub fn matrix_product<B: Backend>(precision: Precision, device: &Device<B>) -> f64 {
    let best = best_of_sizes::<B>(precision, device);
    if B::is_asynchronous() {
        B::memory_cleanup(device);
    }
    best
}

/// The bandwidth of the device memory in bytes per second: the best of five passes that read and write a
/// vector, at a size of 1 GiB or one that takes at least 5 ms. `None` if the device shares the CPU's memory.
pub fn memory_bandwidth<B: Backend>(device: &Device<B>) -> Option<f64> {
    const SMALLEST_BYTES: u64 = 64 << 20;
    const LARGEST_BYTES: u64 = 1 << 30;
    const MIN_PASS_SECONDS: f64 = 0.005;
    if !B::is_asynchronous() {
        return None;
    }
    let largest = B::largest_buffer(device).unwrap_or(u64::MAX);
    let mut bytes = SMALLEST_BYTES.min(largest);
    loop {
        let best = pass_seconds::<B>(bytes / size_of::<f32>() as u64, device);
        if best >= MIN_PASS_SECONDS || 2 * bytes > largest.min(LARGEST_BYTES) {
            B::memory_cleanup(device);
            return Some(2.0 * bytes as f64 / best);
        }
        bytes *= 2;
    }
}

/// The shortest time of five passes that add 1 to each element, after one warm-up pass.
fn pass_seconds<B: Backend>(elements: u64, device: &Device<B>) -> f64 {
    // Reading one element waits for the pass to complete.
    let wait = |tensor: &Tensor<B, 1>| drop(tensor.clone().narrow(0, 0, 1).into_data());
    let mut tensor = Tensor::<B, 1>::ones([elements as usize], device);
    wait(&tensor);
    let mut best = f64::INFINITY;
    for pass in 0..=5 {
        let start = Instant::now();
        tensor = tensor + 1.0;
        wait(&tensor);
        if pass > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}

fn best_of_sizes<B: Backend>(precision: Precision, device: &Device<B>) -> f64 {
    let mut size = SMALLEST;
    loop {
        let tensor = || Tensor::<B, 2>::ones([size, size], device);
        let product = Product::new(tensor(), tensor(), precision);
        // The first product includes one-time initialization.
        product.seconds();
        let best = (0..3)
            .map(|_| product.seconds())
            .fold(f64::INFINITY, f64::min);
        if best >= MIN_PRODUCT_SECONDS || size >= LARGEST {
            return 2.0 * (size as f64).powi(3) / best;
        }
        size *= 2;
    }
}

/// Two matrices to multiply.
struct Product<B: Backend> {
    a: Tensor<B, 2>,
    b: Tensor<B, 2>,
    precision: Precision,
}

impl<B: Backend> Product<B> {
    /// On an asynchronous device, rounds the factors once in advance, so that only the product is measured.
    /// The CPU's kernels round factors while reading them.
    fn new(a: Tensor<B, 2>, b: Tensor<B, 2>, precision: Precision) -> Self {
        let rounded = B::is_asynchronous() && B::multiplies_in(precision, &a.device());
        let kind = match precision {
            Precision::Bf16 if rounded => DType::BF16,
            Precision::F16 if rounded => DType::F16,
            _ => return Self { a, b, precision },
        };
        Self {
            a: a.cast(kind),
            b: b.cast(kind),
            precision: Precision::F32,
        }
    }

    /// The time of one product, averaged over several if the device is asynchronous and queueing takes time
    /// too.
    fn seconds(&self) -> f64 {
        let count = if B::is_asynchronous() { 8 } else { 1 };
        let multiplied = || {
            let (a, b) = (self.a.clone(), self.b.clone());
            match self.precision {
                Precision::F32 => ops::matmul(a, b),
                precision => ops::linear(a, b, None, None, precision),
            }
        };
        let start = Instant::now();
        for _ in 1..count {
            multiplied();
        }
        // Reading one element waits for all products. This does not use `host_read`, which counts reads:
        // whether a run gets as far as this measurement depends on the machine.
        let _ = multiplied().narrow(0, 0, 1).narrow(1, 0, 1).into_data();
        start.elapsed().as_secs_f64() / f64::from(count)
    }
}
