//! Copying and scaling of short rows.

use pulp::Simd;

use super::mask::LANES;

/// Copies rows of a common width and returns true, or returns false for other widths. A width known at compile
/// time halves the time.
#[inline(always)]
pub fn copy_rows(x: &[f32], stride: usize, width: usize, out: &mut [f32]) -> bool {
    match width {
        16 => copy_rows_of::<16>(x, stride, out),
        32 => copy_rows_of::<32>(x, stride, out),
        64 => copy_rows_of::<64>(x, stride, out),
        128 => copy_rows_of::<128>(x, stride, out),
        _ => return false,
    }
    true
}

#[inline(always)]
fn copy_rows_of<const WIDTH: usize>(x: &[f32], stride: usize, out: &mut [f32]) {
    for (i, out) in out.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
        if let Some(x) = x[i * stride..].first_chunk() {
            *out = *x;
        }
    }
}

/// `out = x`, up to the shorter length. The rows are too short for `copy_from_slice` to be efficient.
#[inline(always)]
pub fn copy_row(x: &[f32], out: &mut [f32]) {
    let len = x.len().min(out.len());
    let (x, out) = (&x[..len], &mut out[..len]);
    if copy_rows(x, len, len, out) {
        return;
    }
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for (out, x) in out.iter_mut().zip(x) {
        *out = *x;
    }
    for (out, x) in out_rest.iter_mut().zip(x_rest) {
        *out = *x;
    }
}

/// `out = factor x`, for the length of `out`.
#[inline(always)]
pub fn scale_row<S: Simd>(simd: S, factor: f32, x: &[f32], out: &mut [f32]) {
    let (x, x_rest) = S::as_simd_f32s(&x[..out.len()]);
    let (out, out_rest) = S::as_mut_simd_f32s(out);
    let factors = simd.splat_f32s(factor);
    for (out, x) in out.iter_mut().zip(x) {
        *out = simd.mul_f32s(factors, *x);
    }
    for (out, x) in out_rest.iter_mut().zip(x_rest) {
        *out = factor * *x;
    }
}
