//! Blocks of 32 weights `d v[q]` with unevenly spaced values `v`, which are closer together near 0.
//!
//! Layout: `d` in f16, then 16 bytes of 4-bit indices as in [`super::simple`].

use super::simple::{get_halves, put_halves};
use super::{put_scale, search};

/// Weights per block.
const LEN: usize = 32;
/// The values that an index selects.
const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
/// The lowest value may be scaled to the largest weight from this many steps of 1 below it to as many above it.
const STEPS: i8 = 7;

/// [`VALUES`] with 128 added.
pub const LEVELS: [u8; 16] = {
    let (mut levels, mut at) = ([0; 16], 0);
    while at < 16 {
        levels[at] = VALUES[at].cast_unsigned() ^ 0x80;
        at += 1;
    }
    levels
};

#[inline(always)]
pub(super) fn levels(block: &[u8; 18], q: &mut [u8; LEN]) {
    get_halves(&block[2..], q);
    for q in q {
        *q = LEVELS[usize::from(*q & 15)];
    }
}

pub(super) fn pack(w: &[f32; LEN], importance: Option<&[f32; LEN]>, out: &mut [u8; 18]) {
    let d = best_scale(w, importance);
    put_scale(out, 0, d);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let q = w.map(|w| nearest(inverse * w));
    put_halves(&q, &mut out[2..]);
}

/// The scale with the smallest squared error, of those that put the weight of the largest magnitude near the lowest
/// value.
fn best_scale(w: &[f32; LEN], importance: Option<&[f32; LEN]>) -> f32 {
    let mean_square = search::sum_of_squares(w) * (2.0 / LEN as f32);
    let weights = match importance {
        Some(importance) => search::error_weights(w, importance, mean_square),
        None => w.map(|w| w * w),
    };
    let extreme = search::extreme(w);
    if extreme.abs() < search::TINY {
        return 0.0;
    }
    let lowest = f32::from(VALUES[0]);
    let sums = |inverse: f32| {
        let (mut wq, mut qq) = (0.0, 0.0);
        for (w, weight) in w.iter().zip(&weights) {
            let value = f32::from(VALUES[usize::from(nearest(inverse * w))]);
            wq += weight * value * w;
            qq += weight * value * value;
        }
        (wq, qq)
    };
    let (wq, qq) = sums(1.0 / (-extreme / lowest));
    let mut d = if qq > 0.0 { wq / qq } else { 0.0 };
    let mut best = d * wq;
    for step in -STEPS..=STEPS {
        let (wq, qq) = sums((f32::from(step) + lowest) / extreme);
        if qq > 0.0 && wq * wq > best * qq {
            d = wq / qq;
            best = d * wq;
        }
    }
    d
}

/// The index of the value nearest to `x`; the higher one in the middle between two.
fn nearest(x: f32) -> u8 {
    let value = |at: u8| f32::from(VALUES[usize::from(at)]);
    // Counting compiles to vector comparisons; a search would mispredict its branches.
    let at_most = VALUES.iter().map(|&value| u8::from(f32::from(value) <= x));
    let at_most: u8 = at_most.sum();
    let (below, above) = (at_most.saturating_sub(1), at_most.min(15));
    match x - value(below) < value(above) - x {
        true => below,
        false => above,
    }
}
