//! Operations on a tile of logits while it is in the cache.

use std::ops::Range;

use super::rows::{Row, State, slope};
use crate::HeadLossOptions;
use crate::cpu::vector::{LANES, exp, sum, tanh, wide};

/// The distance by which a logit must exceed a row's reference before the reference is raised. Exponentials up to
/// `e^16` are harmless, and a constant reference avoids rescaling the sums.
const SLACK: f32 = 16.0;

/// Replaces the logits `[rows, columns]` of some columns of the vocabulary by `exp(x - reference)`, times the
/// derivative of a soft cap, and updates the state of each row. If a reference is raised, the row of `summed`
/// `[rows, width]`, which is relative to the old reference, is rescaled. `summed` may be empty.
pub fn exponentials(
    logits: &mut [f32],
    columns: Range<usize>,
    targets: &[usize],
    states: &mut [State],
    summed: &mut [f32],
    options: HeadLossOptions,
) {
    let cap = options.soft_cap as f32;
    let width = summed.len() / states.len();
    let rows = logits.chunks_exact_mut(columns.len());
    wide(
        #[inline(always)]
        || {
            for (row, ((logits, target), state)) in rows.zip(targets).zip(states).enumerate() {
                if cap > 0.0 {
                    apply_cap(logits, cap);
                }
                let largest = largest(logits);
                if columns.contains(target) {
                    state.target = logits[target - columns.start];
                }
                if options.label_smoothing != 0.0 {
                    state.logits += f64::from(sum(logits));
                }
                // The first reference is the largest logit, since it starts at -∞.
                if largest > state.reference + SLACK {
                    if state.sum > 0.0 {
                        let scale = exp(state.reference - largest);
                        state.sum *= f64::from(scale);
                        for x in &mut summed[row * width..(row + 1) * width] {
                            *x *= scale;
                        }
                    }
                    state.reference = largest;
                }
                state.sum += if cap > 0.0 {
                    exponentiate::<true>(logits, state.reference, cap)
                } else {
                    exponentiate::<false>(logits, state.reference, cap)
                };
            }
        },
    );
}

/// Replaces the logits of a tile by the gradient of the uncapped logits, without the contribution of the targets:
/// `((1 + 2zL) · p - ε/V) · (1 - (x/c)²)`. The final rows must be known. Used for a soft cap with label
/// smoothing.
pub fn gradients(
    logits: &mut [f32],
    columns: usize,
    rows: &[Row],
    vocab: usize,
    options: HeadLossOptions,
) {
    let cap = options.soft_cap as f32;
    let even = (options.label_smoothing / vocab as f64) as f32;
    let all = logits.chunks_exact_mut(columns);
    wide(
        #[inline(always)]
        || {
            for (logits, row) in all.zip(rows) {
                apply_cap(logits, cap);
                for x in logits {
                    let probability = exp(*x - row.reference) * row.coefficient;
                    *x = (probability - even) * slope(*x, cap);
                }
            }
        },
    );
}

/// The largest element, or -∞ for an empty row. Lanes are folded by halves, since rows of small vocabularies are
/// short.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = *x;
    }
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *x);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = larger(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// `x = exp(x - reference)`, times the derivative of the cap. Returns the sum without the derivative.
#[inline(always)]
fn exponentiate<const CAPPED: bool>(row: &mut [f32], reference: f32, cap: f32) -> f64 {
    let mut sums = [0.0; LANES];
    let mut chunks = row.chunks_exact_mut(LANES);
    let one = |x: &mut f32, sum: &mut f32| {
        let value = exp(*x - reference);
        *sum += value;
        *x = if CAPPED {
            value * slope(*x, cap)
        } else {
            value
        };
    };
    for chunk in &mut chunks {
        for (x, sum) in chunk.iter_mut().zip(&mut sums) {
            one(x, sum);
        }
    }
    for (x, sum) in chunks.into_remainder().iter_mut().zip(&mut sums) {
        one(x, sum);
    }
    f64::from(sum(&sums))
}

/// `x = c tanh(x / c)`.
#[inline(always)]
fn apply_cap(row: &mut [f32], cap: f32) {
    for x in row {
        *x = cap * tanh(*x / cap);
    }
}
