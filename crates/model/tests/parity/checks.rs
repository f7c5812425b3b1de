//! What is compared, and within what.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::weights::map::Source;
use emberlm_model::weights::{HostTensor, ParamVisitor, load_family, visit_params};
use emberlm_model::{Decoder, DecoderConfig};

use crate::fixture::Fixture;
use crate::optimize::Trainer;

// Of `‖a - b‖ / ‖b‖`, b being PyTorch's. Measured on flex, ndarray and Vulkan: logits 4e-7, loss 1e-7, gradients 1e-6,
// the ten steps' losses and norms 7e-6.
const LOGITS: f64 = 2e-6;
const LOSS: f64 = 1e-6;
const GRADIENT: f64 = 1e-5;
const STEP: f64 = 3e-5;

pub fn check<B: Backend>(name: &str, device: &Device<B>) {
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
    check_gradients(&fixture, &decoder, &loss.backward());

    Trainer::new(decoder, &fixture).check_steps(&fixture, &batch, STEP);
}

fn load<B: Backend>(fixture: &Fixture, device: &Device<B>) -> Decoder<B> {
    let decoder = fixture.config().init(0, device);
    // The file holds gradients and results beside `weight.…`: only what has the prefix must be used up.
    load_family(decoder, &fixture.path, "weight.").unwrap()
}

/// The fixture's tokens and targets.
pub struct Batch<B: Backend> {
    input: Tensor<B, 2, Int>,
    target: Tensor<B, 2, Int>,
}

impl<B: Backend> Batch<B> {
    fn of(fixture: &Fixture, device: &Device<B>) -> Self {
        let ids = |name| {
            let (ids, shape) = fixture.ids(name);
            Tensor::from_data(TensorData::new(ids, shape), device) // [batch, seq]
        };
        Self {
            input: ids("input"),
            target: ids("target"),
        }
    }

    /// The mean over all targets, `[1]`.
    pub fn loss(&self, decoder: &Decoder<B>) -> Tensor<B, 1> {
        let count = self.target.shape().num_elements();
        decoder.loss_sum(self.input.clone(), self.target.clone()) / count as f64
    }
}

fn check_gradients<B: Backend>(
    fixture: &Fixture,
    decoder: &Decoder<Autodiff<B>>,
    grads: &<Autodiff<B> as AutodiffBackend>::Gradients,
) {
    let mut collected = Collect::<'_, Autodiff<B>> {
        config: decoder.config(),
        grads,
        by_name: BTreeMap::new(),
    };
    visit_params(decoder, &mut collected);
    let mut expected = fixture.names("grad.");
    expected.sort();
    let found: Vec<_> = collected.by_name.keys().cloned().collect();
    assert_eq!(found, expected, "the parameters that have a gradient");
    for (name, values) in &collected.by_name {
        let error = relative(values, &fixture.floats(&format!("grad.{name}")));
        within(&format!("gradient of {name}"), error, GRADIENT);
    }
}

/// Gradients under the published names, in the published layouts.
struct Collect<'a, B: AutodiffBackend> {
    config: &'a DecoderConfig,
    grads: &'a B::Gradients,
    by_name: BTreeMap<String, Vec<f32>>,
}

impl<B: AutodiffBackend> ParamVisitor<B> for Collect<'_, B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let grad = value.grad(self.grads).expect(path);
        let tensor = HostTensor {
            shape: grad.dims().to_vec(),
            values: host(grad),
        };
        let source = self.config.family.source(self.config, path).expect(path);
        self.by_name.extend(published(&source, tensor));
    }
}

/// The tensors that a published checkpoint has in place of one of ours.
fn published(source: &Source, tensor: HostTensor) -> Vec<(String, Vec<f32>)> {
    let names = match source {
        Source::AsIs(name) => return vec![(name.clone(), tensor.values)],
        Source::Transposed(names) => names,
    };
    let [fan_in, width] = tensor.shape[..] else {
        panic!("{names:?} of shape {:?}", tensor.shape)
    };
    let mut rows: Vec<f32> = Vec::with_capacity(tensor.values.len()); // [width, fan_in]
    for out in 0..width {
        rows.extend((0..fan_in).map(|i| tensor.values[i * width + out]));
    }
    cut(names, &rows, fan_in)
}

/// Cuts joined rows apart: keys and values are of one height, and what is left before them are the queries.
fn cut(names: &[String], rows: &[f32], fan_in: usize) -> Vec<(String, Vec<f32>)> {
    let total = rows.len() / fan_in;
    let heights = match names.len() {
        1 => vec![total],
        // PocketTransformer's 6 query heads on 2 key-value heads.
        3 => vec![total * 6 / 10, total * 2 / 10, total * 2 / 10],
        other => panic!("{other} joined tensors"),
    };
    let mut start = 0;
    let parts = names.iter().zip(heights).map(|(name, height)| {
        let part = rows[start * fan_in..(start + height) * fan_in].to_vec();
        start += height;
        (name.clone(), part)
    });
    parts.collect()
}

pub fn host<B: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// `‖a - b‖ / ‖b‖`.
pub fn relative(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "elements");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    norm(&mut pairs().map(|(a, b)| a - b)) / norm(&mut pairs().map(|(_, b)| b))
}

pub fn within(what: &str, error: f64, tolerance: f64) {
    assert!(
        error <= tolerance,
        "{what}: relative error {error:.2e} is above {tolerance:.0e}"
    );
}
