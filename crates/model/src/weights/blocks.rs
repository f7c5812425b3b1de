//! Reads weights that a store has in blocks, without unpacking them.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::packed::PackedMatrix;

use super::load::Loader;
use super::map::Source;
use super::store::check_shape;
use crate::error::WeightsError;

impl<S: Fn(&str) -> Option<Source>> Loader<'_, S> {
    /// Reads the matrix `[out, in]` of the parameter at `path`. Returns `None` unless all its tensors are stored in
    /// `format`, with a row per output.
    pub(super) fn stored_blocks(
        &mut self,
        path: &str,
        [outputs, inputs]: [usize; 2],
        format: PackedFormat,
    ) -> Result<Option<PackedMatrix>, WeightsError> {
        let range = self.parts.row_range(path);
        let all_outputs = match range.whole == path {
            true => outputs,
            false => range.whole_shape(&[outputs, inputs])[0],
        };
        let first = range.start;
        let Some(source) = (self.naming.source)(range.whole) else {
            return Ok(None);
        };
        // The rows of the matrix are mapped like the elements of a vector of its outputs.
        let tensors = source.stored(&[all_outputs]);
        let has_format = |name: &str| self.store.packed_format(name) == Some(format);
        if !tensors.iter().all(|stored| has_format(&stored.name)) {
            return Ok(None);
        }
        let row_bytes = format.row_bytes(inputs);
        let mut bytes = vec![0; outputs * row_bytes];
        for stored in tensors {
            check_shape(self.store, &stored.name, &[stored.len(), inputs])?;
            let rows = stored.file_rows_with(0..all_outputs);
            self.store
                .read_packed_rows(&stored.name, rows, &mut |run, read| {
                    stored.for_each_element(run.clone(), |own, row| {
                        if let Some(own) = own.checked_sub(first).filter(|&own| own < outputs) {
                            let from = (row - run.start) * row_bytes;
                            bytes[own * row_bytes..(own + 1) * row_bytes]
                                .copy_from_slice(&read[from..from + row_bytes]);
                        }
                    });
                })?;
            self.unused.remove(&stored.name);
        }
        let matrix = PackedMatrix::new(format, [outputs, inputs], bytes);
        matrix.map(Some).map_err(|reason| WeightsError::Packing {
            name: path.to_owned(),
            source: reason,
        })
    }
}
