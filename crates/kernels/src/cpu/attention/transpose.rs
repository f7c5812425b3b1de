//! Transposition of token vectors to columns, so the vectors of a product run along the tokens.

use pulp::Simd;

use super::mask::{COLUMNS, LANES, QUERIES};

/// Writes `scale · rows[i][l]` to `out[l · QUERIES + i]`, for rows `[QUERIES, width]` with `width` a multiple of
/// [`LANES`].
#[inline(always)]
pub fn transpose<S: Simd>(simd: S, rows: &[f32], width: usize, scale: f32, out: &mut [f32]) {
    let rows = rows[..QUERIES * width].as_chunks::<LANES>().0;
    let out = out[..QUERIES * width].as_chunks_mut::<LANES>().0;
    for first in 0..COLUMNS {
        for l in 0..width / LANES {
            let mut square = [[0.0; LANES]; LANES];
            let from = rows[first * width + l..].iter().step_by(width / LANES);
            for (square, row) in square.iter_mut().zip(from) {
                *square = *row;
            }
            let square = transposed(simd, square, scale);
            let to = out[l * QUERIES + first..].iter_mut().step_by(COLUMNS);
            for (column, to) in square.into_iter().zip(to) {
                *to = column;
            }
        }
    }
}

/// Returns the columns of `scale · square`.
#[inline(always)]
fn transposed<S: Simd>(
    simd: S,
    square: [[f32; LANES]; LANES],
    scale: f32,
) -> [[f32; LANES]; LANES] {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = (&simd as &dyn std::any::Any).downcast_ref::<pulp::x86::V4>() {
        return shuffled(*simd, square, scale);
    }
    let _ = simd;
    let mut columns = [[0.0; LANES]; LANES];
    for (j, column) in columns.iter_mut().enumerate() {
        for (x, row) in column.iter_mut().zip(&square) {
            *x = scale * row[j];
        }
    }
    columns
}

/// [`transposed`] by pairs, then fours, then the fours of each vector. From plain loops, the compiler generates
/// one load and one insertion per element, which takes four times as long.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn shuffled(
    simd: pulp::x86::V4,
    square: [[f32; LANES]; LANES],
    scale: f32,
) -> [[f32; LANES]; LANES] {
    let f = simd.avx512f;
    let factor = f._mm512_set1_ps(scale);
    // Loops, not closures, which would not be compiled for this instruction set.
    let mut rows = [factor; LANES];
    for (row, x) in rows.iter_mut().zip(square) {
        *row = f._mm512_mul_ps(factor, pulp::cast(x));
    }
    let mut fours = [factor; LANES];
    for i in (0..LANES).step_by(4) {
        let low = f._mm512_castps_pd(f._mm512_unpacklo_ps(rows[i], rows[i + 1]));
        let high = f._mm512_castps_pd(f._mm512_unpackhi_ps(rows[i], rows[i + 1]));
        let next_low = f._mm512_castps_pd(f._mm512_unpacklo_ps(rows[i + 2], rows[i + 3]));
        let next_high = f._mm512_castps_pd(f._mm512_unpackhi_ps(rows[i + 2], rows[i + 3]));
        fours[i] = f._mm512_castpd_ps(f._mm512_unpacklo_pd(low, next_low));
        fours[i + 1] = f._mm512_castpd_ps(f._mm512_unpackhi_pd(low, next_low));
        fours[i + 2] = f._mm512_castpd_ps(f._mm512_unpacklo_pd(high, next_high));
        fours[i + 3] = f._mm512_castpd_ps(f._mm512_unpackhi_pd(high, next_high));
    }
    let mut columns = [[0.0; LANES]; LANES];
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        let first = f._mm512_shuffle_f32x4::<0x44>(a, b);
        let second = f._mm512_shuffle_f32x4::<0x44>(c, d);
        columns[j] = pulp::cast(f._mm512_shuffle_f32x4::<0x88>(first, second));
        columns[4 + j] = pulp::cast(f._mm512_shuffle_f32x4::<0xdd>(first, second));
        let first = f._mm512_shuffle_f32x4::<0xee>(a, b);
        let second = f._mm512_shuffle_f32x4::<0xee>(c, d);
        columns[8 + j] = pulp::cast(f._mm512_shuffle_f32x4::<0x88>(first, second));
        columns[12 + j] = pulp::cast(f._mm512_shuffle_f32x4::<0xdd>(first, second));
    }
    columns
}
