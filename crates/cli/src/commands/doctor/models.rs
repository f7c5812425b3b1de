//! Tiny versions of the presets' models. Compares logits, loss, parameter gradients and greedily decoded
//! tokens.

use std::ops::ControlFlow;

use burn::module::{AutodiffModule, ParamId};
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_generate::{GenerateError, GenerateOptions, SamplerConfig, generate};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{ModelConfig, Transformer, TransformerConfig, families};

use super::case::{NamedValues, named_values};

/// Tiny models of the presets, without duplicate configurations.
pub fn all() -> Vec<(String, TransformerConfig)> {
    let mut models: Vec<(String, TransformerConfig)> = Vec::new();
    for preset in families::presets() {
        let Ok(config) = TransformerConfig::try_from(preset.config.tiny()) else {
            continue;
        };
        if models.iter().all(|(_, known)| *known != config) {
            models.push((preset.name.to_owned(), config));
        }
    }
    models
}

/// Runs a model on two sequences, and returns its logits, loss, gradients and greedy tokens.
///
/// # Errors
/// Returns an error if the logits are not finite.
pub fn parts<B: TrainingBackend>(
    config: &TransformerConfig,
    device: &Device<B>,
) -> Result<Vec<NamedValues>, String> {
    let decoder = config.init::<B>(1, device);
    let logits = decoder.forward(ids(1, device));
    let loss = decoder.loss_sum(ids(1, device), ids(2, device));
    let mut parts = vec![
        named_values("logits", logits),
        named_values("loss", loss.clone()),
    ];
    let mut gradients = Gradients {
        grads: loss.backward(),
        parts: &mut parts,
    };
    visit_params::<B, Transformer<B>>(&decoder, &mut gradients);
    parts.push(greedy_tokens(&decoder.valid()).map_err(|error| error.to_string())?);
    Ok(parts)
}

/// Generates tokens greedily with a KV cache. A single differing token gives a relative error of more than `1
/// / (√8 · 18)`, which exceeds every tolerance.
fn greedy_tokens<B: Backend>(decoder: &Transformer<B>) -> Result<NamedValues, GenerateError> {
    let prompt = [3, 1, 2];
    let options = GenerateOptions {
        max_new_tokens: ModelConfig::TINY_SEQ_LEN - prompt.len() - 1,
        chooser: SamplerConfig::greedy().into(),
        ..GenerateOptions::default()
    };
    let made = generate(decoder, &prompt, &options, |_| ControlFlow::Continue(()))?;
    Ok(NamedValues {
        name: "greedy tokens".to_owned(),
        values: made.tokens.iter().map(|&token| token as f32).collect(),
    })
}

fn ids<B: Backend>(seed: i64, device: &Device<B>) -> Tensor<B, 2, Int> {
    let shape = [2, ModelConfig::TINY_SEQ_LEN];
    let vocabulary = ModelConfig::TINY_VOCAB_SIZE as i64;
    let ids =
        (0..shape[0] as i64 * shape[1] as i64).map(|i| (i * i + seed * 7 * i + seed) % vocabulary);
    Tensor::from_data(TensorData::new(ids.collect(), shape), device)
}

/// Collects the parameters' gradients.
struct Gradients<'a, B: TrainingBackend> {
    grads: B::Gradients,
    parts: &'a mut Vec<NamedValues>,
}

impl<B: TrainingBackend> ParamVisitor<B> for Gradients<'_, B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        if let Some(grad) = value.grad(&self.grads) {
            self.parts.push(named_values(&format!("by {path}"), grad));
        }
    }
}
