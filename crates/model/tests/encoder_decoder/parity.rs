//! States, logits, loss, every gradient and greedy continuations against `transformers`; cached against whole passes; the
//! effect of padding.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ParamId};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::weights::{Element, HostTensor, ParamMapper, map_params, published};

use super::{MODELS, first_source, ids, open, padding};
use crate::decoder::gradients::one_at_a_time;
use crate::parity::checks::{GRADIENT, LOSS, host, relative, within};
use crate::parity::fixture::Fixture;

/// `transformers` takes its norms and its softmax in float32.
const STATES: f64 = 3e-6;

fn check<B: Backend>(name: &str, device: &Device<B>) {
    let _alone = one_at_a_time();
    let (directory, fixture) = open(name);
    let model = directory.decoder::<Autodiff<B>>(device).unwrap();
    let padding = padding::<Autodiff<B>>(&fixture, device);
    let source = model.encode_source(ids(&fixture, "source", device), Some(padding));
    check_states(&fixture, &host(source.states()));

    let labels = ids::<Autodiff<B>>(&fixture, "labels", device);
    let logits = host(model.decode(model.shifted_right(labels.clone()), &source));
    within(
        "logits",
        relative(&logits, &fixture.floats("logits")),
        STATES,
    );
    let learnt = fixture
        .ids("labels")
        .0
        .iter()
        .filter(|&&label| label >= 0)
        .count();
    let loss = model.target_loss_sum(labels, &source) / learnt as f64;
    let error = (f64::from(host(loss.clone())[0]) / fixture.loss() - 1.0).abs();
    within("loss", error, LOSS);
    let source = |path: &str| directory.source(path);
    let gradients = loss.backward();
    check_gradients(&fixture, &model, &gradients, |model| {
        published(model, Element::F32, source)
            .iter()
            .map(|tensor| (tensor.name().to_owned(), tensor.values()))
            .collect()
    });
    let model = model.valid();
    check_greedy(&fixture, &model);
    check_cache(&fixture, &model);
}

/// States at padding have no meaning.
fn check_states(fixture: &Fixture, found: &[f32]) {
    let expected = fixture.floats("states");
    let (mask, _) = fixture.ids("mask");
    let width = expected.len() / mask.len();
    let kept = |values: &[f32]| -> Vec<f32> {
        let rows = values.chunks(width).zip(&mask);
        rows.filter(|(_, kept)| **kept == 1)
            .flat_map(|(row, _)| row.to_vec())
            .collect()
    };
    within("states", relative(&kept(found), &kept(&expected)), STATES);
}

fn check_gradients<B: Backend>(
    fixture: &Fixture,
    model: &Transformer<Autodiff<B>>,
    gradients: &<Autodiff<B> as AutodiffBackend>::Gradients,
    named: impl Fn(&Transformer<Autodiff<B>>) -> BTreeMap<String, HostTensor>,
) {
    let mut gradients = Gradients::<'_, Autodiff<B>>(gradients);
    let found = named(&map_params(model.clone(), &mut gradients));
    let mut expected = fixture.names("grad.");
    expected.sort();
    let names: Vec<_> = found.keys().cloned().collect();
    assert_eq!(names, expected, "the parameters that have a gradient");
    for (name, tensor) in &found {
        let expected = fixture.floats(&format!("grad.{name}"));
        let error = relative(&tensor.values, &expected);
        within(&format!("gradient of {name}"), error, GRADIENT);
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
        Tensor::from_inner(value.grad(self.0).expect(path))
    }
}

fn token<B: Backend>(id: i64, device: &Device<B>) -> Tensor<B, 2, Int> {
    Tensor::from_data(TensorData::new(vec![id], [1, 1]), device)
}

fn check_greedy<B: Backend>(fixture: &Fixture, model: &Transformer<B>) {
    let device = model.device();
    let expected = fixture.list("greedy");
    let source = model.encode_source(first_source(fixture, &device), None);
    let mut cache = model.cache(1, expected.len());
    let mut next = i64::from(model.config().start_token().unwrap());
    let mut found = Vec::new();
    for _ in &expected {
        let logits = host(model.next_target_logits(token(next, &device), &source, &mut cache));
        let best = (0..logits.len())
            .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
            .unwrap();
        next = best as i64;
        found.push(next);
    }
    assert_eq!(found, expected, "the greedy continuation");
}

/// Logits from the cache, in pieces of several lengths, against those of one pass.
fn check_cache<B: Backend>(fixture: &Fixture, model: &Transformer<B>) {
    let device = model.device();
    let padding = padding::<B>(fixture, &device);
    let source = model.encode_source(ids(fixture, "source", &device), Some(padding));
    let target = model.shifted_right(ids(fixture, "labels", &device));
    let [batch, len] = target.dims();
    let whole = host(model.decode(target.clone(), &source));
    let mut cache = model.cache(batch, len);
    let mut pieces = Vec::new();
    let mut first = 0;
    for length in [1, 3, 1, len - 5] {
        let piece = target.clone().narrow(1, first, length);
        pieces.push(model.decode_cached(piece, &source, &mut cache));
        first += length;
    }
    let cached = host(Tensor::cat(pieces, 1));
    within("cached logits", relative(&cached, &whole), 1e-6);
}

macro_rules! on_backend {
    ($module:ident, $backend:ty, $device:expr, [$($name:ident = $fixture:literal,)*]) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    super::check::<$backend>($fixture, &$device);
                }
            )*
        }
    };
}

macro_rules! all_models {
    ($module:ident, $backend:ty) => {
        on_backend!(
            $module,
            $backend,
            Default::default(),
            [
                t5_relu = "t5-relu",
                t5_early = "t5-early",
                t5_untied = "t5-untied",
                t5_silu = "t5-silu",
                mt5_untied = "mt5-untied",
            ]
        );
    };
}

all_models!(flex, burn_flex::Flex);
all_models!(ndarray, burn_ndarray::NdArray);
#[cfg(feature = "vulkan")]
on_backend!(
    vulkan,
    burn::backend::Vulkan,
    crate::parity::vulkan_device(),
    [t5_untied = "t5-untied", mt5_untied = "mt5-untied",]
);

#[test]
fn buckets_are_those_of_transformers() {
    for name in MODELS {
        let (directory, fixture) = open(name);
        let settings = EncoderDecoderSettings::of(directory.config()).unwrap();
        let positions = settings.relative_positions;
        let (expected, [_, len]) = fixture.ids("buckets");
        for (row, both) in [true, false].into_iter().enumerate() {
            let distances = -300..=300;
            let found: Vec<i64> = distances
                .map(|distance| positions.bucket(distance, both) as i64)
                .collect();
            assert_eq!(found, expected[row * len..(row + 1) * len], "{name} {both}");
        }
    }
}

/// A source gives the same states and logits at any length of padding and whatever the padding tokens are.
#[test]
fn padding_of_the_source_changes_nothing() {
    for name in MODELS {
        let (directory, fixture) = open(name);
        let device = Default::default();
        let model = directory.decoder::<burn_flex::Flex>(&device).unwrap();
        let unpadded = first_source::<burn_flex::Flex>(&fixture, &device);
        let kept = unpadded.dims()[1];
        let target = ids::<burn_flex::Flex>(&fixture, "labels", &device).narrow(0, 0, 1);
        let target = model.shifted_right(target);
        let without = model.encode_source(unpadded.clone(), None);
        let expected = host(model.decode(target.clone(), &without));
        for padded in [1, 5, 700] {
            for id in [0, 7] {
                let rest = Tensor::full([1, padded], id, &device);
                let ids = Tensor::cat(vec![unpadded.clone(), rest], 1);
                let mask = (0..kept + padded).map(|place| place < kept);
                let mask: Vec<bool> = mask.collect();
                let mask = Tensor::from_data(TensorData::new(mask, [1, kept + padded]), &device);
                let source = model.encode_source(ids, Some(mask));
                let states = host(source.states().narrow(1, 0, kept));
                within("states", relative(&states, &host(without.states())), 1e-6);
                let logits = host(model.decode(target.clone(), &source));
                within("logits", relative(&logits, &expected), 1e-6);
            }
        }
    }
}
