//! Standard errors of functions of summed counts by the bootstrap (Efron 1979), with the samples that lm-evaluation-harness
//! draws: `random.choices` of the items, with a new seed for every thousand samples.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::python_random::PythonRandom;
use crate::report::spread::Spread;

/// Samples of a seed.
const SAMPLES_OF_SEED: usize = 1000;

/// The sums of the counts of items.
pub(super) fn sum(items: &[Vec<u64>]) -> Vec<u64> {
    let mut sums = vec![0; items.first().map_or(0, Vec::len)];
    for item in items {
        add(&mut sums, item, 1);
    }
    sums
}

fn add(sums: &mut [u64], counts: &[u64], times: u64) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += times * count;
    }
}

/// The standard deviation of `score` over `samples` samples of as many items, which is the standard error of `score` of all
/// items. `None` for a single item.
pub(super) fn stderr(
    items: &[Vec<u64>],
    samples: usize,
    score: impl Fn(&[u64]) -> f64 + Sync,
) -> Option<f64> {
    if items.len() < 2 {
        return None;
    }
    // Many items have equal counts, if these are of choices.
    let mut distinct: BTreeMap<&[u64], usize> = BTreeMap::new();
    let kinds: Vec<usize> = items
        .iter()
        .map(|item| {
            let next = distinct.len();
            *distinct.entry(item).or_insert(next)
        })
        .collect();
    let of_seed = samples.min(SAMPLES_OF_SEED);
    let scores = |seed: usize| {
        let mut random = PythonRandom::new(seed as u64);
        let mut drawn = vec![0; distinct.len()];
        let mut sums = vec![0; items[0].len()];
        let mut next = || {
            drawn.fill(0);
            for _ in 0..items.len() {
                drawn[kinds[random.choice(items.len())]] += 1;
            }
            sums.fill(0);
            for (counts, &kind) in &distinct {
                add(&mut sums, counts, drawn[kind]);
            }
            score(&sums)
        };
        (0..of_seed).map(|_| next()).collect::<Vec<f64>>()
    };
    let scores: Vec<f64> = (0..samples / of_seed)
        .into_par_iter()
        .flat_map_iter(scores)
        .collect();
    Some(Spread::of(scores.iter().copied()).deviation)
}
