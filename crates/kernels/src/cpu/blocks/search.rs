//! Finding the scales of a block, by trying several and fitting each by least squares.
//!
//! `w` are the weights of a block, `e` the importance of their rounding errors, and `q` their levels. All sums run
//! in the order of the weights.

/// Blocks whose magnitudes are below this are zero.
pub(super) const TINY: f32 = 1e-15;

/// Rounds to the nearest integer, ties to even, for `|x| < 2²²`.
///
/// The sum with 1.5 · 2²³ has no bits for a fraction. Beyond the range the result is arbitrary, and the callers
/// clamp it.
#[inline(always)]
pub(super) fn nearest(x: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    ((x + SHIFT).to_bits() & 0x007f_ffff).cast_signed() - 0x0040_0000
}

/// The weight of the largest magnitude, the first of several; 0 if there is none.
pub(super) fn extreme(w: &[f32]) -> f32 {
    let larger = |extreme: f32, &w: &f32| if w.abs() > extreme.abs() { w } else { extreme };
    w.iter().fold(0.0, larger)
}

/// `Σ w²`.
pub(super) fn sum_of_squares(w: &[f32]) -> f32 {
    w.iter().fold(0.0, |sum, w| sum + w * w)
}

/// The importance of rounding errors: `importance · √(mean_square + w²)`.
pub(super) fn error_weights<const LEN: usize>(
    w: &[f32; LEN],
    importance: &[f32],
    mean_square: f32,
) -> [f32; LEN] {
    let mut weights = [0.0; LEN];
    for ((weight, w), importance) in weights.iter_mut().zip(w).zip(importance) {
        *weight = importance * (mean_square + w * w).sqrt();
    }
    weights
}

/// Finds levels `-half..half` and a scale with a small error `Σ e (w - d level)²`. Writes `level + half` to `q` and
/// returns `d`.
pub(super) fn symmetric(w: &[f32], e: &[f32], half: u8, q: &mut [u8]) -> f32 {
    let extreme = extreme(w);
    if extreme.abs() < TINY {
        q.fill(0);
        return 0.0;
    }
    let (half, least) = (f32::from(half), -i32::from(half));
    let level = |inverse: f32, w: f32| nearest(inverse * w).clamp(least, -least - 1);
    let sums = |inverse: f32| {
        let (mut wq, mut qq) = (0.0, 0.0);
        for (&w, e) in w.iter().zip(e) {
            let level = level(inverse, w) as f32;
            wq += e * w * level;
            qq += e * level * level;
        }
        (wq, qq)
    };
    let mut inverse = -half / extreme;
    let (wq, qq) = sums(inverse);
    let mut d = if qq == 0.0 { 0.0 } else { wq / qq };
    let mut best = d * wq;
    for step in (-9..=9i8).filter(|&step| step != 0) {
        let candidate = -(half + 0.1 * f32::from(step)) / extreme;
        let (wq, qq) = sums(candidate);
        if qq > 0.0 && wq * wq > best * qq {
            (inverse, d) = (candidate, wq / qq);
            best = d * wq;
        }
    }
    for (q, &w) in q.iter_mut().zip(w) {
        *q = (level(inverse, w) - least) as u8;
    }
    d
}

/// Like [`symmetric`] with the importance `w²`, but changes one level at a time instead of trying scales.
pub(super) fn symmetric_by_level(w: &[f32], half: u8, q: &mut [u8]) -> f32 {
    let extreme = extreme(w);
    if extreme.abs() < TINY {
        q.fill(0);
        return 0.0;
    }
    let least = -i32::from(half);
    let level = |w: f32| nearest(w).clamp(least, -least - 1);
    let inverse = -f32::from(half) / extreme;
    let (mut wq, mut qq) = (0.0, 0.0);
    for (q, &w) in q.iter_mut().zip(w) {
        let level = level(inverse * w);
        *q = (level - least) as u8;
        let (e, level) = (w * w, level as f32);
        wq += e * w * level;
        qq += e * level * level;
    }
    for _ in 0..5 {
        let mut changed = false;
        for (q, &w) in q.iter_mut().zip(w) {
            let (e, old) = (w * w, (i32::from(*q) + least) as f32);
            let mut new_wq = wq - e * w * old;
            if new_wq <= 0.0 {
                continue;
            }
            let mut new_qq = qq - e * old * old;
            let level = level(w * new_qq / new_wq);
            let new = level as f32;
            if new != old {
                new_wq += e * w * new;
                new_qq += e * new * new;
                if new_qq > 0.0 && new_wq * new_wq * qq > wq * wq * new_qq {
                    *q = (level - least) as u8;
                    (wq, qq) = (new_wq, new_qq);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    if qq > 0.0 { wq / qq } else { 0.0 }
}

/// The scales that [`affine`] tries: `(top + start + step n) / range` for `n` from 0 to `steps`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    pub(super) start: f32,
    pub(super) step: f32,
    pub(super) steps: u8,
    /// Compares absolute errors instead of squares.
    pub(super) absolute: bool,
}

/// Finds levels `0..=top`, a scale `d` and a distance `m ≥ 0` below 0 with a small error `Σ e (w - (d q - m))²`.
/// Returns `(d, m)`.
pub(super) fn affine<const LEN: usize>(
    w: &[f32; LEN],
    e: &[f32; LEN],
    top: u8,
    search: Affine,
    q: &mut [u8],
) -> (f32, f32) {
    let (mut least, mut most) = (w[0], w[0]);
    let mut sum_e = e[0];
    let mut sum_w = sum_e * w[0];
    for (&w, e) in w.iter().zip(e).skip(1) {
        least = if w < least { w } else { least };
        most = if w > most { w } else { most };
        sum_e += e;
        sum_w += e * w;
    }
    least = if least > 0.0 { 0.0 } else { least };
    if most <= least {
        q.fill(0);
        return (0.0, -least);
    }
    let top = f32::from(top);
    let level = |inverse: f32, least: f32, w: f32| {
        // `least` may be a fit close to `most`, which makes this infinite or NaN.
        let x = inverse * (w - least);
        if x > 0.0 {
            nearest(x.min(top)) as f32
        } else {
            0.0
        }
    };
    let error_of = |d: f32, least: f32, levels: &[f32; LEN]| {
        let mut error = 0.0;
        for ((w, e), level) in w.iter().zip(e).zip(levels) {
            let difference = d * level + least - w;
            let difference = match search.absolute {
                true => difference.abs(),
                false => difference * difference,
            };
            error += e * difference;
        }
        error
    };
    let inverse = top / (most - least);
    let mut d = 1.0 / inverse;
    let mut best_levels = w.map(|w| level(inverse, least, w));
    let mut best = error_of(d, least, &best_levels);
    for n in 0..=search.steps {
        let inverse = (search.start + search.step * f32::from(n) + top) / (most - least);
        let levels = w.map(|w| level(inverse, least, w));
        let (mut sum_q, mut sum_qq, mut sum_wq) = (0.0, 0.0, 0.0);
        for ((w, e), level) in w.iter().zip(e).zip(&levels) {
            sum_q += e * level;
            sum_qq += e * level * level;
            sum_wq += e * level * w;
        }
        let determinant = sum_e * sum_qq - sum_q * sum_q;
        if determinant > 0.0 {
            let mut fit_d = (sum_e * sum_wq - sum_w * sum_q) / determinant;
            let mut fit_least = (sum_qq * sum_w - sum_q * sum_wq) / determinant;
            if fit_least > 0.0 {
                fit_least = 0.0;
                fit_d = sum_wq / sum_qq;
            }
            let error = error_of(fit_d, fit_least, &levels);
            if error < best {
                best = error;
                best_levels = levels;
                (d, least) = (fit_d, fit_least);
            }
        }
    }
    for (q, level) in q.iter_mut().zip(best_levels) {
        *q = level as u8;
    }
    (d, -least)
}

/// Quantizes non-negative numbers to levels `0..=top` with a small error `Σ e (w - d q)²`. Returns `d`.
pub(super) fn positive(w: &[f32], e: &[f32], top: u8, q: &mut [u8]) -> f32 {
    let most = w
        .iter()
        .fold(0.0f32, |most, &w| if w > most { w } else { most });
    if most < TINY {
        q.fill(0);
        return 0.0;
    }
    let (top, highest) = (f32::from(top), i32::from(top));
    let level = |x: f32| nearest(x).min(highest);
    let error_of = |inverse: f32| {
        let d = 1.0 / inverse;
        let mut error = 0.0;
        for (w, e) in w.iter().zip(e) {
            let difference = w - d * level(inverse * w) as f32;
            error += e * difference * difference;
        }
        error
    };
    let mut inverse = top / most;
    let mut best = error_of(inverse);
    for step in (-4..=4i8).filter(|&step| step != 0) {
        let candidate = (0.1 * f32::from(step) + top) / most;
        let error = error_of(candidate);
        if error < best {
            (best, inverse) = (error, candidate);
        }
    }
    let (mut wq, mut qq) = (0.0, 0.0);
    for ((q, w), e) in q.iter_mut().zip(w).zip(e) {
        let level = level(inverse * w);
        *q = level as u8;
        let level = level as f32;
        wq += e * w * level;
        qq += e * level * level;
    }
    for _ in 0..5 {
        let mut changed = false;
        for ((q, w), e) in q.iter_mut().zip(w).zip(e) {
            let old = f32::from(*q);
            let mut new_wq = wq - e * w * old;
            let mut new_qq = qq - e * old * old;
            if new_wq > 0.0 && new_qq > 0.0 {
                let level = level(w * new_qq / new_wq);
                let new = level as f32;
                if new != old {
                    new_wq += e * w * new;
                    new_qq += e * new * new;
                    if new_wq * new_wq * qq > wq * wq * new_qq {
                        *q = level as u8;
                        (wq, qq) = (new_wq, new_qq);
                        changed = true;
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    if qq > 0.0 { wq / qq } else { 0.0 }
}
