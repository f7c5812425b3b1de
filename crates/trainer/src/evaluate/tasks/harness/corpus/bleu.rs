//! BLEU of a corpus (Papineni et al. 2002), as sacrebleu's `corpus_bleu` with its defaults.

use super::ngrams::Ngrams;
use super::tokenizer_13a::tokenized;
use super::words::{is_space, words};

/// The longest n-grams.
const ORDERS: usize = 4;
/// The logarithm of a precision of 0.
const LOG_OF_ZERO: f64 = -9_999_999_999.0;

/// The tokens of the answer and of the target, and of each order the shared n-grams and those of the answer.
pub(super) fn counts(answer: &str, target: &str) -> Vec<u64> {
    let [answer, target] = [answer, target].map(|text| tokenized(text.trim_end_matches(is_space)));
    let [answer, target] = [&answer, &target].map(|text| words(text).collect::<Vec<&str>>());
    let mut counts = vec![answer.len() as u64, target.len() as u64];
    for order in 1..=ORDERS {
        let of_answer = Ngrams::of(&answer, order);
        counts.push(of_answer.shared(&Ngrams::of(&target, order)));
        counts.push(of_answer.total);
    }
    counts
}

/// The score, from 0 to 100. An order without shared n-grams has half the precision of the one before, by NIST's smoothing.
pub(super) fn score(counts: &[u64]) -> f64 {
    let [answer, target, orders @ ..] = counts else {
        return 0.0;
    };
    let orders = orders.chunks_exact(2);
    if orders.clone().all(|order| order[0] == 0) {
        return 0.0;
    }
    let penalty = match answer < target {
        true => (1.0 - *target as f64 / *answer as f64).exp(),
        false => 1.0,
    };
    let mut smoothing = 1.0;
    let logs = orders.map(|order| match (order[0], order[1] as f64) {
        (_, 0.0) => LOG_OF_ZERO,
        (0, total) => {
            smoothing *= 2.0;
            (100.0 / (smoothing * total)).ln()
        }
        (shared, total) => (100.0 * shared as f64 / total).ln(),
    });
    penalty * (logs.sum::<f64>() / ORDERS as f64).exp()
}
