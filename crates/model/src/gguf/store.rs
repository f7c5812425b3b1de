//! The tensors of a GGUF file as a [`TensorStore`].

use std::collections::BTreeMap;
use std::ops::Range;

use emberlm_gguf::{GgufError, GgufFile, TensorInfo, TensorType};
use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::packed::{PackedView, unpack};

use super::architecture::Architecture;
use crate::error::WeightsError;
use crate::weights::{Element, TensorStore};

/// Maximum size in bytes of a decoded run of rows.
const RUN_BYTES: usize = 4 << 20;
/// Matrices with one row that files store as vectors.
const ROW_MATRIX: &str = ".ffn_gate_inp_shexp.weight";
/// End of the names of vectors of all experts, which files store as a matrix.
pub(crate) const EXPERT_BIASES: &str = "_exps.bias";

/// The tensors of a GGUF file. A tensor of more than two dimensions is a matrix here: the matrices of all experts, one
/// below the other. The vectors of all experts are one vector.
pub(crate) struct GgufStore<'a> {
    file: &'a GgufFile,
    shapes: BTreeMap<&'a str, Vec<usize>>,
    architecture: &'static Architecture,
}

impl<'a> GgufStore<'a> {
    /// The tensors of the first `blocks` blocks, and those outside of blocks.
    pub(crate) fn new(
        file: &'a GgufFile,
        architecture: &'static Architecture,
        blocks: u64,
    ) -> Self {
        let shape = |tensor: &TensorInfo| match tensor.shape.as_slice() {
            &[columns] if tensor.name.ends_with(ROW_MATRIX) => vec![1, columns],
            shape if tensor.name.ends_with(EXPERT_BIASES) => vec![shape.iter().product()],
            [rows @ .., columns] if rows.len() > 1 => {
                vec![rows.iter().product(), *columns]
            }
            shape => shape.to_vec(),
        };
        let is_read = |tensor: &&TensorInfo| block_of(&tensor.name).is_none_or(|of| of < blocks);
        let tensors = file.tensors().filter(is_read);
        Self {
            file,
            shapes: tensors
                .map(|tensor| (tensor.name.as_str(), shape(tensor)))
                .collect(),
            architecture,
        }
    }

    fn find(&self, name: &str) -> Result<&'a TensorInfo, WeightsError> {
        let found = self.file.tensor(name);
        found.ok_or_else(|| WeightsError::Missing {
            name: name.to_owned(),
        })
    }
}

impl TensorStore for GgufStore<'_> {
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.shapes.keys().copied())
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.shapes.get(name).map(Vec::as_slice)
    }

    fn element(&self, name: &str) -> Option<Element> {
        element(self.file.tensor(name)?.tensor_type)
    }

    fn total_bytes(&self) -> u64 {
        self.file.tensors().map(TensorInfo::bytes).sum()
    }

    fn read_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), WeightsError> {
        let tensor = self.find(name)?;
        // A vector of blocks, or a vector that is a matrix of one row, has another number of rows here.
        let own = self
            .shape(name)
            .map_or(0, |shape| shape.first().copied().unwrap_or(1));
        let whole = own != tensor.rows();
        let stored = match whole {
            true => 0..tensor.rows(),
            false => rows.clone(),
        };
        let columns = match tensor.rows() {
            0 => 0,
            count => tensor.shape.iter().product::<usize>() / count,
        };
        let at_once = (RUN_BYTES / (columns * size_of::<f32>()).max(1)).max(1);
        let mut values = Vec::new();
        let encoding = self.architecture.encoding(name);
        let mut failure = None;
        self.file
            .read_rows(tensor, stored, at_once, &mut |run, bytes| {
                if !whole {
                    values.clear();
                }
                if let Err(error) = decode(tensor, bytes, columns, &mut values) {
                    failure.get_or_insert(error);
                    return;
                }
                if !whole {
                    let decoded = encoding.decode(&mut values);
                    if let Err(rule) = decoded {
                        failure.get_or_insert(in_tensor(name, rule));
                        return;
                    }
                    read(run, &values);
                }
            })
            .map_err(WeightsError::Gguf)?;
        if let Some(error) = failure {
            return Err(error);
        }
        if whole {
            let decoded = encoding.decode(&mut values);
            decoded.map_err(|rule| in_tensor(name, rule))?;
            let row = values.len() / own.max(1);
            read(rows.clone(), &values[rows.start * row..rows.end * row]);
        }
        Ok(())
    }

    fn packed_format(&self, name: &str) -> Option<PackedFormat> {
        held_format(self.file.tensor(name)?)
    }

    fn read_packed_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[u8]),
    ) -> Result<(), WeightsError> {
        let tensor = self.find(name)?;
        let at_once = (RUN_BYTES / tensor.row_bytes().max(1)).max(1);
        let read = self.file.read_rows(tensor, rows, at_once, read);
        read.map_err(WeightsError::Gguf)
    }
}

/// The index of the block in the name of a tensor.
pub(super) fn block_of(name: &str) -> Option<u64> {
    let (index, _) = name.strip_prefix("blk.")?.split_once('.')?;
    index.parse().ok()
}

fn in_tensor(name: &str, rule: &str) -> WeightsError {
    WeightsError::Gguf(GgufError::Tensor {
        name: name.to_owned(),
        reason: rule.to_owned(),
    })
}

/// The format of a matrix in blocks or 16 bits; `None` for other tensors.
pub(crate) fn held_format(tensor: &TensorInfo) -> Option<PackedFormat> {
    let sixteen_bits = || match tensor.shape.len() {
        ..=1 => None,
        _ => element(tensor.tensor_type)?.packed_format(),
    };
    packed_format(tensor.tensor_type).or_else(sixteen_bits)
}

/// The element type of a tensor that is not in blocks.
pub(crate) fn element(tensor_type: TensorType) -> Option<Element> {
    match tensor_type {
        TensorType::F32 => Some(Element::F32),
        TensorType::F16 => Some(Element::F16),
        TensorType::Bf16 => Some(Element::Bf16),
        _ => None,
    }
}

/// Decodes rows of `columns` elements and appends the values.
fn decode(
    tensor: &TensorInfo,
    bytes: &[u8],
    columns: usize,
    values: &mut Vec<f32>,
) -> Result<(), WeightsError> {
    if let Some(element) = element(tensor.tensor_type) {
        element.decode(bytes, values);
        return Ok(());
    }
    let Some(format) = packed_format(tensor.tensor_type) else {
        return Err(WeightsError::Type {
            name: tensor.name.clone(),
            found: tensor.tensor_type.name().to_owned(),
            rule: "is not supported".to_owned(),
        });
    };
    let rows = bytes.len() / format.row_bytes(columns).max(1);
    let matrix = PackedView::new(format, [rows, columns], bytes);
    let matrix = matrix.map_err(|source| WeightsError::Packing {
        name: tensor.name.clone(),
        source,
    })?;
    let start = values.len();
    values.resize(start + rows * columns, 0.0);
    unpack(matrix, &mut values[start..]);
    Ok(())
}

/// The format of packed weights with the blocks of a type; `None` for types of single elements.
pub(crate) const fn packed_format(tensor_type: TensorType) -> Option<PackedFormat> {
    Some(match tensor_type {
        TensorType::F32 | TensorType::F16 | TensorType::Bf16 => return None,
        TensorType::Q8_0 => PackedFormat::Q8_0,
        TensorType::Q4_0 => PackedFormat::Q4_0,
        TensorType::Q4_1 => PackedFormat::Q4_1,
        TensorType::Q5_0 => PackedFormat::Q5_0,
        TensorType::Q5_1 => PackedFormat::Q5_1,
        TensorType::Q2K => PackedFormat::Q2K,
        TensorType::Q3K => PackedFormat::Q3K,
        TensorType::Q4K => PackedFormat::Q4K,
        TensorType::Q5K => PackedFormat::Q5K,
        TensorType::Q6K => PackedFormat::Q6K,
        TensorType::Iq4Nl => PackedFormat::Iq4Nl,
        TensorType::Mxfp4 => PackedFormat::Mxfp4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The container and the kernels describe the same blocks, each for its own use.
    #[test]
    fn types_of_files_have_the_blocks_of_packed_formats() {
        let pairs = TensorType::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, packed_format(kind)?)));
        let pairs: Vec<_> = pairs.collect();
        assert_eq!(pairs.len(), 12);
        for (kind, format) in pairs {
            let blocks = [kind.block_len(), kind.block_bytes()];
            assert_eq!(
                blocks,
                [format.block_len(), format.block_bytes()],
                "{}",
                kind.name()
            );
            assert_eq!(kind.name().to_lowercase(), format.name());
        }
    }
}
