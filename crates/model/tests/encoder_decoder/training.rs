//! Training passes of encoder–decoders: recomputed, streamed and in bf16.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::{Bool, Int, Tensor};
use burn_flex::Flex;
use emberlm_kernels::{HeadLossOptions, Precision};
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::weights::{ParamMapper, map_params};
use emberlm_model::{
    GradientSink, ModelInput, RouterCoefficients, TrainingPass, Transformer, TransformerConfig,
};

use crate::decoder::gradients::{one_at_a_time, streamed};
use crate::parity::checks::{host, relative};

type Training = Autodiff<Flex>;
type Gradients = BTreeMap<String, (usize, Option<Vec<f32>>)>;

fn model(dropout: f64, tied: bool) -> Transformer<Training> {
    let mut settings = EncoderDecoderSettings {
        vocab_size: 30,
        encoder_layers: 3,
        decoder_layers: 2,
        dropout,
        ..EncoderDecoderSettings::new(16, 2)
    };
    settings.head.tied = tied;
    let config = TransformerConfig::try_from(settings).unwrap();
    config.init(3, &Default::default())
}

fn pass(recompute: bool) -> TrainingPass {
    TrainingPass {
        recompute,
        dropout_seed: 5,
        ..TrainingPass::default()
    }
}

/// The mean loss of padded sources and targets.
fn loss_of(
    model: &Transformer<Training>,
    pass: TrainingPass,
    sink: &GradientSink<Training>,
) -> f32 {
    let device = Default::default();
    let source = Tensor::from_data([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]], &device);
    let padding = [[true; 5], [true, true, true, false, false]];
    let padding = Tensor::<Training, 2, Bool>::from_data(padding, &device);
    let labels: Tensor<Training, 2, Int> =
        Tensor::from_data([[9, 8, 7, 1], [3, 1, -100, -100]], &device);
    let target = model.shifted_right(labels.clone());
    let options = HeadLossOptions::default();
    let loss = |hidden| model.training_loss_sum_of(hidden, labels, options) / 6.0;
    let loss = {
        let input = ModelInput {
            padding: Some(padding),
            target: Some(target),
            ..source.into()
        };
        let none = RouterCoefficients::default();
        model.streamed_gradients(input, pass, none, loss, sink).loss
    };
    host(loss)[0]
}

fn gradients(model: &Transformer<Training>, pass: TrainingPass) -> (f32, Gradients) {
    let mut loss = 0.0;
    let gradients = streamed(model, |sink| loss = loss_of(model, pass, sink));
    (loss, gradients)
}

/// Both stacks contribute to the token table, and all blocks of the decoder to the encoder's states, in another order.
#[test]
fn recomputed_gradients_are_those_of_one_graph_except_for_rounding() {
    let _graphs = one_at_a_time();
    for tied in [true, false] {
        let model = model(0.0, tied);
        let (loss, whole) = gradients(&model, pass(false));
        let (again, recomputed) = gradients(&model, pass(true));
        assert_eq!(loss, again);
        for (path, (_, gradient)) in &whole {
            let gradient = gradient.as_ref().unwrap_or_else(|| panic!("{path}"));
            let found = recomputed[path].1.as_ref();
            let error = relative(found.unwrap_or_else(|| panic!("{path}")), gradient);
            assert!(error < 1e-6, "{path}: {error}");
        }
    }
}

/// The head arrives first, then the blocks of each stack from the last one on, and at the end what both stacks use. In one
/// graph, the keys and values of the memory are complete when the pass reaches the encoder.
#[test]
fn gradients_arrive_by_block() {
    let _graphs = one_at_a_time();
    let model = model(0.1, false);
    for recompute in [false, true] {
        let (_, arrived) = gradients(&model, pass(recompute));
        let of = |path: &str| arrived[path].0;
        let of_blocks = |stack: &str, count: usize, parameter: &str| -> Vec<usize> {
            let blocks = (0..count).rev();
            let path = |block| format!("{stack}.blocks.{block}.{parameter}.weight");
            blocks.map(|block| of(&path(block))).collect()
        };
        let decoder = of_blocks("decoder", 2, "feed_forward.up");
        let encoder = of_blocks("encoder", 3, "attention.qkv");
        let memory = of_blocks("decoder", 2, "cross.attention.kv");
        assert_eq!((of("head"), of("decoder.norm_final.gain")), (0, 0));
        assert!(decoder[0] == 1 && decoder.is_sorted() && encoder.is_sorted());
        assert!(memory.iter().all(|&call| call < encoder[0]));
        if recompute {
            assert_eq!((&decoder, &encoder), (&vec![1, 2], &vec![3, 4, 5]));
            assert_eq!(memory, decoder);
        }
        let calls = arrived.values().map(|(call, _)| *call).max();
        for path in [
            "tokens",
            "encoder.norm_final.gain",
            "encoder.relative_bias.weight",
            "decoder.relative_bias.weight",
        ] {
            assert_eq!(Some(of(path)), calls, "{path}");
        }
    }
}

/// Adds a multiple of the gradients to the parameters.
struct Shift<'a> {
    gradients: &'a Gradients,
    by: f64,
}

impl ParamMapper<Training> for Shift<'_> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<Training, D>,
    ) -> Tensor<Training, D> {
        let gradient = self.gradients[path].1.clone().unwrap();
        let device = value.device();
        let gradient = Tensor::<Training, 1>::from_floats(gradient.as_slice(), &device);
        let shifted = value.clone() + gradient.reshape(value.shape()) * self.by;
        Tensor::from_inner(shifted.inner()).require_grad()
    }
}

/// With dropout, the loss is a function of the parameters and the seed. Its change along the gradient g is |g|².
#[test]
fn recomputed_gradients_with_dropout_are_the_slope_of_the_loss() {
    let _graphs = one_at_a_time();
    let model = model(0.3, true);
    let (loss, found) = gradients(&model, pass(true));
    assert_eq!(gradients(&model, pass(true)), (loss, found.clone()));
    let other = TrainingPass {
        dropout_seed: 6,
        ..pass(true)
    };
    assert_ne!(gradients(&model, other).0, loss);
    let squares = found.values().filter_map(|(_, gradient)| gradient.as_ref());
    let squares: f64 = squares
        .flatten()
        .map(|&slope| f64::from(slope).powi(2))
        .sum();
    let step = 1e-2 / squares.sqrt();
    let [above, below] = [step, -step].map(|by| {
        let shift = &mut Shift {
            gradients: &found,
            by,
        };
        f64::from(gradients(&map_params(model.clone(), shift), pass(true)).0)
    });
    let slope = (above - below) / (2.0 * step);
    assert!((slope / squares - 1.0).abs() < 2e-2, "{slope} {squares}");
}

/// In bf16 a product has a relative error of about 2⁻⁸. A CPU without these products computes them in f32.
#[test]
fn products_in_bf16_change_the_loss_little() {
    let _graphs = one_at_a_time();
    let model = model(0.0, false);
    let (full, of_full) = gradients(&model, pass(false));
    let rounded = model.with_precision(Precision::Bf16);
    let (loss, of_rounded) = gradients(&rounded, pass(false));
    assert!((loss - full).abs() < 2e-2, "{loss} {full}");
    for (path, (_, gradient)) in &of_full {
        let found = of_rounded[path].1.as_ref().unwrap();
        let error = relative(found, gradient.as_ref().unwrap());
        assert!(error < 0.1, "{path}: {error}");
    }
}
