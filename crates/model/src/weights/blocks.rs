//! Reads weights that a store has in blocks, without unpacking them.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::packed::PackedMatrix;

use super::load::Loader;
use super::load_decoder::Orientation;
use super::map::{Source, Stored};
use super::store::check_shape;
use crate::error::WeightsError;

/// The maximum number of parts of a matrix. Each is a separate product.
const MOST_PARTS: usize = 4;

/// Consecutive rows of a matrix in one format.
struct Run {
    format: PackedFormat,
    rows: usize,
}

impl<S: Fn(&str) -> Option<Source>> Loader<'_, S> {
    /// Reads the matrix `[out, in]` of the parameter at `path`, in parts of consecutive outputs with one format each.
    /// Returns `None` unless all its tensors are stored in a packed format with a row per output, in `format` if one is
    /// given, and few parts are enough.
    pub(super) fn stored_blocks(
        &mut self,
        path: &str,
        [outputs, inputs]: [usize; 2],
        orientation: Orientation,
        format: Option<PackedFormat>,
    ) -> Result<Option<Vec<PackedMatrix>>, WeightsError> {
        let range = self.parts.row_range(path);
        let all_outputs = match range.whole == path {
            true => outputs,
            false => range.whole_shape(&[outputs, inputs])[0],
        };
        let first = range.start;
        let Some(source) = (self.naming.source)(range.whole) else {
            return Ok(None);
        };
        if orientation == Orientation::Layer && !source.is_outputs_first() {
            return Ok(None);
        }
        // The rows of the matrix are mapped like the elements of a vector of its outputs.
        let tensors = source.stored(&[all_outputs]);
        let own = |row: usize| row.checked_sub(first).filter(|&own| own < outputs);
        let Some(runs) = self.runs(&tensors, outputs, all_outputs, own) else {
            return Ok(None);
        };
        // The chunks of each row in the order of the decoder; a row without another order of inputs is one chunk.
        let chunks = tensors.iter().map(|stored| match &stored.inputs {
            Some(order) => {
                let format = self.store.packed_format(&self.name_in_file(&stored.name));
                order.places(format?.block_len())
            }
            None => Some(vec![0]),
        });
        let Some(chunks) = chunks.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let has_format = |run: &Run| format.is_none_or(|format| run.format == format);
        if runs.len() > MOST_PARTS || !runs.iter().all(has_format) {
            return Ok(None);
        }
        // The first byte of each row, in its part.
        let starts: Vec<(usize, usize)> = runs
            .iter()
            .enumerate()
            .flat_map(|(part, run)| {
                let bytes = run.format.row_bytes(inputs);
                (0..run.rows).map(move |row| (part, row * bytes))
            })
            .collect();
        let mut parts: Vec<Vec<u8>> = runs
            .iter()
            .map(|run| vec![0; run.format.bytes([run.rows, inputs])])
            .collect();
        for (stored, chunks) in tensors.into_iter().zip(chunks) {
            let name = self.name_in_file(&stored.name);
            check_shape(self.store, &name, &[stored.len(), inputs])?;
            let rows = stored.file_rows_with(0..all_outputs);
            self.store.read_packed_rows(&name, rows, &mut |run, read| {
                let bytes = read.len() / run.len().max(1);
                let each = bytes / chunks.len();
                stored.for_each_element(run.clone(), |element, row| {
                    if let Some((part, to)) = own(element).map(|own| starts[own]) {
                        let from = (row - run.start) * bytes;
                        for (from, place) in (from..).step_by(each).zip(&chunks) {
                            let to = to + place * each;
                            parts[part][to..to + each].copy_from_slice(&read[from..from + each]);
                        }
                    }
                });
            })?;
            self.unused.remove(&name);
        }
        let matrices = runs
            .into_iter()
            .zip(parts)
            .map(|(run, bytes)| PackedMatrix::new(run.format, [run.rows, inputs], bytes));
        let matrices: Result<Vec<_>, _> = matrices.collect();
        matrices.map(Some).map_err(|reason| WeightsError::Packing {
            name: path.to_owned(),
            source: reason,
        })
    }

    /// The 16-bit format of all tensors of a parameter; `None` if they have another or different ones.
    pub(super) fn sixteen_bits(&self, path: &str, shape: &[usize]) -> Option<PackedFormat> {
        let range = self.parts.row_range(path);
        let source = (self.naming.source)(range.whole)?;
        let stored = source.stored(&range.whole_shape(shape));
        let formats = stored.iter().map(|stored| {
            let name = self.name_in_file(&stored.name);
            self.store.element(&name)?.packed_format()
        });
        let formats: Vec<PackedFormat> = formats.collect::<Option<_>>()?;
        let first = *formats.first()?;
        formats
            .iter()
            .all(|format| *format == first)
            .then_some(first)
    }

    /// The formats of a matrix's rows. Returns `None` if a tensor is not in blocks. `own` returns the row of an output.
    fn runs(
        &self,
        tensors: &[Stored],
        outputs: usize,
        all_outputs: usize,
        own: impl Fn(usize) -> Option<usize>,
    ) -> Option<Vec<Run>> {
        let mut formats = vec![None; outputs];
        for stored in tensors {
            let format = self.store.packed_format(&self.name_in_file(&stored.name))?;
            stored.for_each_element(stored.file_rows_with(0..all_outputs), |element, _| {
                if let Some(own) = own(element) {
                    formats[own] = Some(format);
                }
            });
        }
        let runs = formats.chunk_by(|one, next| one == next).map(|rows| {
            Some(Run {
                format: rows[0]?,
                rows: rows.len(),
            })
        });
        runs.collect()
    }
}
