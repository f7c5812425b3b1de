//! A source of weights: tensors by name, read as f32 in runs of rows.

use std::ops::Range;

use safetensors::Dtype;

use super::element::Element;
use crate::error::WeightsError;

/// Tensors by name, in whatever file format. A tensor's rows are the slices along its first dimension; a scalar is one row.
///
/// [`super::SafetensorsStore`] is the implementation for safetensors files.
pub trait TensorStore {
    /// The names in order.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;

    /// A tensor's shape; none where there is no tensor of this name.
    fn shape(&self, name: &str) -> Option<&[usize]>;

    /// A tensor's type of numbers; none where there is no tensor of this name, or its type is not one that weights can have.
    fn element(&self, name: &str) -> Option<Element>;

    /// The bytes that all tensors take in the files.
    fn total_bytes(&self) -> u64;

    /// Reads some of a tensor's rows in order, in runs of consecutive ones: `read(rows, values)`, row after row. A run takes a few
    /// MiB, and what has been read is not held.
    ///
    /// # Errors
    /// There is no tensor of this name, its type is not supported, or it cannot be read.
    fn read_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), WeightsError>;

    /// Reads some of a tensor's rows in order, as [`TensorStore::read_rows`] does, as the bytes of numbers of type `dtype`,
    /// little-endian. A store without such tensors has no need of it.
    ///
    /// # Errors
    /// There is no tensor of this name and type, or it cannot be read.
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
            rule: format!("it must be {dtype:?}"),
        })
    }

    /// Returns true if there is a tensor of this name.
    fn contains(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }
}

/// Rows of a tensor of `shape`, and the elements of each.
pub(super) fn rows_of(shape: &[usize]) -> [usize; 2] {
    match shape.split_first() {
        Some((&rows, rest)) => [rows, rest.iter().product()],
        None => [1, 1],
    }
}

/// Checks that a tensor is there and has a shape.
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

/// Elements of one of the tensors that [`equal`] holds at a time.
const COMPARED: usize = 1 << 20;

/// Returns true if two tensors have the same shape, type and bits.
pub(crate) fn equal(store: &dyn TensorStore, one: &str, other: &str) -> Result<bool, WeightsError> {
    let Some(shape) = store.shape(one) else {
        return Ok(false);
    };
    if store.shape(other) != Some(shape) || store.element(one) != store.element(other) {
        return Ok(false);
    }
    let [rows, row] = rows_of(shape);
    let at_once = (COMPARED / row.max(1)).max(1);
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
