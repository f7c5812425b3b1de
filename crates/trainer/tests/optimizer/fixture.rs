//! The fixture `fixtures/optimizers.safetensors` and the decoder it was computed for.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::weights::{
    ParamMapper, ParamVisitor, Parts, map_params, part_of, visit_params, whole_path,
};
use emberlm_model::{Transformer, TransformerConfig, families};
use emberlm_trainer::config::{AdamWConfig, LionConfig, MuonConfig, NorMuonConfig, SoapConfig};
use emberlm_trainer::optimizer::Optimizer;
use emberlm_trainer::{Groups, OptimizerConfig, OptimizerKind, TrainConfig};
use safetensors::SafeTensors;
use serde_json::Value;

const BYTES: &[u8] = include_bytes!("../fixtures/optimizers.safetensors");

pub type Training<B> = Autodiff<B>;

/// A tensor of the fixture.
pub fn floats(name: &str) -> Vec<f32> {
    floats_in(BYTES, name)
}

/// A tensor of a safetensors file.
pub fn floats_in(file: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let view = tensors.tensor(name).unwrap();
    let (chunks, _) = view.data().as_chunks::<4>();
    chunks
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

pub fn metadata(key: &str) -> Value {
    metadata_in(BYTES, key)
}

pub fn metadata_in(file: &[u8], key: &str) -> Value {
    let (_, header) = SafeTensors::read_metadata(file).unwrap();
    serde_json::from_str(&header.metadata().as_ref().unwrap()[key]).unwrap()
}

/// The learning rates of the ten updates.
pub fn rates() -> Vec<f64> {
    let settings = metadata("settings");
    let rates = settings["rates"].as_array().unwrap().iter();
    rates.map(|rate| rate.as_f64().unwrap()).collect()
}

/// The fixture's settings, with its own groups or the default ones.
pub fn config(optimizer: OptimizerKind, own_groups: bool) -> TrainConfig {
    let settings = metadata("settings");
    let number = |key: &str| settings[key].as_f64().unwrap();
    let [beta1, beta2, epsilon] = ["beta1", "beta2", "epsilon"].map(number);
    let [momentum, weight_decay] = ["momentum", "weight_decay"].map(number);
    let config = TrainConfig {
        optimizer: match optimizer {
            OptimizerKind::AdamW => OptimizerConfig::AdamW(AdamWConfig {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                ..AdamWConfig::default()
            }),
            OptimizerKind::Muon => OptimizerConfig::Muon(MuonConfig {
                momentum,
                beta1,
                beta2,
                epsilon,
                weight_decay,
                ..MuonConfig::default()
            }),
            OptimizerKind::NorMuon => OptimizerConfig::NorMuon(NorMuonConfig {
                momentum,
                beta1,
                beta2,
                epsilon,
                weight_decay,
                ..NorMuonConfig::default()
            }),
            OptimizerKind::Soap => OptimizerConfig::Soap(SoapConfig {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                precondition_frequency: 3,
                ..SoapConfig::default()
            }),
            OptimizerKind::Lion => OptimizerConfig::Lion(LionConfig {
                beta1,
                beta2,
                weight_decay,
                ..LionConfig::default()
            }),
        },
        groups: match own_groups {
            true => serde_json::from_value(metadata("groups")).unwrap(),
            false => Groups::default(),
        },
        ..TrainConfig::default()
    };
    config.check().unwrap();
    config
}

/// The decoder before the updates.
pub fn start<B: Backend>() -> Transformer<Training<B>> {
    let decoder = decoder_config().init::<Training<B>>(1, &Default::default());
    let mut start = Start(0);
    let decoder = map_params(decoder, &mut start);
    let tensors = SafeTensors::deserialize(BYTES).unwrap();
    let named = tensors.names().into_iter();
    assert_eq!(start.0, named.filter(|n| n.starts_with("start.")).count());
    decoder
}

/// The fixture's model.
pub fn decoder_config() -> TransformerConfig {
    let mut config = families::preset("qwen2").unwrap().config;
    config.vocab_size = Some(13);
    config.seq_len = 4;
    config.d_model = 8;
    config.n_layers = 1;
    config.heads = 4;
    config.kv_heads = Some(2);
    config.head_dim = Some(2);
    config.head.tied = false;
    config.feed_forward.width = Some(12);
    TransformerConfig::try_from(config).unwrap()
}

struct Start(usize);

impl<B: Backend> ParamMapper<Training<B>> for Start {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<Training<B>, D>,
    ) -> Tensor<Training<B>, D> {
        self.0 += 1;
        let data = TensorData::new(floats(&format!("start.{path}")), value.shape());
        Tensor::from_data(data, &value.device()).require_grad()
    }
}

/// The gradients of an update, scaled by a factor.
pub fn gradients<B: Backend>(
    decoder: &Transformer<Training<B>>,
    step: usize,
    factor: f32,
) -> GradientsParams {
    let mut given = Given {
        parts: Parts::of::<Training<B>, _>(decoder),
        step,
        factor,
        grads: GradientsParams::new(),
    };
    visit_params(decoder, &mut given);
    given.grads
}

struct Given {
    parts: Parts,
    step: usize,
    factor: f32,
    grads: GradientsParams,
}

impl<B: Backend> ParamVisitor<Training<B>> for Given {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<Training<B>, D>) {
        let shape = value.shape();
        let count = shape.num_elements();
        let all = floats(&format!("grad.{}", whole_path(path)));
        // For a part of a table, take the gradient of its rows.
        let rows =
            part_of(path).and_then(|(whole, number)| Some((self.parts.rows(whole)?, number)));
        let (start, whole) = rows.map_or((0, count), |(rows, number)| {
            let width = count / rows[number];
            let [before, all] = [&rows[..number], rows].map(|rows| rows.iter().sum::<usize>());
            (before * width, all * width)
        });
        let own = all[self.step * whole + start..][..count].iter();
        let own = own.map(|x| x * self.factor).collect();
        let grad = Tensor::<B, D>::from_data(TensorData::new(own, shape), &value.device());
        self.grads.register(id, grad);
    }
}

/// An optimizer of the fixture's model.
pub fn optimizer<B: Backend>(config: &TrainConfig) -> Optimizer<B> {
    Optimizer::new(config, start::<B>().parameters())
}

/// Applies some of the ten updates.
pub fn updated<B: Backend>(
    optimizer: &mut Optimizer<B>,
    decoder: Transformer<Training<B>>,
    steps: Range<usize>,
) -> Transformer<Training<B>> {
    updated_by(optimizer, decoder, steps, |decoder| decoder)
}

/// Applies some of the ten updates to a module that is or contains the decoder.
pub fn updated_by<B: Backend, M: AutodiffModule<Training<B>>>(
    optimizer: &mut Optimizer<B>,
    mut module: M,
    steps: Range<usize>,
    decoder: impl Fn(&M) -> &Transformer<Training<B>>,
) -> M {
    let rates = rates();
    for step in steps {
        let grads = gradients(decoder(&module), step, 1.0);
        module = optimizer.update::<Training<B>, _>(module, grads, None, rates[step]);
    }
    module
}

/// The parameters by path.
pub fn values<B: Backend>(decoder: &Transformer<B>) -> BTreeMap<String, Vec<f32>> {
    let mut values = Values(BTreeMap::new());
    visit_params(decoder, &mut values);
    values.0
}

struct Values(BTreeMap<String, Vec<f32>>);

impl<B: Backend> ParamVisitor<B> for Values {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let value = value.into_data().iter::<f32>().collect();
        self.0.insert(path.to_owned(), value);
    }
}
