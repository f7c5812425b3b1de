//! States, logits, loss and every gradient against `transformers`; texts packed without padding against a padded batch;
//! the effect of padding.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ParamId};
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::ModelInput;
use emberlm_model::Transformer;
use emberlm_model::encoder::{EncoderHead, Pooling, TextTokens};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::weights::{Element, ParamMapper, map_params, published};

use super::{MODELS, batch, open, texts};
use crate::decoder::gradients::one_at_a_time;
use crate::parity::checks::{GRADIENT, LOSS, host, relative, within};
use crate::parity::fixture::Fixture;

/// `transformers` takes its softmax in float32.
const STATES: f64 = 3e-6;

pub fn check<B: Backend>(name: &str, device: &Device<B>) {
    let _guard = one_at_a_time();
    let (directory, fixture) = open(name);
    let encoder = directory.decoder::<Autodiff<B>>(device).unwrap();
    let input = batch(&fixture, device);
    let padding = input.padding.clone();
    let states = encoder.states(input);
    let expected = fixture.floats("states");
    let error = relative(
        &kept(&fixture, &host(states.clone())),
        &kept(&fixture, &expected),
    );
    within("states", error, STATES);

    let logits = head_output(&encoder, states, padding);
    let expected = fixture.floats("logits");
    // Logits at padding have no meaning.
    let per_token = expected.len() % fixture.ids("mask").0.len() == 0
        && encoder
            .token_logits(Tensor::zeros([1, 1, encoder.config().d_model()], device))
            .is_some();
    let found = host(logits.clone());
    let error = match per_token {
        true => relative(&kept(&fixture, &found), &kept(&fixture, &expected)),
        false => relative(&found, &expected),
    };
    within("logits", error, STATES);
    if !fixture.names("labels").is_empty() {
        check_loss::<B>(&directory, &fixture, &encoder, logits);
    }
    check_packed(&fixture, &encoder.valid());
}

/// The rows of tokens, without those of padding.
fn kept(fixture: &Fixture, values: &[f32]) -> Vec<f32> {
    let (mask, _) = fixture.ids("mask");
    let width = values.len() / mask.len();
    let rows = values.chunks(width).zip(&mask);
    let rows = rows.filter(|(_, kept)| **kept == 1);
    rows.flat_map(|(row, _)| row.to_vec()).collect()
}

/// The head's output as rows `[rows, outputs]`; without a head, the first tokens' states.
fn head_output<B: Backend>(
    encoder: &Transformer<B>,
    states: Tensor<B, 3>,
    padding: Option<Tensor<B, 2, Bool>>,
) -> Tensor<B, 2> {
    if let Some(logits) = encoder.token_logits(states.clone()) {
        let [batch, seq, outputs] = logits.dims();
        return logits.reshape([batch * seq, outputs]);
    }
    let first = encoder.class_states(states, padding);
    match &encoder.head {
        None => first,
        Some(EncoderHead::Pooler(dense)) => {
            let pooled: Tensor<B, 3> = dense.forward(first.unsqueeze(), None).tanh();
            pooled.squeeze_dim(0)
        }
        _ => encoder.class_logits(first).unwrap(),
    }
}

fn check_loss<B: Backend>(
    directory: &HuggingFaceModel,
    fixture: &Fixture,
    encoder: &Transformer<Autodiff<B>>,
    logits: Tensor<Autodiff<B>, 2>,
) {
    let labels = fixture.list("labels");
    let rows: Vec<i64> = (0..labels.len() as i64)
        .filter(|&row| labels[row as usize] >= 0)
        .collect();
    let learnt: Vec<i64> = rows.iter().map(|&row| labels[row as usize]).collect();
    let (count, device) = (rows.len(), logits.device());
    let index = |values: Vec<i64>| {
        Tensor::<Autodiff<B>, 1, Int>::from_data(TensorData::new(values, [count]), &device)
    };
    let chosen = log_softmax(logits.select(0, index(rows)), 1);
    let loss = -chosen.gather(1, index(learnt).reshape([count, 1])).mean();
    let error = (f64::from(host(loss.clone())[0]) / fixture.loss() - 1.0).abs();
    within("loss", error, LOSS);
    let mut gradients = Gradients::<'_, Autodiff<B>>(&loss.backward(), Vec::new());
    let of_parameters = map_params(encoder.clone(), &mut gradients);
    let found: BTreeMap<_, _> =
        published(&of_parameters, Element::F32, |path| directory.source(path))
            .iter()
            .map(|tensor| (tensor.name().to_owned(), tensor.values()))
            .collect();
    let mut expected = fixture.names("grad.");
    expected.sort();
    let names: Vec<_> = found.keys().cloned().collect();
    assert_eq!(names, expected, "the parameters that have a gradient");
    assert!(
        gradients.1.is_empty(),
        "without a gradient: {:?}",
        gradients.1
    );
    for (name, tensor) in &found {
        let expected = fixture.floats(&format!("grad.{name}"));
        // The gradient of a key's bias is zero except for rounding.
        if name.ends_with("key.bias") || name.ends_with("k_lin.bias") {
            let largest = tensor
                .values
                .iter()
                .fold(0.0_f32, |most, x| most.max(x.abs()));
            assert!(largest < 1e-6, "{name}: {largest}");
            continue;
        }
        let error = relative(&tensor.values, &expected);
        within(&format!("gradient of {name}"), error, GRADIENT);
    }
}

struct Gradients<'a, B: AutodiffBackend>(&'a B::Gradients, Vec<String>);

impl<B: AutodiffBackend> ParamMapper<B> for Gradients<'_, B> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match value.grad(self.0) {
            Some(gradient) => Tensor::from_inner(gradient),
            None => {
                self.1.push(path.to_owned());
                value.zeros_like()
            }
        }
    }
}

/// Packed texts, in another order, have the states of the padded batch.
fn check_packed<B: Backend>(fixture: &Fixture, encoder: &Transformer<B>) {
    let texts = texts(fixture);
    let order = [2, 0, 1, 0];
    let tokens = order.map(|text| TextTokens {
        ids: &texts[text].0,
        segments: &texts[text].1,
    });
    let states = encoder.encode(&tokens);
    let (mask, [_, len]) = fixture.ids("mask");
    let expected = fixture.floats("states");
    let width = expected.len() / mask.len();
    for (place, text) in order.into_iter().enumerate() {
        let own = states.of(place).unwrap();
        let expected = &expected[text * len * width..][..texts[text].0.len() * width];
        within("packed states", relative(&host(own), expected), STATES);
    }
    let pooled = states.pooled(Pooling::First);
    let first: Vec<f32> = order
        .into_iter()
        .flat_map(|text| expected[text * len * width..][..width].to_vec())
        .collect();
    within("pooled states", relative(&host(pooled), &first), STATES);
}

macro_rules! all_models {
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

macro_rules! on_cpu {
    ($module:ident, $backend:ty) => {
        all_models!(
            $module,
            $backend,
            Default::default(),
            [
                bert_bare = "bert-bare",
                bert_early = "bert-early",
                bert_masked = "bert-masked",
                bert_sequence = "bert-sequence",
                distilbert_masked = "distilbert-masked",
                distilbert_sequence = "distilbert-sequence",
                modernbert_bare = "modernbert-bare",
                modernbert_masked = "modernbert-masked",
                modernbert_sequence = "modernbert-sequence",
                modernbert_token = "modernbert-token",
                roberta_masked = "roberta-masked",
                roberta_sequence = "roberta-sequence",
                roberta_token = "roberta-token",
                xlm_bare = "xlm-bare",
            ]
        );
    };
}

on_cpu!(flex, burn_flex::Flex);
on_cpu!(ndarray, burn_ndarray::NdArray);
// One directory with gradients of each type: kernels are compiled for each shape.
#[cfg(feature = "vulkan")]
all_models!(
    vulkan,
    burn::backend::Vulkan,
    crate::parity::vulkan_device(),
    [
        bert_masked = "bert-masked",
        distilbert_sequence = "distilbert-sequence",
        modernbert_masked = "modernbert-masked",
        modernbert_sequence = "modernbert-sequence",
        roberta_token = "roberta-token",
    ]
);

/// The number and the ids of padding tokens do not change a text's states; on flex, not a bit of them.
#[test]
fn padding_changes_no_state() {
    type B = burn_flex::Flex;
    for name in MODELS {
        let (directory, fixture) = open(name);
        let device = Default::default();
        let encoder = directory.decoder::<B>(&device).unwrap();
        let (text, _) = texts(&fixture).swap_remove(1);
        let padded = |id: u32| {
            let mut ids: Vec<i64> = text.iter().map(|&id| i64::from(id)).collect();
            ids.resize(text.len() + 5, i64::from(id));
            let mask: Vec<bool> = (0..ids.len()).map(|place| place < text.len()).collect();
            let shape = [1, ids.len()];
            let input = ModelInput {
                padding: Some(Tensor::from_data(TensorData::new(mask, shape), &device)),
                ..Tensor::<B, 2, Int>::from_data(TensorData::new(ids, shape), &device).into()
            };
            host(encoder.states(input).narrow(1, 0, text.len()))
        };
        let expected = padded(3);
        assert_eq!(padded(7), expected, "{name}");
        let ids: Vec<i64> = text.iter().map(|&id| i64::from(id)).collect();
        let ids = TensorData::new(ids, [1, text.len()]);
        let unpadded = encoder.states(Tensor::<B, 2, Int>::from_data(ids, &device));
        within(
            "unpadded states",
            relative(&host(unpadded), &expected),
            1e-6,
        );
    }
}
