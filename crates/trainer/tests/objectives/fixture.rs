//! The fixtures of objectives: files of tensors, AdamW's settings, and gradients under published names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::TransformerConfig;
use emberlm_model::weights::{Element, ParamMapper, map_params, published};
use emberlm_trainer::config::AdamWConfig;
use emberlm_trainer::{OptimizerConfig, TrainConfig, TrainingModel};
use safetensors::SafeTensors;
use serde_json::Value;

/// The tensors of a file, as f64, and its metadata.
pub(super) struct File {
    bytes: Vec<u8>,
}

impl File {
    pub(super) fn read(path: PathBuf) -> Self {
        Self {
            bytes: std::fs::read(path).unwrap(),
        }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors().tensor(name).is_ok()
    }

    pub(super) fn values(&self, name: &str) -> (Vec<f64>, Vec<usize>) {
        let tensors = self.tensors();
        let tensor = tensors.tensor(name).unwrap();
        let data = tensor.data();
        let values = match tensor.dtype() {
            safetensors::Dtype::F32 => {
                let chunks = data.as_chunks::<4>().0.iter();
                chunks
                    .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                    .collect()
            }
            safetensors::Dtype::F64 => {
                let chunks = data.as_chunks::<8>().0.iter();
                chunks.map(|bytes| f64::from_le_bytes(*bytes)).collect()
            }
            _ => {
                let chunks = data.as_chunks::<8>().0.iter();
                chunks
                    .map(|bytes| i64::from_le_bytes(*bytes) as f64)
                    .collect()
            }
        };
        (values, tensor.shape().to_vec())
    }

    pub(super) fn integers<B: Backend>(&self, name: &str) -> Tensor<B, 2, Int> {
        let (values, shape) = self.values(name);
        let values: Vec<i32> = values.into_iter().map(|x| x as i32).collect();
        // The labels of texts are a vector.
        let shape = [shape[0], shape.get(1).copied().unwrap_or(1)];
        Tensor::from_data(TensorData::new(values, shape), &Default::default())
    }

    pub(super) fn metadata(&self, name: &str) -> String {
        let (_, header) = SafeTensors::read_metadata(&self.bytes).unwrap();
        header.metadata().clone().unwrap()[name].clone()
    }
}

/// The settings of a fixture's steps.
pub(super) fn adamw(settings: &Value) -> TrainConfig {
    let number = |value: &Value| value.as_f64().unwrap();
    TrainConfig {
        clip_norm: number(&settings["clip"]),
        optimizer: OptimizerConfig::AdamW(AdamWConfig {
            beta1: number(&settings["betas"][0]),
            beta2: number(&settings["betas"][1]),
            epsilon: number(&settings["eps"]),
            weight_decay: number(&settings["weight_decay"]),
            ..AdamWConfig::default()
        }),
        ..TrainConfig::default()
    }
}

pub(super) fn value<B: Backend>(tensor: Tensor<B, 1>) -> f64 {
    f64::from(tensor.into_data().iter::<f32>().next().unwrap())
}

/// Puts the gradients in the place of the parameters.
pub(super) struct Gradients<'a>(pub(super) &'a GradientsParams);

impl<B: Backend> ParamMapper<B> for Gradients<'_> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let gradient = self.0.get::<B, D>(id);
        let gradient = gradient.unwrap_or_else(|| panic!("{path} has no gradient"));
        assert_eq!(gradient.dims(), value.dims(), "{path}");
        gradient
    }
}

/// The gradients of a decoder under the names that transformers has for its parameters, which are `names`.
pub(super) fn published_gradients<B: Backend>(
    config: &TransformerConfig,
    model: &TrainingModel<B>,
    grads: &GradientsParams,
    names: &[String],
) -> BTreeMap<String, Vec<f32>> {
    let decoder = map_params(model.clone(), &mut Gradients(grads)).model;
    let source = |path: &str| config.family().source(config, path);
    let found = published(&decoder, Element::F32, source);
    assert_eq!(found.len(), names.len());
    let named = |name: &String| {
        // transformers prefixes the names of GPT-2's files.
        let tensor = found.iter().find(|tensor| name.ends_with(tensor.name()));
        (name.clone(), tensor.unwrap().values().values)
    };
    names.iter().map(named).collect()
}
