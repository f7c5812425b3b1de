//! Choosing the levels of packed weights whose scales are fixed, for methods that depend on more than one weight.

use std::ops::Range;

use super::blocks::{levels, put_levels};
use super::packed::PackedMatrix;
use super::parallel::{self, Shared};
use crate::PackedFormat;

/// Returns true if the weights of a format are evenly spaced levels of scales that can be fixed first.
pub const fn has_levels(format: PackedFormat) -> bool {
    put_levels::range(format).is_some()
}

/// The levels of a packed row, with its fixed scales and minimums: a weight is `scale (level - offset) - minimum`.
#[derive(Clone, Debug)]
pub struct RowLevels {
    q: Vec<u8>,
    scales: Vec<f32>,
    minimums: Vec<f32>,
    offset: f32,
    range: (u8, u8),
}

impl RowLevels {
    /// Reads a row; `None` if the format has no levels.
    fn read(format: PackedFormat, bytes: &[u8], columns: usize) -> Option<Self> {
        let range = put_levels::range(format)?;
        let subs = columns / levels::SUB;
        let mut row = Self {
            q: vec![0; columns],
            scales: vec![0.0; subs],
            minimums: vec![0.0; subs],
            offset: f32::from(levels::offset(format)?),
            range,
        };
        let subs = levels::Subs {
            scales: &mut row.scales,
            minimums: &mut row.minimums,
        };
        levels::read(format, bytes, &mut row.q, subs);
        Some(row)
    }

    /// Sets a weight to the level nearest to `w`, and returns its value. Without a scale, it keeps its level.
    ///
    /// # Panics
    /// Panics if the row does not have the column.
    #[inline]
    pub fn round(&mut self, column: usize, w: f32) -> f32 {
        let sub = column / levels::SUB;
        let (scale, minimum) = (self.scales[sub], self.minimums[sub]);
        let q = &mut self.q[column];
        if scale != 0.0 {
            let (lowest, highest) = self.range;
            let level = ((w + minimum) / scale + self.offset).round_ties_even();
            *q = level.clamp(f32::from(lowest), f32::from(highest)) as u8;
        }
        scale * (f32::from(*q) - self.offset) - minimum
    }
}

/// Calls `choose` on all threads with ranges of up to `step` rows and their levels, and stores the levels that it sets.
/// Scales and minimums stay as they are, and so does a matrix whose format has no levels.
pub fn choose_levels(
    matrix: &mut PackedMatrix,
    step: usize,
    choose: impl Fn(Range<usize>, &mut [RowLevels]) + Send + Sync,
) {
    let (format, [rows, columns], bytes) = matrix.parts_mut();
    if !has_levels(format) || columns == 0 {
        return;
    }
    let row_bytes = format.row_bytes(columns);
    let ranges: Vec<Range<usize>> = parallel::ranges(rows, step).collect();
    let all = Shared::new(bytes);
    parallel::for_each(ranges.len(), |task| {
        let range = ranges[task].clone();
        // SAFETY: each task has its own rows.
        let bytes = unsafe { all.part(range.start * row_bytes..range.end * row_bytes) };
        let read = |bytes: &[u8]| RowLevels::read(format, bytes, columns);
        let mut rows: Vec<RowLevels> = bytes.chunks(row_bytes).filter_map(read).collect();
        choose(range, &mut rows);
        for (row, bytes) in rows.iter().zip(bytes.chunks_mut(row_bytes)) {
            put_levels::put_row(format, &row.q, bytes);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::matrix::Matrix;
    use crate::cpu::packed::{pack, unpack};

    /// The nearest levels of unpacked weights are the stored ones, so writing them changes no byte.
    #[test]
    fn nearest_levels_of_unpacked_weights_are_the_stored_ones() {
        let (rows, columns) = (5, 512);
        let w: Vec<f32> = (0..rows * columns)
            .map(|at| ((at * 7919 % 1009) as f32 / 504.5 - 1.0).powi(3))
            .collect();
        for format in PackedFormat::ALL {
            let packed = pack(format, Matrix::row_major(&w, rows, columns));
            let mut values = vec![0.0; w.len()];
            unpack(packed.view(), &mut values);
            let mut again = packed.clone();
            choose_levels(&mut again, 2, |range, levels| {
                for (row, levels) in range.zip(levels) {
                    for column in 0..columns {
                        let w = values[row * columns + column];
                        assert_eq!(levels.round(column, w), w, "{}", format.name());
                    }
                }
            });
            assert_eq!(again, packed, "{}", format.name());
        }
    }
}
