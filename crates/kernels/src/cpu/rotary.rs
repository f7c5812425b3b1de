//! Rotary position embeddings (Su et al. 2021): each pair of a head's elements is rotated by an angle
//! proportional to the position.

use std::ops::Range;

use super::attention::HeadStrides;
use super::parallel::{self, Shared, rows_per_task};
use super::vector::wide;
use crate::RotaryLayout;

/// Panics if the vectors exceed memory of `len` elements or, if `apart` is true, overlap.
#[track_caller]
fn check(strides: HeadStrides, shape: [usize; 4], len: usize, apart: bool) {
    assert!(strides.extent(shape) <= len, "the heads leave their memory");
    assert!(
        !apart || strides.disjoint(shape),
        "the heads' vectors overlap"
    );
}

/// Rotates each pair `(a, b)` of token `t` to `(a cos - b sin, b cos + a sin)`, in place, with
/// `cos, sin: [seq, pairs]`. Only the first `2 · pairs` elements of each head are rotated. `inverse` rotates in
/// the opposite direction, as the backward pass requires.
///
/// # Panics
/// Panics if the sizes do not fit, or the heads exceed `data` or overlap.
pub fn rotate_in_place(
    layout: RotaryLayout,
    data: &mut [f32],
    strides: HeadStrides,
    shape: [usize; 4],
    cos: &[f32],
    sin: &[f32],
    inverse: bool,
) {
    let [_, heads, seq, head_dim] = shape;
    check(strides, shape, data.len(), true);
    let pairs = pairs(cos, sin, seq, head_dim);
    if pairs == 0 {
        return;
    }
    let sign = if inverse { -1.0 } else { 1.0 };
    let data = Shared::new(data);
    let tasks = tasks(shape);
    parallel::for_each(tasks.len(), |task| {
        wide(
            #[inline(always)]
            || {
                // Token by token with all heads, which are adjacent in a fused buffer.
                for token in tasks[task].clone() {
                    let (b, t) = (token / seq, token % seq);
                    let (cos, sin) = (&cos[t * pairs..][..pairs], &sin[t * pairs..][..pairs]);
                    for h in 0..heads {
                        let start = strides.offset([b, h, t]);
                        // SAFETY: `check` has verified that the vectors do not overlap, and each is used by one
                        // task, one at a time.
                        let x = unsafe { data.part(start..start + 2 * pairs) };
                        rotate_pairs(layout, x, cos, sin, sign);
                    }
                }
            },
        );
    });
}

/// [`rotate_in_place`] from `x` into `out: [batch, heads, seq, head_dim]`.
///
/// # Panics
/// Panics if the sizes do not fit, or the heads exceed `x`.
pub fn rotate(
    layout: RotaryLayout,
    x: &[f32],
    strides: HeadStrides,
    out: &mut [f32],
    shape: [usize; 4],
    cos: &[f32],
    sin: &[f32],
) {
    let [batch, heads, seq, head_dim] = shape;
    check(strides, shape, x.len(), false);
    assert!(
        out.len() == batch * heads * seq * head_dim,
        "the output has not the heads' shape"
    );
    let pairs = pairs(cos, sin, seq, head_dim);
    let out = Shared::new(out);
    let tasks = tasks(shape);
    parallel::for_each(tasks.len(), |task| {
        wide(
            #[inline(always)]
            || {
                for token in tasks[task].clone() {
                    let (b, t) = (token / seq, token % seq);
                    let (cos, sin) = (&cos[t * pairs..][..pairs], &sin[t * pairs..][..pairs]);
                    for h in 0..heads {
                        let x = &x[strides.offset([b, h, t])..][..head_dim];
                        let start = ((b * heads + h) * seq + t) * head_dim;
                        // SAFETY: each token of each head has its own vector in `out`, which only one task
                        // writes.
                        let out = unsafe { out.part(start..start + head_dim) };
                        out.copy_from_slice(x);
                        rotate_pairs(layout, &mut out[..2 * pairs], cos, sin, 1.0);
                    }
                }
            },
        );
    });
}

/// The number of rotated pairs per head.
#[track_caller]
fn pairs(cos: &[f32], sin: &[f32], seq: usize, head_dim: usize) -> usize {
    let pairs = cos.len().checked_div(seq).unwrap_or(0);
    assert!(
        cos.len() == sin.len() && pairs * seq == cos.len(),
        "the angles are not [seq, pairs]"
    );
    assert!(2 * pairs <= head_dim, "more is rotated than a head has");
    pairs
}

/// The tokens of all sequences, `b · seq + t`, divided into tasks.
fn tasks([batch, heads, seq, head_dim]: [usize; 4]) -> Vec<Range<usize>> {
    let tokens = batch * seq;
    parallel::ranges(tokens, rows_per_task(tokens, heads * head_dim)).collect()
}

/// Rotates the pairs of one vector, `x: [2 · pairs]`.
#[inline(always)]
fn rotate_pairs(layout: RotaryLayout, x: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
    match layout {
        RotaryLayout::HalfSplit => {
            let (a, b) = x.split_at_mut(cos.len());
            for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                let sin = *sin * sign;
                (*a, *b) = (*a * *cos - *b * sin, *b * *cos + *a * sin);
            }
        }
        RotaryLayout::Interleaved => {
            for ((pair, cos), sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                let [a, b] = *pair;
                let sin = *sin * sign;
                *pair = [a * *cos - b * sin, b * *cos + a * sin];
            }
        }
    }
}
