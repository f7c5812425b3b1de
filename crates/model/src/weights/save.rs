//! Writing weights.

use std::collections::HashMap;
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use safetensors::{Dtype, View};
use std::borrow::Cow;

use super::{ParamVisitor, visit_params};
use crate::error::WeightsError;

/// A tensor on the host: shape and f32 values.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements, row by row.
    pub values: Vec<f32>,
}

impl View for &HostTensor {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(
            self.values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        )
    }

    fn data_len(&self) -> usize {
        self.values.len() * 4
    }
}

/// Every parameter of a module on the host, by path, in the module's order.
pub fn named_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, HostTensor)> {
    let mut collected = Collect(Vec::new());
    visit_params(module, &mut collected);
    collected.0
}

struct Collect(Vec<(String, HostTensor)>);

impl<B: Backend> ParamVisitor<B> for Collect {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let shape = value.dims().to_vec();
        let values = value.into_data().iter::<f32>().collect();
        self.0.push((path.to_owned(), HostTensor { shape, values }));
    }
}

/// Writes tensors as a safetensors file in f32.
///
/// # Errors
/// The file cannot be written.
pub fn save_own(
    tensors: &[(String, HostTensor)],
    metadata: HashMap<String, String>,
    file: &Path,
) -> Result<(), WeightsError> {
    let views = tensors.iter().map(|(name, tensor)| (name, tensor));
    safetensors::serialize_to_file(views, Some(metadata), file).map_err(|error| WeightsError::Io {
        path: file.to_owned(),
        reason: error.to_string(),
    })
}
