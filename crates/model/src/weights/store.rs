//! Abstraction of weight files: named tensors that are read in runs of rows.

use std::ops::Range;

use emberlm_kernels::PackedFormat;
use safetensors::Dtype;

use super::element::Element;
use crate::error::WeightsError;

/// Named tensors in any file format. The rows of a tensor are its slices along the first dimension; a scalar is one
/// row.
///
/// [`super::SafetensorsStore`] is the implementation for safetensors files.
pub trait TensorStore {
    /// The names in a fixed order.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;

    /// Returns the shape of a tensor; `None` if it does not exist.
    fn shape(&self, name: &str) -> Option<&[usize]>;

    /// Returns the element type of a tensor; `None` if the tensor does not exist or its type is not a supported
    /// floating-point type.
    fn element(&self, name: &str) -> Option<Element>;

    /// Total size of all tensors in bytes.
    fn total_bytes(&self) -> u64;

    /// Reads a range of rows and calls `read(rows, values)` for consecutive runs, in order. A run has a few MiB, and
    /// earlier runs are not kept in memory.
    ///
    /// # Errors
    /// The tensor does not exist, has an unsupported type, or cannot be read.
    fn read_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), WeightsError>;

    /// Reads a range of rows like [`TensorStore::read_rows`], as little-endian bytes of elements of type `dtype`. Only
    /// stores with packed weights need to implement it.
    ///
    /// # Errors
    /// The tensor does not exist, has another type, or cannot be read.
    fn read_bytes(
        &self,
        name: &str,
        dtype: Dtype,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let _ = (rows, read);
        Err(WeightsError::Type {
            name: name.to_owned(),
            found: "of floating point".to_owned(),
            rule: format!("must be {dtype:?}"),
        })
    }

    /// Returns the format of a matrix that is stored in blocks or 16 bits, row by row; `None` for other tensors.
    fn packed_format(&self, name: &str) -> Option<PackedFormat> {
        let _ = name;
        None
    }

    /// Reads a range of rows like [`TensorStore::read_rows`], as the bytes of their blocks. Only stores with a
    /// [`TensorStore::packed_format`] need to implement it.
    ///
    /// # Errors
    /// The tensor does not exist, or cannot be read.
    fn read_packed_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let _ = (rows, read);
        Err(WeightsError::Type {
            name: name.to_owned(),
            found: "of single elements".to_owned(),
            rule: "must be in blocks".to_owned(),
        })
    }

    /// Returns true if a tensor exists.
    fn contains(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }
}

/// Returns the number of rows of a tensor of `shape` and the elements per row.
pub(super) fn rows_of(shape: &[usize]) -> [usize; 2] {
    match shape.split_first() {
        Some((&rows, rest)) => [rows, rest.iter().product()],
        None => [1, 1],
    }
}

/// Checks that a tensor exists and has the expected shape.
pub(super) fn check_shape(
    store: &dyn TensorStore,
    name: &str,
    expected: &[usize],
) -> Result<(), WeightsError> {
    match store.shape(name) {
        None => Err(WeightsError::Missing {
            name: name.to_owned(),
        }),
        Some(found) if found != expected => Err(WeightsError::Shape {
            name: name.to_owned(),
            found: found.to_vec(),
            expected: expected.to_vec(),
        }),
        Some(_) => Ok(()),
    }
}

/// Elements that [`equal`] compares at a time.
const COMPARED_ELEMENTS: usize = 1 << 20;

/// Returns true if two tensors have the same shape, type and bits.
pub(crate) fn equal(store: &dyn TensorStore, one: &str, other: &str) -> Result<bool, WeightsError> {
    let Some(shape) = store.shape(one) else {
        return Ok(false);
    };
    if store.shape(other) != Some(shape) || store.element(one) != store.element(other) {
        return Ok(false);
    }
    let [rows, row] = rows_of(shape);
    let at_once = (COMPARED_ELEMENTS / row.max(1)).max(1);
    let mut equal = true;
    for first in (0..rows).step_by(at_once) {
        let run = first..rows.min(first + at_once);
        let mut held = Vec::with_capacity(run.len() * row);
        store.read_rows(one, run.clone(), &mut |_, values| {
            held.extend_from_slice(values);
        })?;
        store.read_rows(other, run, &mut |rows, values| {
            let start = (rows.start - first) * row;
            let held = held.get(start..start + values.len());
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            equal &= held.is_some_and(|held| held.iter().zip(values).all(same));
        })?;
        if !equal {
            break;
        }
    }
    Ok(equal)
}
