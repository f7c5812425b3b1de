//! The softmax over keys that come in pieces.

use super::cut::Cut;
use super::mask::{Block, LANES, Piece, QUERIES};
use crate::cpu::vector::exp;

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
        let scores = scores.as_chunks_mut::<LANES>().0;
        let mut largest = self.largest;
        {
            let largest = largest.as_chunks_mut::<LANES>().0;
            for (key, columns) in cut.keys() {
                let row = &mut scores[key * (QUERIES / LANES)..][..QUERIES / LANES];
                for column in columns {
                    let scores = &mut row[column];
                    if !piece.all {
                        block.hide(piece.keys.start + key, column * LANES, scores);
                    }
                    for (largest, score) in largest[column].iter_mut().zip(scores) {
                        *largest = if *score > *largest { *score } else { *largest };
                    }
                }
            }
        }
        // A query that has seen nothing yet: -∞ - 0 has a weight of 0, where -∞ - (-∞) is no number.
        let mut shift = largest;
        for shift in &mut shift {
            *shift = if *shift == f32::NEG_INFINITY {
                0.0
            } else {
                *shift
            };
        }
        let old = self.largest.iter().zip(&shift);
        for ((correction, sum), (old, shift)) in
            self.correction.iter_mut().zip(&mut self.sums).zip(old)
        {
            *correction = exp(*old - *shift);
            *sum *= *correction;
        }
        self.largest = largest;
        let shift = shift.as_chunks::<LANES>().0;
        let sums = self.sums.as_chunks_mut::<LANES>().0;
        for (key, columns) in cut.keys() {
            let row = &mut scores[key * (QUERIES / LANES)..][..QUERIES / LANES];
            row[..columns.start].fill([0.0; LANES]);
            row[columns.end..].fill([0.0; LANES]);
            for column in columns {
                let scores = row[column].iter_mut().zip(&shift[column]);
                for ((score, shift), sum) in scores.zip(&mut sums[column]) {
                    *score = exp(*score - *shift);
                    *sum += *score;
                }
            }
        }
    }
}
