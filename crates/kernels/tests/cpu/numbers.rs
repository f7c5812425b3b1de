//! Random numbers and comparisons.

use emberlm_system::random::SplitMix64;
use proptest::test_runner::{Config, RngSeed};

/// A configuration that draws the same cases in every run. PROPTEST_CASES reduces their number under slow
/// checkers.
pub fn cases(count: u32) -> Config {
    let most = std::env::var("PROPTEST_CASES").map_or(count, |most| most.parse().unwrap());
    let count = count.min(most);
    Config {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..Config::with_cases(count)
    }
}

/// Uniform numbers in ±2 from SplitMix64, determined by the seed.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut random = SplitMix64::new(seed);
    let mut number = || (random.next_u64() >> 40) as f32 / (1 << 22) as f32 - 2.0;
    (0..count).map(|_| number()).collect()
}

/// Asserts that `‖actual - expected‖ / ‖expected‖` is at most `tolerance`.
#[track_caller]
pub fn assert_close(what: &str, actual: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}: elements");
    let pairs = actual.iter().zip(expected);
    let squared: f64 = pairs.map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    let norm: f64 = expected.iter().map(|b| b.powi(2)).sum();
    // A result that cancels to zero is compared relative to 0.01, far below the terms that cancel.
    let error = squared.sqrt() / norm.sqrt().max(1e-2);
    assert!(
        error <= tolerance,
        "{what}: relative error {error:.2e} is above {tolerance:.0e}"
    );
}

/// Runs `f` in pools of 1, 2 and 5 threads and asserts that the results are bit-identical.
#[track_caller]
pub fn same_on_any_threads(f: impl Fn() -> Vec<f32> + Sync) -> Vec<f32> {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(&f)
    };
    let one = on(1);
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for threads in [2, 5] {
        assert!(
            bits(&on(threads)) == bits(&one),
            "{threads} threads give another result than one"
        );
    }
    one
}
