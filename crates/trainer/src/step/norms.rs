//! Norms of gradients, updates and activations by layer.
//!
//! The parts before the update are handles of the weights and sums of squares, so weights and training state have the same
//! bits as without norms. The weights before the update are kept until it is complete.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Int, Tensor, TensorPrimitive};
use emberlm_kernels::{Backend, TrainingBackend, ops};
use emberlm_model::nn::probe::{Point, Probe, Site};
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{ModelInput, ModelKind, Tokens};

use crate::objective::model::{TokenBatch, TrainingModel};
use crate::optimizer::EMBEDDINGS;
use crate::read::host_read;
use crate::report::events::LayerNorms;

/// Tokens of the sequence whose activations are measured. They are few, so that the extra pass costs little.
const MOST_TOKENS: usize = 32;

/// The layer of the parameter at `path` ([`LayerNorms::layer`]).
fn layer_of(path: &str) -> String {
    let stack = ["encoder.", "decoder."]
        .into_iter()
        .find(|stack| path.starts_with(stack))
        .unwrap_or_default();
    let mut parts = path[stack.len()..].split('.');
    let layer = match (parts.next(), parts.next()) {
        (Some("blocks"), Some(number)) => format!("blocks.{number}"),
        (Some(first), _) if EMBEDDINGS.contains(&first) => "embedding".to_owned(),
        _ => "final".to_owned(),
    };
    format!("{stack}{layer}")
}

/// The sum of squares of each parameter's gradient, by path, in the order of the parameters.
pub(crate) fn gradient_squares<B: TrainingBackend>(
    model: &TrainingModel<B>,
    grads: &GradientsParams,
) -> Vec<(String, f64)> {
    let mut of = GradientSquares::<'_, B> {
        grads,
        paths: Vec::new(),
        sums: Vec::new(),
    };
    visit_params(model, &mut of);
    of.paths.into_iter().zip(numbers(of.sums)).collect()
}

struct GradientSquares<'a, B: TrainingBackend> {
    grads: &'a GradientsParams,
    paths: Vec<String>,
    sums: Vec<Tensor<B::InnerBackend, 1>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for GradientSquares<'_, B> {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, _value: Tensor<B, D>) {
        if let Some(grad) = self.grads.get::<B::InnerBackend, D>(id) {
            self.paths.push(path.to_owned());
            self.sums.push(ops::sum_of_squares(grad));
        }
    }
}

/// Reads numbers `[1]` from the device in one transfer.
fn numbers<B: Backend>(tensors: Vec<Tensor<B, 1>>) -> Vec<f64> {
    match tensors.is_empty() {
        true => Vec::new(),
        false => host_read(Tensor::cat(tensors, 0)).iter().collect(),
    }
}

/// The norms of a step whose update is not made yet.
pub(crate) struct NormsBeforeUpdate<B: TrainingBackend> {
    /// In the order of the model, with gradients.
    layers: Vec<LayerNorms>,
    activations: RootMeanSquares<B::InnerBackend>,
    weights: TrainedWeights<B::InnerBackend>,
}

impl<B: TrainingBackend> NormsBeforeUpdate<B> {
    /// The norms before the update, from the squares of each parameter's scaled gradient and a micro-batch.
    pub(crate) fn new(
        model: &TrainingModel<B>,
        squares: Vec<(String, f64)>,
        scale: f64,
        batch: Option<&TokenBatch<B>>,
    ) -> Self {
        let mut sums = Sums::default();
        for parameter in model.parameters().iter() {
            sums.at(&layer_of(&parameter.path));
        }
        for (path, of) in squares {
            *sums.at(&layer_of(&path)).get_or_insert(0.0) += of;
        }
        let of_layer = |(layer, squares): (String, Option<f64>)| LayerNorms {
            gradient: squares
                .map(|squares| squares.sqrt() / scale)
                .and_then(finite),
            activation: None,
            update: None,
            layer,
        };
        let mut weights = TrainedWeights::default();
        visit_params(model, &mut weights);
        Self {
            layers: sums.0.into_iter().map(of_layer).collect(),
            activations: batch
                .map_or_else(RootMeanSquares::default, |batch| activations(model, batch)),
            weights,
        }
    }

    /// The norms after the update. Everything but the gradients is read from the device at once.
    pub(crate) fn finish(self, model: &TrainingModel<B>) -> Vec<LayerNorms> {
        let Self {
            mut layers,
            activations,
            weights,
        } = self;
        let [updates, weights, activations] = B::run(|| {
            let mut of = UpdateSquares {
                before: weights,
                layers: Vec::new(),
                updates: Vec::new(),
                weights: Vec::new(),
            };
            visit_params(model, &mut of);
            let all = [of.updates, of.weights, activations.values].concat();
            let mut read = numbers(all).into_iter();
            [&of.layers, &of.layers, &activations.layers].map(|layers| {
                let mut sums = Sums::default();
                for (layer, number) in layers.iter().zip(read.by_ref().take(layers.len())) {
                    *sums.at(layer).get_or_insert(0.0) += number;
                }
                sums
            })
        });
        for layer in &mut layers {
            let ratio = updates.of(&layer.layer).zip(weights.of(&layer.layer));
            layer.update = ratio.and_then(|(update, weights)| finite((update / weights).sqrt()));
            layer.activation = activations.of(&layer.layer).and_then(finite);
        }
        layers
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Sums by layer, in the order in which the layers were first named.
#[derive(Default)]
struct Sums(Vec<(String, Option<f64>)>);

impl Sums {
    fn at(&mut self, layer: &str) -> &mut Option<f64> {
        let known = self.0.iter().position(|(of, _)| of == layer);
        let place = known.unwrap_or_else(|| {
            self.0.push((layer.to_owned(), None));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    fn of(&self, layer: &str) -> Option<f64> {
        self.0.iter().find(|(of, _)| of == layer)?.1
    }
}

/// Handles of the trained weights.
struct TrainedWeights<B: Backend>(HashMap<ParamId, FloatTensor<B>>);

impl<B: Backend> Default for TrainedWeights<B> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<B: TrainingBackend> ParamVisitor<B> for TrainedWeights<B::InnerBackend> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, value: Tensor<B, D>) {
        if value.is_require_grad() {
            self.0.insert(id, value.inner().into_primitive().tensor());
        }
    }
}

/// The squares of updates and of the weights before them.
struct UpdateSquares<B: Backend> {
    before: TrainedWeights<B>,
    layers: Vec<String>,
    updates: Vec<Tensor<B, 1>>,
    weights: Vec<Tensor<B, 1>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for UpdateSquares<B::InnerBackend> {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<B, D>) {
        let Some(before) = self.before.0.remove(&id) else {
            return;
        };
        let before: Tensor<B::InnerBackend, D> =
            Tensor::from_primitive(TensorPrimitive::Float(before));
        self.layers.push(layer_of(path));
        self.weights.push(ops::sum_of_squares(before.clone()));
        // The old weights are the last handle of their memory, which the difference reuses.
        let difference = before - value.inner();
        self.updates.push(ops::sum_of_squares(difference));
    }
}

/// The root mean square of the residual stream after each layer; empty for an encoder–decoder.
fn activations<B: TrainingBackend>(
    model: &TrainingModel<B>,
    batch: &TokenBatch<B>,
) -> RootMeanSquares<B::InnerBackend> {
    let [_, seq] = batch.tokens.dims();
    let padding = batch.padding.as_ref().map(|padding| {
        let of_first = padding.clone().inner().narrow(0, 0, 1).int();
        host_read(of_first)
            .iter::<i64>()
            .filter(|&it| it != 0)
            .count()
    });
    let length = padding.unwrap_or(seq).clamp(1, MOST_TOKENS.min(seq));
    let first = |of: &Tensor<B, 2, Int>| of.clone().inner().narrow(0, 0, 1).narrow(1, 0, length);
    let tokens = Tokens {
        ids: first(&batch.tokens.ids),
        documents: batch.tokens.documents.as_ref().map(first),
    };
    let mut probe = RootMeanSquares::default();
    let model = model.valid();
    match model.config().kind() {
        ModelKind::Decoder => {
            model.hidden_states_probed(tokens, &mut probe);
        }
        ModelKind::Encoder => {
            let segments = batch.segments.as_ref().map(first);
            let input = ModelInput {
                segments,
                ..tokens.into()
            };
            model.states_probed(input, &mut probe);
        }
        ModelKind::EncoderDecoder => {}
    }
    probe
}

/// Measures the residual stream.
#[derive(Debug)]
struct RootMeanSquares<B: Backend> {
    layers: Vec<String>,
    values: Vec<Tensor<B, 1>>,
}

impl<B: Backend> Default for RootMeanSquares<B> {
    fn default() -> Self {
        Self {
            layers: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<B: Backend> Probe<B> for RootMeanSquares<B> {
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let layer = match site {
            Site::Block {
                layer: 0,
                point: Point::ResidPre,
            } => "embedding".to_owned(),
            Site::Block {
                layer,
                point: Point::ResidPost,
            } => format!("blocks.{layer}"),
            Site::Final => "final".to_owned(),
            Site::Block { .. } => return x,
        };
        let count = x.shape().num_elements() as f64;
        let mean = ops::sum_of_squares(x.clone()) / count;
        self.layers.push(layer);
        self.values.push(mean.sqrt());
        x
    }

    fn heads(&mut self, _site: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::layer_of;

    #[test]
    fn parameters_belong_to_layers() {
        let layers = [
            ("tokens", "embedding"),
            ("positions.weight", "embedding"),
            ("blocks.10.attention.qkv.weight", "blocks.10"),
            ("norm_final.gain", "final"),
            ("head", "final"),
            ("head.dense.weight", "final"),
            ("encoder.blocks.0.norm1.gain", "encoder.blocks.0"),
            ("decoder.relative_bias.weight", "decoder.final"),
        ];
        for (path, layer) in layers {
            assert_eq!(layer_of(path), layer, "{path}");
        }
    }
}
