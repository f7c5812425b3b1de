//! Reads packed weights in the `compressed-tensors` format.
//!
//! A matrix `W[j, l] ≈ scale[j] · q[j, l]` is stored as `NAME_scale`, `[out, 1]`, and its int8 values in one of two
//! layouts:
//!
//! | layout | tensors |
//! |---|---|
//! | [`QuantizedLayout::Words`] | `NAME_packed`, I32 `[out, ⌈in / 4⌉]`: each word holds four values of a row, the first in the lowest byte, each with 128 added; `NAME_shape`, I64 `[2]` |
//! | [`QuantizedLayout::Bytes`] | `NAME`, I8 `[out, in]` |
//!
//! Rows are outputs, ordered as in the family's unpacked matrices.

use std::ops::Range;

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::packed::{INT8_SCALE, PackedMatrix, unpack_row};
use safetensors::Dtype;

use super::load::Loader;
use super::map::Source;
use super::store::check_shape;
use crate::error::WeightsError;
use crate::transformer::parameters::{ParameterRole, Parameters};
use crate::transformer::weight_format::{StoredFormats, WeightFormat};

/// Values per word of [`QuantizedLayout::Words`].
pub(super) const VALUES_PER_WORD: usize = 4;
/// XOR mask of the highest bit, which adds 128 to an int8 value or subtracts it again.
pub(super) const OFFSET: u8 = 0x80;

/// Layout of int8 values in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantizedLayout {
    /// `format: "pack-quantized"`.
    Words,
    /// `format: "int-quantized"`.
    Bytes,
}

/// Quantization of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantization {
    /// The blocks' linear layers are int8 with one scale per output.
    Int8(Int8),
    /// The experts are MXFP4, as [`super::Mxfp4Store`] reads them.
    Mxfp4,
}

/// int8 with one scale per output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int8 {
    pub(crate) layout: QuantizedLayout,
    /// True if the head is int8, too.
    pub(crate) head: bool,
}

impl Quantization {
    /// The format of a decoder that keeps the weights as stored.
    pub(crate) fn weight_format(self) -> WeightFormat {
        match self {
            Self::Int8(Int8 { head: true, .. }) => WeightFormat::Packed(PackedFormat::Int8),
            Self::Int8(_) => WeightFormat::PackedLayers(PackedFormat::Int8),
            Self::Mxfp4 => WeightFormat::Stored(StoredFormats {
                layers: PackedFormat::Mxfp4,
                embedding: None,
                head: None,
            }),
        }
    }
}

/// Name of the int8 values of matrix `name`.
pub(super) fn values_name(layout: QuantizedLayout, name: &str) -> String {
    match layout {
        QuantizedLayout::Words => format!("{name}_packed"),
        QuantizedLayout::Bytes => name.to_owned(),
    }
}

/// Name of the scales of matrix `name`.
pub(super) fn scales_name(name: &str) -> String {
    format!("{name}_scale")
}

/// Name of the shape tensor of matrix `name` in words.
pub(super) fn shape_name(name: &str) -> String {
    format!("{name}_shape")
}

/// Returns true if `name` is the scale or shape tensor of a packed matrix.
pub(crate) fn is_companion(name: &str) -> bool {
    name.ends_with("_scale") || name.ends_with("_shape")
}

/// Quantization of a store in int8 and the parameters of the model to load.
pub(super) struct Quantized {
    pub(super) int8: Int8,
    pub(super) parameters: Parameters,
}

/// Rows of a packed matrix that form a parameter.
struct MatrixRows {
    /// Outputs of the parameter.
    outputs: Range<usize>,
    /// Outputs of the matrix.
    all_outputs: usize,
    inputs: usize,
}

impl<S: Fn(&str) -> Option<Source>> Loader<'_, S> {
    /// Reads the packed matrix `[out, in]` of the parameter at `path`; returns `None` if the store has the parameter in
    /// floating point.
    pub(super) fn packed(
        &mut self,
        path: &str,
        shape: &[usize],
    ) -> Result<Option<PackedMatrix>, WeightsError> {
        let Some(quantized) = &self.quantized else {
            return Ok(None);
        };
        let Int8 { layout, head } = quantized.int8;
        let range = self.parts.row_range(path);
        let rows = match (quantized.parameters.role(path), shape) {
            (
                Some(ParameterRole::Matrix | ParameterRole::FusedMatrix { .. }),
                &[inputs, outputs],
            ) => MatrixRows {
                outputs: 0..outputs,
                all_outputs: outputs,
                inputs,
            },
            (Some(ParameterRole::Head), &[outputs, inputs]) if head => MatrixRows {
                outputs: range.start..range.start + outputs,
                all_outputs: range.whole_shape(shape)[0],
                inputs,
            },
            _ => return Ok(None),
        };
        let whole = range.whole.to_owned();
        let source = (self.naming.source)(&whole);
        let source = source.ok_or(WeightsError::Missing { name: whole })?;
        self.read_packed(layout, &source, &rows).map(Some)
    }

    fn read_packed(
        &mut self,
        layout: QuantizedLayout,
        source: &Source,
        rows: &MatrixRows,
    ) -> Result<PackedMatrix, WeightsError> {
        let MatrixRows {
            outputs, inputs, ..
        } = rows;
        let inputs = *inputs;
        let (format, shape) = (PackedFormat::Int8, [outputs.len(), inputs]);
        let mut packed = vec![0; format.bytes(shape)];
        let packed_row = |output: usize| {
            let bytes = format.row_bytes(inputs);
            let start = (output - outputs.start) * bytes;
            start..start + bytes
        };
        // The rows of the matrix are mapped like the elements of a vector of its outputs.
        for stored in source.stored(&[rows.all_outputs]) {
            let width = stored.len();
            let (dtype, columns, flip) = match layout {
                QuantizedLayout::Words => (Dtype::I32, inputs.div_ceil(VALUES_PER_WORD), OFFSET),
                QuantizedLayout::Bytes => (Dtype::I8, inputs, 0),
            };
            let values = self.name_in_file(&values_name(layout, &stored.name));
            check_shape(self.store, &values, &[width, columns])?;
            let row_bytes = columns * dtype.bitsize() / 8;
            self.store
                .read_bytes(&values, dtype, 0..width, &mut |run, bytes| {
                    stored.for_each_element(run.clone(), |own, row| {
                        if outputs.contains(&own) {
                            let from = (row - run.start) * row_bytes;
                            let from = &bytes[from..from + inputs];
                            let to = &mut packed[packed_row(own)][INT8_SCALE..];
                            for (to, from) in to.iter_mut().zip(from) {
                                *to = from ^ flip;
                            }
                        }
                    });
                })?;
            let scales = self.name_in_file(&scales_name(&stored.name));
            check_shape(self.store, &scales, &[width, 1])?;
            let mut invalid = None;
            self.store.read_rows(&scales, 0..width, &mut |run, read| {
                stored.for_each_element(run.clone(), |own, row| {
                    let scale = read[row - run.start];
                    if !scale.is_finite() {
                        invalid.get_or_insert((row, scale));
                    }
                    if outputs.contains(&own) {
                        packed[packed_row(own)][..INT8_SCALE].copy_from_slice(&scale.to_le_bytes());
                    }
                });
            })?;
            if let Some((row, scale)) = invalid {
                return Err(WeightsError::Scale {
                    name: scales,
                    row,
                    scale,
                });
            }
            self.unused.remove(&values);
            self.unused.remove(&scales);
            if layout == QuantizedLayout::Words {
                self.check_written_shape(&stored.name, [width, inputs])?;
            }
        }
        PackedMatrix::new(format, shape, packed).map_err(|reason| WeightsError::Packing {
            name: source.names().next().unwrap_or_default().to_owned(),
            source: reason,
        })
    }

    /// Checks the shape that a file declares for a matrix in words.
    fn check_written_shape(
        &mut self,
        name: &str,
        expected: [usize; 2],
    ) -> Result<(), WeightsError> {
        let name = self.name_in_file(&shape_name(name));
        check_shape(self.store, &name, &[2])?;
        let mut found = Vec::new();
        self.store
            .read_bytes(&name, Dtype::I64, 0..2, &mut |_, bytes| {
                let (numbers, _) = bytes.as_chunks::<8>();
                found.extend(numbers.iter().map(|&number| i64::from_le_bytes(number)));
            })?;
        let expected = expected.map(|size| size as i64);
        if found != expected {
            return Err(WeightsError::WrittenShape {
                name,
                found,
                expected: expected.to_vec(),
            });
        }
        self.unused.remove(&name);
        Ok(())
    }
}

/// Unpacks a matrix to f32 in the layout of its parameter.
pub(super) fn unpacked(matrix: &PackedMatrix, role: &ParameterRole) -> Vec<f32> {
    let [outputs, inputs] = matrix.shape();
    let mut values = vec![0.0; outputs * inputs];
    if *role == ParameterRole::Head {
        emberlm_kernels::cpu::packed::unpack(matrix.view(), &mut values);
        return values;
    }
    let mut row = vec![0.0; inputs];
    for output in 0..outputs {
        unpack_row(matrix.view(), output, &mut row);
        for (input, value) in row.iter().enumerate() {
            values[input * outputs + output] = *value;
        }
    }
    values
}
