//! `emberlm-bench machine`: the limits of the speed of every program on this machine, which `cargo xtask bench` records: the CPU's
//! instructions and read bandwidth, and the backend's matrix products.

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use emberlm_kernels::{Precision, TrainingBackend, cpu};
use emberlm_trainer::peak::matrix_product;
use rayon::prelude::*;

use emberlm_cli::shared::{BackendArg, CliError, Job, print_json};

/// Arguments of `machine`.
#[derive(Debug, Args)]
pub struct MachineArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Measures the limits and prints them as JSON.
///
/// # Errors
/// The backend is not compiled in, or its device is missing.
pub fn run(args: MachineArgs) -> Result<(), CliError> {
    let [f32, bf16] = args.backend.choose()?.run(Products)?;
    print_json(&serde_json::json!({
        "instructions": cpu::instructions::of_products(),
        "read_bytes_per_second": read_bandwidth().round(),
        "f32_flops": f32.round(),
        "bf16_flops": bf16.round(),
    }))
}

/// The FLOP/s of matrix products in f32 and bf16.
struct Products;

impl Job for Products {
    type Output = [f64; 2];

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        [Precision::F32, Precision::Bf16]
            .map(|precision| matrix_product::<B::InnerBackend>(precision, &device))
    }
}

/// The read bandwidth of all threads together in bytes per second: the best of five passes over more memory
/// than the caches of most CPUs hold.
pub fn read_bandwidth() -> f64 {
    const BYTES: usize = 1 << 30;
    const PART: usize = (1 << 20) / size_of::<u64>();
    let words = vec![1u64; BYTES / size_of::<u64>()];
    let pass = |_| {
        let start = Instant::now();
        let sums = words
            .par_chunks(PART)
            .map(|part| part.iter().copied().fold(0, u64::wrapping_add));
        black_box(sums.reduce(|| 0, u64::wrapping_add));
        start.elapsed().as_secs_f64()
    };
    BYTES as f64 / (0..5).map(pass).fold(f64::INFINITY, f64::min)
}
