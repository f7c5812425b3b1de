//! What this machine's matrix product reaches.

use std::time::Instant;

use burn::tensor::backend::Backend;
use burn::tensor::{Device, Tensor};

use crate::read::host_read;

/// A product that takes so many seconds is long enough to be measured.
const LONG_ENOUGH: f64 = 0.02;
const SMALLEST: usize = 512;
const LARGEST: usize = 8192;

/// Floating-point operations per second of a product of two square matrices in the backend's default precision, the best
/// of three at a size that takes a while: what training is compared with.
pub fn matrix_product<B: Backend>(device: &Device<B>) -> f64 {
    let mut size = SMALLEST;
    loop {
        let tensor = || Tensor::<B, 2>::ones([size, size], device);
        let (a, b) = (tensor(), tensor());
        // The first product pays for what is made once.
        seconds(&a, &b);
        let best = (0..3)
            .map(|_| seconds(&a, &b))
            .fold(f64::INFINITY, f64::min);
        if best >= LONG_ENOUGH || size >= LARGEST {
            return 2.0 * (size as f64).powi(3) / best;
        }
        size *= 2;
    }
}

fn seconds<B: Backend>(a: &Tensor<B, 2>, b: &Tensor<B, 2>) -> f64 {
    let start = Instant::now();
    let product = a.clone().matmul(b.clone());
    // Reading one element waits for all of them.
    let _ = host_read(product.narrow(0, 0, 1).narrow(1, 0, 1));
    start.elapsed().as_secs_f64()
}
