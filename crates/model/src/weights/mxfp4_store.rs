//! Experts in MXFP4, as gpt-oss' checkpoints store them.
//!
//! | tensor | type and shape | contents |
//! |---|---|---|
//! | `NAME_blocks` | U8 `[experts, out, in / 32, 16]` | a byte has the codes of two consecutive weights, the first in the lower half |
//! | `NAME_scales` | U8 `[experts, out, in / 32]` | the exponents of the blocks' scales, with 127 added |
//!
//! Both are shown as one matrix `NAME` of all experts, `[experts · out, in]`, in blocks of [`PackedFormat::Mxfp4`], which hold the
//! same numbers in another order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::packed::{PackedView, unpack};
use safetensors::Dtype;

use super::element::Element;
use super::safetensors_store::SafetensorsStore;
use super::store::{TensorStore, check_shape};
use crate::error::WeightsError;

/// Ends of the names of a matrix' two tensors.
const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";
/// Weights per block.
const LEN: usize = PackedFormat::Mxfp4.block_len();
/// Bytes with the codes of a block.
const CODES: usize = LEN / 2;
/// The exponent that is not a number.
const NAN: u8 = u8::MAX;

/// The tensors of safetensors files with experts in MXFP4.
pub(crate) struct Mxfp4Store {
    files: SafetensorsStore,
    matrices: BTreeMap<String, Matrix>,
    /// The tensors of the matrices.
    parts: BTreeSet<String>,
}

/// The matrices of all experts, one below the other.
struct Matrix {
    /// `[experts · out, in]`.
    shape: [usize; 2],
    /// The outputs of an expert.
    outputs: usize,
}

impl Mxfp4Store {
    /// Finds the matrices of some files.
    ///
    /// # Errors
    /// The scales of a matrix are missing, or their shape is not that of its blocks.
    pub(crate) fn new(files: SafetensorsStore) -> Result<Self, WeightsError> {
        let (mut matrices, mut parts) = (BTreeMap::new(), BTreeSet::new());
        for blocks in files.names() {
            let Some(name) = blocks.strip_suffix(BLOCKS) else {
                continue;
            };
            let Some(&[experts, outputs, count, CODES]) = files.shape(blocks) else {
                continue;
            };
            let scales = scales_of(name);
            check_shape(&files, &scales, &[experts, outputs, count])?;
            let shape = [experts * outputs, count * LEN];
            matrices.insert(name.to_owned(), Matrix { shape, outputs });
            parts.extend([blocks.to_owned(), scales]);
        }
        Ok(Self {
            files,
            matrices,
            parts,
        })
    }

    /// Calls `read` with the blocks of the rows of one expert at a time.
    fn read_blocks(
        &self,
        name: &str,
        matrix: &Matrix,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let [_, columns] = matrix.shape;
        let (outputs, per_row) = (matrix.outputs.max(1), columns / LEN);
        let [blocks, scales] = [format!("{name}{BLOCKS}"), scales_of(name)];
        for expert in rows.start / outputs..rows.end.div_ceil(outputs) {
            let first = expert * outputs;
            let own = rows.start.max(first)..rows.end.min(first + outputs);
            let range = (own.start - first) * per_row..(own.end - first) * per_row;
            let mut exponents = Vec::new();
            let of_expert = expert..expert + 1;
            self.files
                .read_bytes(&scales, Dtype::U8, of_expert.clone(), &mut |_, bytes| {
                    exponents.extend_from_slice(&bytes[range.clone()]);
                })?;
            if let Some(at) = exponents.iter().position(|exponent| *exponent == NAN) {
                return Err(WeightsError::Scale {
                    name: scales,
                    row: own.start + at / per_row.max(1),
                    scale: f32::NAN,
                });
            }
            let mut packed = Vec::with_capacity(own.len() * PackedFormat::Mxfp4.row_bytes(columns));
            self.files
                .read_bytes(&blocks, Dtype::U8, of_expert, &mut |_, bytes| {
                    let (codes, _) = bytes.as_chunks::<CODES>();
                    for (codes, exponent) in codes[range.clone()].iter().zip(&exponents) {
                        packed.push(*exponent);
                        packed.extend_from_slice(&in_halves(codes));
                    }
                })?;
            read(own, &packed);
        }
        Ok(())
    }
}

impl TensorStore for Mxfp4Store {
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        let others = self
            .files
            .names()
            .filter(|name| !self.parts.contains(*name));
        Box::new(others.chain(self.matrices.keys().map(String::as_str)))
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        match self.matrices.get(name) {
            Some(matrix) => Some(&matrix.shape),
            None => self.files.shape(name),
        }
    }

    fn element(&self, name: &str) -> Option<Element> {
        self.files.element(name)
    }

    fn total_bytes(&self) -> u64 {
        self.files.total_bytes()
    }

    fn read_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), WeightsError> {
        let Some(matrix) = self.matrices.get(name) else {
            return self.files.read_rows(name, rows, read);
        };
        let [_, columns] = matrix.shape;
        let (mut values, mut failure) = (Vec::new(), None);
        self.read_blocks(name, matrix, rows, &mut |run, bytes| {
            values.resize(run.len() * columns, 0.0);
            match PackedView::new(PackedFormat::Mxfp4, [run.len(), columns], bytes) {
                Ok(blocks) => {
                    unpack(blocks, &mut values);
                    read(run, &values);
                }
                Err(error) => failure = Some(error),
            }
        })?;
        failure.map_or(Ok(()), |source| {
            Err(WeightsError::Packing {
                name: name.to_owned(),
                source,
            })
        })
    }

    fn read_bytes(
        &self,
        name: &str,
        dtype: Dtype,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        self.files.read_bytes(name, dtype, rows, read)
    }

    fn packed_format(&self, name: &str) -> Option<PackedFormat> {
        match self.matrices.contains_key(name) {
            true => Some(PackedFormat::Mxfp4),
            false => self.files.packed_format(name),
        }
    }

    fn read_packed_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        match self.matrices.get(name) {
            Some(matrix) => self.read_blocks(name, matrix, rows, read),
            None => self.files.read_packed_rows(name, rows, read),
        }
    }
}

fn scales_of(name: &str) -> String {
    format!("{name}{SCALES}")
}

/// The codes of a block with those of weight `i` and weight `i + 16` in a byte, from those of consecutive weights.
fn in_halves(pairs: &[u8; CODES]) -> [u8; CODES] {
    let code = |weight: usize| pairs[weight / 2] >> (weight % 2 * 4) & 15;
    std::array::from_fn(|byte| code(byte) | code(byte + CODES) << 4)
}
