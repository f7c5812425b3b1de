//! The softmax over keys that come in pieces.

use super::cut::Cut;
use super::mask::{Block, LANES, Piece, QUERIES};
use crate::cpu::vector::{LEAST_EXPONENT, reduced_exp};

/// What a block of queries keeps of the pieces before.
pub struct Softmax {
    /// The largest score.
    pub largest: [f32; QUERIES],
    /// `Σ exp(score - largest)`.
    pub sums: [f32; QUERIES],
    /// What the last piece multiplies with that was weighed before it.
    pub correction: [f32; QUERIES],
}

impl Softmax {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            largest: [f32::NEG_INFINITY; QUERIES],
            sums: [0.0; QUERIES],
            correction: [0.0; QUERIES],
        }
    }

    /// Makes weights `exp(score - largest)` of a piece's scores in their place, 0 where a query does not see a key.
    #[inline(always)]
    pub fn pass(&mut self, block: &Block, piece: &Piece, cut: &Cut, scores: &mut [f32]) {
        const COLUMNS: usize = QUERIES / LANES;
        let scores = scores.as_chunks_mut::<LANES>().0;
        let all_largest = self.largest.as_chunks_mut::<LANES>().0;
        let all_sums = self.sums.as_chunks_mut::<LANES>().0;
        let corrections = self.correction.as_chunks_mut::<LANES>().0;
        // Column by column, so that its largest scores and sums stay in registers.
        for column in 0..COLUMNS {
            let mut largest = all_largest[column];
            for (key, columns) in cut.keys() {
                if columns.contains(&column) {
                    let scores = &mut scores[key * COLUMNS + column];
                    if !piece.all {
                        block.hide(piece.keys.start + key, column, scores);
                    }
                    for (largest, score) in largest.iter_mut().zip(scores) {
                        *largest = if *score > *largest { *score } else { *largest };
                    }
                }
            }
            // A query that has seen nothing yet: -∞ - 0 has a weight of 0, where -∞ - (-∞) is no number.
            let mut shifts = largest;
            for shift in &mut shifts {
                *shift = if *shift == f32::NEG_INFINITY {
                    0.0
                } else {
                    *shift
                };
            }
            let mut sums = all_sums[column];
            let old = all_largest[column].iter().zip(&shifts);
            for ((correction, sum), (old, shift)) in
                corrections[column].iter_mut().zip(&mut sums).zip(old)
            {
                *correction = weight(*old - *shift);
                *sum *= *correction;
            }
            for (key, columns) in cut.keys() {
                let scores = &mut scores[key * COLUMNS + column];
                if columns.contains(&column) {
                    for ((score, shift), sum) in scores.iter_mut().zip(&shifts).zip(&mut sums) {
                        *score = weight(*score - *shift);
                        *sum += *score;
                    }
                } else {
                    *scores = [0.0; LANES];
                }
            }
            all_largest[column] = largest;
            all_sums[column] = sums;
        }
    }
}

/// `e^x` where `x` is not above 0, but for rounding: [`crate::cpu::vector::exp`] without what it does for large numbers.
#[inline(always)]
pub fn weight(x: f32) -> f32 {
    // A comparison that a NaN passes unchanged.
    let clamped = if x < LEAST_EXPONENT {
        LEAST_EXPONENT
    } else {
        x
    };
    let (value, n) = reduced_exp(clamped);
    let value = value * f32::from_bits(n.wrapping_add(127) << 23);
    if x < LEAST_EXPONENT { 0.0 } else { value }
}
