//! Training of encoders and encoder–decoders: the list of parameters, another head, and the order of dropout.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn::module::{Module, ParamId};
use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use emberlm_kernels::{HeadLossOptions, Precision};
use emberlm_model::encoder::{EncoderHeadConfig, EncoderSettings};
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::parameters::Parameters;
use emberlm_model::weights::{ParamVisitor, named_tensors, visit_params};
use emberlm_model::{
    Activation, ModelInput, ParameterRole, RouterCoefficients, TrainingPass, Transformer,
    TransformerConfig,
};

use super::open;
use crate::decoder::gradients::{one_at_a_time, streamed};
use crate::parity::checks::relative;

type Training = Autodiff<Flex>;

#[derive(Default)]
struct Visited(Vec<(ParamId, String, Vec<usize>)>);

impl ParamVisitor<Training> for Visited {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<Training, D>) {
        let shape = value.shape().to_vec();
        self.0.push((id, path.to_owned(), shape));
    }
}

fn check_list<M: Module<Training>>(name: &str, module: &M, parameters: &Parameters) {
    let mut visited = Visited::default();
    visit_params(module, &mut visited);
    let listed = parameters.iter();
    let listed: Vec<_> = listed
        .map(|p| (p.id, p.path.clone(), p.shape.clone()))
        .collect();
    assert_eq!(listed, visited.0, "{name}");
}

#[test]
fn every_parameter_is_listed_with_its_role() {
    for name in super::MODELS {
        let (directory, _) = open(name);
        let encoder = directory.decoder::<Training>(&Default::default()).unwrap();
        check_list(name, &encoder, &encoder.parameters());
    }
    let settings = EncoderDecoderSettings::new(16, 2);
    let config = TransformerConfig::try_from(settings).unwrap();
    let model = config.init::<Training>(1, &Default::default());
    let parameters = model.parameters();
    check_list("t5", &model, &parameters);
    let role = |path: &str| parameters.role(path).unwrap();
    assert_eq!(
        role("encoder.relative_bias.weight"),
        &ParameterRole::Embedding
    );
    assert_eq!(
        role("decoder.blocks.0.cross.attention.q.weight"),
        &ParameterRole::Matrix
    );
    let (directory, _) = open("bert-sequence");
    let encoder = directory.decoder::<Training>(&Default::default()).unwrap();
    let parameters = encoder.parameters();
    let role = |path: &str| parameters.role(path).unwrap();
    assert_eq!(role("head.out.weight"), &ParameterRole::Head);
    assert_eq!(role("segments"), &ParameterRole::Embedding);
}

/// The values of all parameters of a directory's encoder with another head.
fn with_head(name: &str, head: EncoderHeadConfig) -> BTreeMap<String, Vec<f32>> {
    let (directory, _) = open(name);
    let settings = EncoderSettings {
        head: Some(head),
        dropout: 0.3,
        ..EncoderSettings::of(directory.config()).unwrap()
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let encoder = directory
        .model_as::<Flex>(&config, 5, &Default::default())
        .unwrap();
    let tensors = named_tensors(&encoder).into_iter();
    tensors
        .map(|(path, tensor)| (path, tensor.values))
        .collect()
}

fn own(name: &str) -> BTreeMap<String, Vec<f32>> {
    let (directory, _) = open(name);
    let encoder = directory.decoder::<Flex>(&Default::default()).unwrap();
    let tensors = named_tensors(&encoder).into_iter();
    tensors
        .map(|(path, tensor)| (path, tensor.values))
        .collect()
}

#[test]
fn another_head_is_initialized_and_the_rest_is_kept() {
    let labels = |count: usize| {
        (0..count)
            .map(|label| format!("l{label}"))
            .collect::<Vec<_>>()
    };
    let (directory, _) = open("bert-masked");
    let classifier = |count| directory.heads().unwrap().sequence_head(labels(count));
    let before = own("bert-masked");
    let after = with_head("bert-masked", classifier(3));
    for (path, values) in &after {
        match path.starts_with("head.") {
            true => assert!(
                before.get(path) != Some(values),
                "{path} is of another head"
            ),
            false => assert_eq!(before.get(path), Some(values), "{path}"),
        }
    }
    assert_eq!(after["head.out.weight"].len(), 24 * 3);
    assert!(after["head.out.bias"].iter().all(|&bias| bias == 0.0));
    // As in `transformers`, BERT's pooler becomes the first layer of a classifier.
    let (before, after) = (own("bert-bare"), with_head("bert-bare", classifier(2)));
    assert_eq!(before["head.dense.weight"], after["head.dense.weight"]);
    // Another number of labels needs another last layer; the same number keeps it.
    let (before, after) = (
        own("bert-sequence"),
        with_head("bert-sequence", classifier(2)),
    );
    assert_eq!(before["head.dense.weight"], after["head.dense.weight"]);
    assert_eq!(after["head.out.weight"].len(), 24 * 2);
    assert_eq!(with_head("bert-sequence", classifier(4)), before);
    let (roberta, _) = open("roberta-sequence");
    let after = with_head(
        "roberta-sequence",
        roberta.heads().unwrap().masked_lm_head(),
    );
    assert_eq!(after["head.bias"].len(), 67);
}

#[test]
fn other_sizes_than_the_weights_are_refused_by_name() {
    let (directory, _) = open("bert-bare");
    let settings = EncoderSettings {
        n_layers: 1,
        ..EncoderSettings::of(directory.config()).unwrap()
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let read = directory.model_as::<Flex>(&config, 1, &Default::default());
    let message = read.unwrap_err().to_string();
    assert!(
        message.contains("n_layers = 1: must be 2, as in the weights"),
        "{message}"
    );
}

#[test]
fn dropout_of_embeddings_acts_after_their_norm() {
    let _guard = one_at_a_time();
    let settings = EncoderSettings {
        vocab_size: 50,
        dropout: 0.5,
        ..EncoderSettings::new(64, 4)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let encoder = config.init::<Training>(1, &Default::default());
    let ids = Tensor::from_data([[1, 2, 3, 4, 5, 6, 7, 8]], &Default::default());
    let embedded = encoder.embeddings.forward(&ids.into(), 0);
    let values: Vec<f32> = embedded.into_data().iter().collect();
    let zeros = values.iter().filter(|&&value| value == 0.0).count();
    // Half of 512, with a standard deviation of 11. A norm after dropout would leave no zeros.
    assert!((190..322).contains(&zeros), "{zeros} zeros");
}

/// The gradients of a model of masked tokens with padding, segments and dropout.
fn masked_gradients(
    encoder: &Transformer<Training>,
    recompute: bool,
) -> BTreeMap<String, Option<Vec<f32>>> {
    let device = Default::default();
    let row = |values: [[i32; 5]; 2]| Tensor::<Training, 2, Int>::from_data(values, &device);
    let padding = row([[1; 5], [1, 1, 1, 0, 0]]).equal_elem(1);
    let input = ModelInput {
        segments: Some(row([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])),
        padding: Some(padding.clone()),
        ..row([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]).into()
    };
    let targets = row([[-100, 9, -100, 3, -100], [4, -100, -100, -100, -100]]);
    let pass = TrainingPass {
        recompute,
        dropout_seed: 5,
        ..TrainingPass::default()
    };
    let options = HeadLossOptions::default();
    let loss = |states| {
        let sum = encoder.head_loss_sum(states, Some(padding), targets, options);
        sum.unwrap() / 3.0
    };
    let arrived = streamed(encoder, |sink| {
        encoder.streamed_gradients(input, pass, RouterCoefficients::default(), loss, sink);
    });
    let gradients = arrived.into_iter();
    gradients
        .map(|(path, (_, gradient))| (path, gradient))
        .collect()
}

fn masked(dropout: f64) -> Transformer<Training> {
    let settings = EncoderSettings {
        vocab_size: 30,
        n_layers: 3,
        dropout,
        attention_dropout: dropout,
        head: Some(EncoderHeadConfig::masked_lm(Activation::Gelu)),
        ..EncoderSettings::new(16, 2)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    config.init(3, &Default::default())
}

#[test]
fn recomputed_gradients_have_the_bits_of_one_graph() {
    let _graphs = one_at_a_time();
    for dropout in [0.0, 0.3] {
        let encoder = masked(dropout);
        let whole = masked_gradients(&encoder, false);
        assert!(whole.values().any(Option::is_some));
        assert_eq!(masked_gradients(&encoder, true), whole);
    }
}

/// In bf16 a product has a relative error of about 2⁻⁸. A CPU without these products computes them in f32.
#[test]
fn products_in_bf16_change_gradients_little() {
    let _graphs = one_at_a_time();
    let encoder = masked(0.0);
    let full = masked_gradients(&encoder, false);
    let rounded = masked_gradients(&encoder.with_precision(Precision::Bf16), false);
    for (path, gradient) in full.iter().filter(|(path, _)| !path.contains("norm")) {
        let (Some(gradient), Some(found)) = (gradient, &rounded[path]) else {
            assert_eq!(gradient.is_some(), rounded[path].is_some(), "{path}");
            continue;
        };
        let error = relative(found, gradient);
        assert!(error < 0.1, "{path}: {error}");
    }
}
