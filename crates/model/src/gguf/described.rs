//! The description of a model by metadata and tensors: that of a file, or of one that is about to be written.

use emberlm_gguf::{GgufError, GgufFile, GgufHeader, Metadata, TensorInfo, TensorType};

/// Metadata and tensors that describe a model.
pub(crate) trait Described {
    /// The metadata.
    fn metadata(&self) -> &Metadata;

    /// Finds a tensor by its name.
    fn tensor(&self, name: &str) -> Option<&TensorInfo>;

    /// Reads a vector; `None` if there is no such tensor.
    fn vector(&self, name: &str) -> Result<Option<Vec<f32>>, GgufError>;
}

impl Described for GgufFile {
    fn metadata(&self) -> &Metadata {
        Self::metadata(self)
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        Self::tensor(self, name)
    }

    fn vector(&self, name: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let Some(tensor) = Self::tensor(self, name) else {
            return Ok(None);
        };
        if tensor.tensor_type != TensorType::F32 || tensor.shape.len() != 1 {
            return Err(GgufError::Tensor {
                name: name.to_owned(),
                reason: "it must be a vector of type F32".to_owned(),
            });
        }
        let mut values = Vec::new();
        self.read_rows(tensor, 0..tensor.rows(), tensor.rows(), &mut |_, bytes| {
            let (numbers, _) = bytes.as_chunks::<4>();
            values.extend(numbers.iter().map(|&number| f32::from_le_bytes(number)));
        })?;
        Ok(Some(values))
    }
}

/// A file that is about to be written.
pub(crate) struct Planned<'a> {
    pub(crate) header: &'a GgufHeader,
    /// Vectors that are part of the description, by name.
    pub(crate) vectors: &'a [(String, Vec<f32>)],
}

impl Described for Planned<'_> {
    fn metadata(&self) -> &Metadata {
        self.header.metadata()
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let mut tensors = self.header.tensors().iter();
        tensors.find(|tensor| tensor.name == name)
    }

    fn vector(&self, name: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let found = self.vectors.iter().find(|(found, _)| found == name);
        Ok(found.map(|(_, values)| values.clone()))
    }
}
