//! Comparisons with a fixture and their tolerances.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ParamId};
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::{Backend, HeadLossOptions};
use emberlm_model::weights::map::Source;
use emberlm_model::weights::{
    Element, HostTensor, ParamMapper, SafetensorsStore, load_named, map_params, named_tensors,
    published,
};
use emberlm_model::{Family, KvCache, ModelKind, Transformer, TransformerConfig};

use crate::decoder::gradients::one_at_a_time;
use crate::parity::fixture::Fixture;
use crate::parity::optimize::Trainer;

// Tolerances for `‖a - b‖ / ‖b‖`, where b is PyTorch's result. Measured on flex, ndarray and Vulkan: logits 4e-7, loss
// 1e-7, gradients 1e-6, losses and norms of the ten steps 7e-6.
const LOGITS: f64 = 2e-6;
pub const LOSS: f64 = 1e-6;
pub const GRADIENT: f64 = 1e-5;
pub const STEP: f64 = 3e-5;

pub fn check<B: Backend>(name: &str, device: &Device<B>) {
    let _guard = one_at_a_time();
    let fixture = Fixture::open(name);
    let decoder = load::<Autodiff<B>>(&fixture, device);
    let batch = Batch::<Autodiff<B>>::of(&fixture, device);

    let logits = host(decoder.forward(batch.input.clone()));
    within(
        "logits",
        relative(&logits, &fixture.floats("logits")),
        LOGITS,
    );

    let loss = batch.loss(&decoder);
    let error = (f64::from(host(loss.clone())[0]) / fixture.loss() - 1.0).abs();
    within("loss", error, LOSS);
    let config = decoder.config().clone();
    let source = |path: &str| source(&config, path);
    check_gradients(&fixture, &decoder, &loss.backward(), source, GRADIENT);
    check_greedy(&fixture, &decoder.valid());
    check_mean(&fixture, &decoder, batch.input.clone());

    Trainer::new(decoder, &fixture).check_steps(&fixture, &batch, STEP);
}

/// Factor on the bounds of a model's errors. The norm of a delta net's head whose query hardly meets a key magnifies rounding:
/// PyTorch in float32 is off by up to 2.0e-6 in the logits of the fixtures with delta nets, and by 6.1e-5 in a gradient.
pub fn slack(config: &TransformerConfig) -> f64 {
    config.delta_nets().map_or(1.0, |_| 10.0)
}

/// Checks mean-pooled hidden states. If logits are hidden states times the head's weight, the product of the mean state
/// and that weight must equal the mean of PyTorch's logits over the positions.
pub fn check_mean<B: Backend>(
    fixture: &Fixture,
    decoder: &Transformer<B>,
    batch: Tensor<B, 2, Int>,
) {
    let config = decoder.config();
    let scaled =
        config.head().soft_cap.is_some() || config.logit_scale().is_some() || config.head().bias;
    if scaled {
        return;
    }
    let [sequences, seq] = batch.dims();
    let (vocab, width) = (config.vocab_size(), config.d_model());
    let name = if config.head().tied { "tokens" } else { "head" };
    let weights = named_tensors(decoder);
    let (_, head) = weights
        .iter()
        .find(|(path, _)| path.starts_with(name))
        .unwrap();
    assert_eq!(head.shape, [vocab, width]);
    let mean = host(decoder.mean_hidden(batch));
    assert_eq!(mean.len(), sequences * width);
    let logits = fixture.floats("logits");
    for (sequence, mean) in mean.chunks(width).enumerate() {
        let product = head.values.chunks(width).map(|row| {
            let terms = row
                .iter()
                .zip(mean)
                .map(|(&a, &b)| f64::from(a) * f64::from(b));
            terms.sum::<f64>() as f32
        });
        let first = sequence * seq * vocab;
        let expected = (0..vocab).map(|id| {
            let places = (0..seq).map(|at| f64::from(logits[first + at * vocab + id]));
            (places.sum::<f64>() / seq as f64) as f32
        });
        let (product, expected): (Vec<f32>, Vec<f32>) = (product.collect(), expected.collect());
        within(
            "the mean state",
            relative(&product, &expected),
            LOGITS * slack(config),
        );
    }
}

/// Compares greedy decoding with the cache.
pub fn check_greedy<B: Backend>(fixture: &Fixture, decoder: &Transformer<B>) {
    let (prompt, expected) = (fixture.list("prompt"), fixture.list("greedy"));
    let device = decoder.device();
    let capacity = prompt.len() + expected.len();
    let mut cache = KvCache::new(decoder.config(), 1, capacity, &device);
    let mut next = prompt;
    let mut found = Vec::new();
    for _ in &expected {
        let shape = [1, next.len()];
        let tokens = Tensor::from_data(TensorData::new(next, shape), &device);
        let logits = host(decoder.next_logits(tokens, &mut cache));
        let best = (0..logits.len())
            .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
            .unwrap();
        found.push(best as i64);
        next = vec![best as i64];
    }
    assert_eq!(found, expected, "the greedy continuation");
}

fn load<B: Backend>(fixture: &Fixture, device: &Device<B>) -> Transformer<B> {
    let config = fixture.config();
    // In addition to `weight.…`, the file contains gradients and results.
    let store = SafetensorsStore::open(&fixture.path)
        .unwrap()
        .below("weight.");
    load_named(config.init(0, device), &store, |path| source(&config, path)).unwrap()
}

/// Source of a parameter in a fixture. It is that of the family, except that nanoGPT stores GPT-2's projections like
/// PyTorch's `Linear`.
fn source(config: &TransformerConfig, path: &str) -> Option<Source> {
    let source = config.family().source(config, path)?;
    let map = path.ends_with(".weight") && path.starts_with("blocks.");
    match config.family() {
        Family::Gpt2 if map => Some(Source::transposed(source.names().next()?)),
        _ => Some(source),
    }
}

/// The fixture's tokens and targets.
pub struct Batch<B: Backend> {
    pub input: Tensor<B, 2, Int>,
    target: Tensor<B, 2, Int>,
}

impl<B: Backend> Batch<B> {
    pub fn of(fixture: &Fixture, device: &Device<B>) -> Self {
        let ids = |name| {
            let (ids, shape) = fixture.ids(name);
            Tensor::from_data(TensorData::new(ids, shape), device) // [batch, seq]
        };
        Self {
            input: ids("input"),
            target: ids("target"),
        }
    }

    /// The logits of every target, `[targets, outputs]`: those of tokens, or of a classifier's labels.
    pub fn logits(&self, model: &Transformer<B>) -> Tensor<B, 2> {
        let logits = match model.config().kind() {
            ModelKind::Decoder => model.forward(self.input.clone()),
            ModelKind::Encoder => {
                let pooled = model.class_states(model.states(self.input.clone()), None);
                return model.class_logits(pooled).unwrap();
            }
            ModelKind::EncoderDecoder => {
                let source = model.encode_source(self.input.clone(), None);
                model.decode(model.shifted_right(self.target.clone()), &source)
            }
        };
        logits.flatten(0, 1)
    }

    /// The mean loss over all targets, `[1]`.
    pub fn loss(&self, model: &Transformer<B>) -> Tensor<B, 1> {
        let count = self.target.shape().num_elements();
        if model.config().kind() == ModelKind::Decoder {
            return model.loss_sum(self.input.clone(), self.target.clone()) / count as f64;
        }
        let targets = self.target.clone().reshape([count, 1]);
        let log_probabilities = log_softmax(self.logits(model), 1); // [targets, outputs]
        -log_probabilities.gather(1, targets).sum() / count as f64
    }
}

impl<B: Backend> Batch<B> {
    /// [`Batch::loss`] of the states before the head.
    pub fn loss_of(&self, decoder: &Transformer<B>, hidden: Tensor<B, 3>) -> Tensor<B, 1> {
        let count = self.target.shape().num_elements();
        let options = HeadLossOptions::default();
        decoder.training_loss_sum_of(hidden, self.target.clone(), options) / count as f64
    }
}

pub fn check_gradients<B: Backend>(
    fixture: &Fixture,
    decoder: &Transformer<Autodiff<B>>,
    grads: &<Autodiff<B> as AutodiffBackend>::Gradients,
    source: impl Fn(&str) -> Option<Source>,
    tolerance: f64,
) {
    // Replace each parameter by its gradient to obtain gradients under the published names.
    let mut gradients = Gradients::<'_, Autodiff<B>>(grads);
    let gradients = map_params(decoder.clone(), &mut gradients);
    let found: BTreeMap<String, HostTensor> = published(&gradients, Element::F32, source)
        .iter()
        // The only parameter that is not trained.
        .filter(|tensor| !tensor.name().ends_with("e_score_correction_bias"))
        .map(|tensor| (tensor.name().to_owned(), tensor.values()))
        .collect();
    let mut expected = fixture.names("grad.");
    expected.sort();
    let names: Vec<_> = found.keys().cloned().collect();
    assert_eq!(names, expected, "the parameters that have a gradient");
    let expected_of = |name: &str| fixture.floats(&format!("grad.{name}"));
    let whole = names
        .iter()
        .map(|name| norm(&expected_of(name)).powi(2))
        .sum::<f64>()
        .sqrt();
    for (name, tensor) in &found {
        let expected = expected_of(name);
        // Without rotation, the bias of the keys adds a constant to all scores of a query. Its gradient is 0 except for
        // rounding, so the error is measured relative to the norm of all gradients.
        let error = match norm(&expected) {
            zero if zero < 1e-9 * whole => norm(&tensor.values) / whole,
            _ => relative(&tensor.values, &expected),
        };
        within(&format!("gradient of {name}"), error, tolerance);
    }
}

struct Gradients<'a, B: AutodiffBackend>(&'a B::Gradients);

impl<B: AutodiffBackend> ParamMapper<B> for Gradients<'_, B> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        if !value.is_require_grad() {
            return value;
        }
        Tensor::from_inner(value.grad(self.0).expect(path))
    }
}

pub fn host<B: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn norm(values: &[f32]) -> f64 {
    values
        .iter()
        .map(|&x| f64::from(x).powi(2))
        .sum::<f64>()
        .sqrt()
}

/// `‖a - b‖ / ‖b‖`.
pub fn relative(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "elements");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    norm(&mut pairs().map(|(a, b)| a - b)) / norm(&mut pairs().map(|(_, b)| b))
}

/// Asserts and prints an error; `-- --nocapture` shows the values in docs/results.md.
pub fn within(what: &str, error: f64, tolerance: f64) {
    println!("{what}: {error:.1e}");
    assert!(
        error <= tolerance,
        "{what}: relative error {error:.2e} is above {tolerance:.0e}"
    );
}
