//! Locations of tensors.

use crate::tensor_type::TensorType;

/// Name, shape, type and location of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name.
    pub name: String,
    /// Sizes, the slowest-varying first, as in PyTorch. Files list them in the opposite order.
    pub shape: Vec<usize>,
    /// Element type.
    pub tensor_type: TensorType,
    /// Index of the file in a split model.
    pub(crate) file: usize,
    /// Position of the first byte in the file.
    pub(crate) start: u64,
    /// Size of a row in bytes.
    pub(crate) row_bytes: usize,
}

impl TensorInfo {
    /// Number of elements of a row: the last size.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows: the product of the other sizes. Each element of a vector is one row, unless the type
    /// has blocks of several elements.
    pub fn rows(&self) -> usize {
        match (self.shape.as_slice(), self.tensor_type.block_len()) {
            ([elements], 1) => *elements,
            ([], _) => 1,
            ([rows @ .., _], _) => rows.iter().product(),
        }
    }

    /// Size in bytes of a row, as [`TensorInfo::rows`] counts them.
    pub fn row_bytes(&self) -> usize {
        match (self.shape.len(), self.tensor_type.block_len()) {
            (0 | 1, 1) => self.tensor_type.block_bytes(),
            _ => self.row_bytes,
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.rows() as u64 * self.row_bytes() as u64
    }
}

impl TensorInfo {
    /// Checks the shape and locates the tensor at byte `start`.
    pub(crate) fn new(
        name: String,
        shape: Vec<usize>,
        tensor_type: TensorType,
        start: u64,
    ) -> Result<Self, String> {
        let columns = shape.last().copied().unwrap_or(1);
        let Some(row_bytes) = tensor_type.row_bytes(columns) else {
            return Err(format!(
                "its rows have {columns} elements, which must be a multiple of the {} of a block of {}",
                tensor_type.block_len(),
                tensor_type.name()
            ));
        };
        let rows = shape.iter().rev().skip(1);
        let mut bytes = Some(row_bytes as u64);
        for &size in rows {
            bytes = bytes.and_then(|bytes| bytes.checked_mul(size as u64));
        }
        if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(format!("its shape {shape:?} is too large"));
        }
        Ok(Self {
            name,
            shape,
            tensor_type,
            file: 0,
            start,
            row_bytes,
        })
    }
}
