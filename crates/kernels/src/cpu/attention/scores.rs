//! Soft cap, bias and padding of scores: for a tile before its softmax, for a row when there are few queries, and
//! in the backward pass.
//!
//! Each is a separate pass over a tile in the cache, compiled separately, so attention without them pays nothing.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::Call;
use super::mask::{LANES, WEIGHTS_ROW};
use super::visibility::Visibility;
use crate::cpu::parallel::Shared;
use crate::cpu::vector::tanh;

/// The soft cap, bias and padding of one head of one sequence.
#[derive(Clone, Copy)]
pub struct ScoreTerms<'a> {
    soft_cap: Option<f32>,
    /// `[q_len, k_len]`.
    bias: Option<&'a [f32]>,
    /// `[k_len]`.
    padding: Option<&'a [bool]>,
    k_len: usize,
}

impl<'a> ScoreTerms<'a> {
    /// The terms of head `h` of sequence `b`, or `None` if the scores are plain `scale · q kᵀ`.
    #[inline(always)]
    pub fn new(call: &Call<'a>, b: usize, h: usize) -> Option<Self> {
        let (shape, mask) = (call.shape, &call.mask);
        let soft_cap = call.options.soft_cap;
        if soft_cap.is_none() && mask.bias.is_none() && mask.padding.is_none() {
            return None;
        }
        let scores = shape.q_len * shape.k_len;
        Some(Self {
            soft_cap: soft_cap.map(|cap| cap as f32),
            bias: mask.bias.map(|of| &of[h * scores..(h + 1) * scores]),
            padding: mask.padding.map(|of| &of[b * shape.k_len..][..shape.k_len]),
            k_len: shape.k_len,
        })
    }

    /// Applies cap, bias and padding to the scores of a query for the keys from `first` on. Scores of -∞ stay
    /// unchanged.
    #[inline(never)]
    pub fn row(&self, query: usize, first: usize, scores: &mut [f32]) {
        for (key, score) in scores.iter_mut().enumerate() {
            let key = first + key;
            if *score == f32::NEG_INFINITY {
                continue;
            }
            if let Some(cap) = self.soft_cap {
                *score = cap * tanh(*score / cap);
            }
            if let Some(bias) = self.bias {
                *score += bias[query * self.k_len + key];
            }
            if self.padding.is_some_and(|seen| !seen[key]) {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

/// A tile of queries and keys.
#[derive(Clone, Copy)]
pub struct Tile<'a> {
    /// The first query.
    pub from: usize,
    /// The number of queries.
    pub count: usize,
    /// The first key.
    pub first_key: usize,
    pub visibility: &'a Visibility,
}

impl Tile<'_> {
    /// The queries in a range of columns, relative to the tile.
    fn queries(&self, columns: &Range<usize>) -> Range<usize> {
        columns.start * LANES..(columns.end * LANES).min(self.count)
    }
}

/// Applies cap, bias and padding to the scores of a tile, where they are computed. If there is a cap
/// and `slopes` is not empty, the derivatives `1 - (C / cap)²` of the cap are stored there in the layout of the
/// scores.
pub struct Apply<'a> {
    pub terms: ScoreTerms<'a>,
    pub tile: Tile<'a>,
    pub scores: &'a mut [f32],
    pub slopes: &'a mut [f32],
}

impl WithSimd for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self {
            terms,
            tile,
            scores,
            slopes,
        } = self;
        for rows in tile.visibility.key_rows() {
            let columns = rows.columns.start * LANES..rows.columns.end * LANES;
            let place =
                |key: usize| key * WEIGHTS_ROW + columns.start..key * WEIGHTS_ROW + columns.end;
            if let Some(cap) = terms.soft_cap {
                for key in rows.keys.clone() {
                    let scores = &mut scores[place(key)];
                    if slopes.is_empty() {
                        scores.iter_mut().for_each(|x| *x = cap * tanh(*x / cap));
                        continue;
                    }
                    for (x, slope) in scores.iter_mut().zip(&mut slopes[place(key)]) {
                        let bounded = tanh(*x / cap);
                        *slope = 1.0 - bounded * bounded;
                        *x = cap * bounded;
                    }
                }
            }
            if let Some(bias) = terms.bias {
                for i in tile.queries(&rows.columns) {
                    let bias = &bias[(tile.from + i) * terms.k_len + tile.first_key..];
                    for key in rows.keys.clone() {
                        scores[key * WEIGHTS_ROW + i] += bias[key];
                    }
                }
            }
            if let Some(seen) = terms.padding {
                for key in rows.keys.clone() {
                    if !seen[tile.first_key + key] {
                        scores[place(key)].fill(f32::NEG_INFINITY);
                    }
                }
            }
        }
    }
}

/// Replaces the gradients of a tile's masked scores by those of `q kᵀ`, where they are computed. Also
/// adds the former to the head's bias gradient `[q_len, k_len]`, which begins at `bias_start` in `dbias`.
pub struct Differentiate<'a> {
    pub terms: ScoreTerms<'a>,
    pub tile: Tile<'a>,
    pub scale: f32,
    pub grads: &'a mut [f32],
    /// The derivatives stored by [`Apply`].
    pub slopes: &'a [f32],
    /// The gradient of the bias. No other task may have these queries and keys of this head.
    pub dbias: Option<Shared<'a, f32>>,
    pub bias_start: usize,
}

impl WithSimd for Differentiate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self {
            terms,
            tile,
            scale,
            grads,
            slopes,
            dbias,
            bias_start,
        } = self;
        for rows in tile.visibility.key_rows() {
            if let Some(dbias) = dbias {
                for i in tile.queries(&rows.columns) {
                    let start = bias_start + (tile.from + i) * terms.k_len + tile.first_key;
                    let place = start + rows.keys.start..start + rows.keys.end;
                    // SAFETY: no other task has these queries and keys, as the field requires.
                    let dbias = unsafe { dbias.part(place) };
                    for (key, dbias) in rows.keys.clone().zip(dbias) {
                        *dbias += grads[key * WEIGHTS_ROW + i];
                    }
                }
            }
            let columns = rows.columns.start * LANES..rows.columns.end * LANES;
            for key in rows.keys.clone() {
                let place = key * WEIGHTS_ROW + columns.start..key * WEIGHTS_ROW + columns.end;
                let grads = &mut grads[place.clone()];
                if terms.soft_cap.is_some() {
                    for (grad, slope) in grads.iter_mut().zip(&slopes[place]) {
                        *grad *= scale * slope;
                    }
                } else {
                    grads.iter_mut().for_each(|grad| *grad *= scale);
                }
            }
        }
    }
}

/// The number of slopes for `keys` keys; 0 without a cap.
pub fn slopes_len(call: &Call<'_>, keys: usize) -> usize {
    match call.options.soft_cap {
        Some(_) => keys * WEIGHTS_ROW,
        None => 0,
    }
}
