//! Tests that each operation that flex overrides takes much less time than the reference implementation, with
//! interleaved measurements. They catch operations that fall back to the reference implementation, and loops that
//! are no longer vectorized.
//!
//! The bounds are far above the measured ratios, and busy machines get several attempts; see [`assert_within`].
//!
//! `products` has the operations that consist of matrix products, `elementwise` the others.

#![allow(clippy::print_stdout, clippy::print_stderr)]
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod elementwise;
mod products;

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use rayon::ThreadPoolBuilder;

type Float = FloatTensor<Flex>;

/// The number of sequences, and of tokens per sequence.
const BATCH: usize = 4;
const SEQ: usize = 192;
const TOKENS: usize = BATCH * SEQ;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;
const VOCAB: usize = 4096;

/// The number of pairs of measurements per attempt.
const PAIRS: usize = 8;
/// The number of attempts before the test fails, and the time between them. Together they outlast temporary
/// memory contention.
const TRIES: usize = 80;
const PAUSE: Duration = Duration::from_millis(100);
/// The minimum time of a measurement, reached by repeating the operation.
const LEAST: Duration = Duration::from_millis(1);

/// True on CPUs of AMD, on which the bounds were measured.
fn is_amd() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("AuthenticAMD"))
}

/// Asserts that `ours` takes at most `most` times the time of `other`. It compares the minima of interleaved
/// measurements, since other processes only make measurements longer, and adds measurements while the ratio is
/// too high.
fn assert_within<R, S>(
    most: f64,
    mut ours: impl FnMut() -> R + Send,
    mut other: impl FnMut() -> S + Send,
) {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let _guard = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    // A single thread: with several, the measurement would include waiting for busy cores.
    let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let ratio = pool.install(move || {
        let repeats = [repeats(&mut ours), repeats(&mut other)];
        let mut least = [f64::INFINITY; 2];
        let ratio = |least: [f64; 2]| least[0] / least[1];
        for _ in 0..TRIES {
            for _ in 0..PAIRS {
                least[0] = least[0].min(seconds(repeats[0], &mut ours));
                least[1] = least[1].min(seconds(repeats[1], &mut other));
            }
            if ratio(least) <= most {
                break;
            }
            thread::sleep(PAUSE);
        }
        ratio(least)
    });
    eprintln!("{ratio:.3} of the time, at most {most}");
    assert!(ratio <= most, "{ratio:.3} of the time, not {most}");
}

/// The number of repetitions that take [`LEAST`]. Also warms up the operation.
fn repeats<R>(operation: &mut impl FnMut() -> R) -> usize {
    operation();
    let once = seconds(1, operation).max(1e-7);
    (LEAST.as_secs_f64() / once).ceil() as usize
}

/// The mean time of one of `repeats` repetitions.
fn seconds<R>(repeats: usize, operation: &mut impl FnMut() -> R) -> f64 {
    let started = Instant::now();
    for _ in 0..repeats {
        std::hint::black_box(operation());
    }
    started.elapsed().as_secs_f64() / repeats as f64
}

/// Numbers from 0 to 1, since some operations take square roots.
fn numbers<const D: usize>(shape: [usize; D]) -> Float {
    let of = |n: usize| ((n + 1).wrapping_mul(0x9e37_79b9) >> 8 & 0xffff) as f32 / 65536.0;
    let all: Vec<f32> = (0..shape.iter().product()).map(of).collect();
    let data = TensorData::new(all, shape);
    Tensor::<Flex, D>::from_data(data, &Default::default())
        .into_primitive()
        .tensor()
}

fn ids<const D: usize>(shape: [usize; D]) -> IntTensor<Flex> {
    let of = |n: usize| (n * 7 % SEQ) as i64;
    let all: Vec<i64> = (0..shape.iter().product()).map(of).collect();
    let data = TensorData::new(all, shape);
    Tensor::<Flex, D, Int>::from_data(data, &Default::default()).into_primitive()
}
