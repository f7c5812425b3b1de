//! Each operation that flex overrides takes much less time than the reference implementation, interleaved in one run: a guard
//! against an operation that falls back to the reference implementation, or whose loops are no longer vectorised.
//!
//! The bounds lie well above what was measured, and a busy machine gets several tries: see [`assert_within`].
//!
//! `products` is what is made of matrix products, `elementwise` the rest.

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

/// Sequences, tokens of each.
const BATCH: usize = 4;
const SEQ: usize = 192;
const TOKENS: usize = BATCH * SEQ;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;
const VOCAB: usize = 4096;

/// Pairs of measurements in a try.
const PAIRS: usize = 8;
/// Tries before the test fails, and the time between them: together longer than what keeps a machine's memory busy for a while.
const TRIES: usize = 80;
const PAUSE: Duration = Duration::from_millis(100);
/// A measurement repeats its operation for at least so long.
const LEAST: Duration = Duration::from_millis(1);

/// Asserts that `ours` takes at most `most` of the time of `other`: the least of interleaved measurements counts, and there are
/// more of them while it takes longer, since what else runs on the machine only makes a measurement longer.
fn assert_within<R, S>(
    most: f64,
    mut ours: impl FnMut() -> R + Send,
    mut other: impl FnMut() -> S + Send,
) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // On one thread: what waits for a second one, where all are busy, would be measured for its waiting.
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

/// The number of repetitions that fill [`LEAST`]; the operation is warm then.
fn repeats<R>(operation: &mut impl FnMut() -> R) -> usize {
    operation();
    let once = seconds(1, operation).max(1e-7);
    (LEAST.as_secs_f64() / once).ceil() as usize
}

/// Of one of so many repetitions.
fn seconds<R>(repeats: usize, operation: &mut impl FnMut() -> R) -> f64 {
    let started = Instant::now();
    for _ in 0..repeats {
        std::hint::black_box(operation());
    }
    started.elapsed().as_secs_f64() / repeats as f64
}

/// From 0 to 1: some operations take roots.
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
