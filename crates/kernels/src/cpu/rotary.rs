//! Rotary positions (Su et al. 2021): each pair of a head's elements turns by an angle that grows with the position.

use std::ops::Range;

use super::attention::HeadStrides;
use super::parallel::{self, Shared, rows_per_task};
use super::vector::wide;
use crate::RotaryLayout;

/// Asserts that the vectors lie in memory of `len` elements, and, where they are `apart`, that no two share an element.
#[track_caller]
fn check(strides: HeadStrides, shape: [usize; 4], len: usize, apart: bool) {
    assert!(strides.extent(shape) <= len, "the heads leave their memory");
    assert!(
        !apart || strides.disjoint(shape),
        "the heads' vectors overlap"
    );
}

/// Turns pair `(a, b)` of token `t` into `(a cos - b sin, b cos + a sin)`, in place; `cos, sin: [seq, pairs]`. The first
/// `2 · pairs` elements of each head are rotated, the rest stays. `inverse` turns back: the gradient.
///
/// # Panics
/// Panics if the sizes do not fit, the heads leave `data` or overlap in it.
pub fn rotate_in_place(
    layout: RotaryLayout,
    data: &mut [f32],
    place: HeadStrides,
    shape: [usize; 4],
    cos: &[f32],
    sin: &[f32],
    inverse: bool,
) {
    let [_, heads, seq, head_dim] = shape;
    check(place, shape, data.len(), true);
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
                // By token, and all heads of one: in a fused buffer they are neighbours.
                for token in tasks[task].clone() {
                    let (b, t) = (token / seq, token % seq);
                    let (cos, sin) = (&cos[t * pairs..][..pairs], &sin[t * pairs..][..pairs]);
                    for h in 0..heads {
                        let start = place.offset([b, h, t]);
                        // SAFETY: the vectors were checked not to overlap, and each belongs to one task, one at a time.
                        let x = unsafe { data.part(start..start + 2 * pairs) };
                        turn(layout, x, cos, sin, sign);
                    }
                }
            },
        );
    });
}

/// [`rotate_in_place`] from `x` into `out: [batch, heads, seq, head_dim]`.
///
/// # Panics
/// Panics if the sizes do not fit or the heads leave `x`.
pub fn rotate(
    layout: RotaryLayout,
    x: &[f32],
    place: HeadStrides,
    out: &mut [f32],
    shape: [usize; 4],
    cos: &[f32],
    sin: &[f32],
) {
    let [batch, heads, seq, head_dim] = shape;
    check(place, shape, x.len(), false);
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
                        let x = &x[place.offset([b, h, t])..][..head_dim];
                        let start = ((b * heads + h) * seq + t) * head_dim;
                        // SAFETY: every token of every head has its own vector in `out`, and each belongs to one task.
                        let out = unsafe { out.part(start..start + head_dim) };
                        out.copy_from_slice(x);
                        turn(layout, &mut out[..2 * pairs], cos, sin, 1.0);
                    }
                }
            },
        );
    });
}

/// The number of pairs of each head that are rotated.
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

/// The tokens of all sequences, `b · seq + t`, cut into tasks.
fn tasks([batch, heads, seq, head_dim]: [usize; 4]) -> Vec<Range<usize>> {
    let tokens = batch * seq;
    parallel::ranges(tokens, rows_per_task(tokens, heads * head_dim)).collect()
}

/// Turns the pairs of one vector, `x: [2 · pairs]`.
#[inline(always)]
fn turn(layout: RotaryLayout, x: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
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
