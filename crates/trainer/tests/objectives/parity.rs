//! Loss, every gradient and ten AdamW steps of small models against PyTorch and `transformers` in float64.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::weights::{Element, map_params, published};
use emberlm_model::{Tokens, TrainingPass};
use emberlm_trainer::clip::{clip_factor, global_norm};
use emberlm_trainer::optimizer::Optimizer;
use emberlm_trainer::{TokenBatch, TrainingModel};
use serde_json::Value;

use super::fixture::{File, Gradients, adamw, value};
use crate::common::alone;

/// The largest relative errors that were found are about a third of these.
const LOSS: f64 = 1e-6;
const GRADIENT: f64 = 1e-5;
const STEP: f64 = 3e-5;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures")
}

/// The directory of an encoder or an encoder–decoder.
struct Directory(HuggingFaceModel);

impl Directory {
    fn open(name: &str) -> Self {
        let folders = ["encoders", "encoder_decoder"].map(|kind| fixtures().join(kind).join(name));
        let folder = folders.iter().find(|folder| folder.exists()).unwrap();
        Self(HuggingFaceModel::open(folder).unwrap())
    }

    fn expected(&self) -> File {
        File::read(self.0.path().join("expected.safetensors"))
    }

    fn model<B: TrainingBackend>(&self) -> TrainingModel<B> {
        self.0.decoder::<B>(&Default::default()).unwrap().into()
    }

    /// The parameters of a model under the names of the directory.
    fn named<B: Backend>(&self, model: &TrainingModel<B>) -> BTreeMap<String, Vec<f32>> {
        let tensors = published(&model.model, Element::F32, |path| self.0.source(path));
        let tensors = tensors.iter();
        tensors
            .map(|tensor| (tensor.name().to_owned(), tensor.values().values))
            .collect()
    }
}

fn batch<B: Backend>(expected: &File) -> TokenBatch<B> {
    let inputs = if expected.has("source") {
        "source"
    } else {
        "ids"
    };
    let (labels, _) = expected.values("labels");
    TokenBatch {
        tokens: Tokens {
            ids: expected.integers(inputs),
            documents: None,
        },
        segments: expected
            .has("segments")
            .then(|| expected.integers("segments")),
        padding: Some(expected.integers::<B>("mask").bool()),
        targets: expected.integers("labels"),
        learnt: labels.iter().filter(|&&label| label >= 0.0).count(),
        completions: None,
    }
}

/// Compares the loss and every gradient, and returns the model.
fn check_gradients<I: Backend>(name: &str, recompute: bool)
where
    Autodiff<I>: TrainingBackend<InnerBackend = I>,
{
    let directory = Directory::open(name);
    let (expected, model) = (directory.expected(), directory.model::<Autodiff<I>>());
    let batch = batch(&expected);
    let (count, options) = (batch.learnt, HeadLossOptions::default());
    let pass = TrainingPass {
        recompute,
        ..TrainingPass::default()
    };
    let (loss, grads, _) = model.loss_and_gradients(batch, count, options, pass, None);
    let expected_loss: f64 = expected.metadata("loss").parse().unwrap();
    let error = (value(loss) / expected_loss - 1.0).abs();
    assert!(error < LOSS, "{name}: the loss differs by {error:e}");
    let found = directory.named(&map_params(model.valid(), &mut Gradients(&grads)));
    for (tensor, found) in found {
        let (expected, _) = expected.values(&format!("grad.{tensor}"));
        let norm =
            |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let pairs = || found.iter().zip(&expected);
        let difference = norm(&mut pairs().map(|(a, b)| f64::from(*a) - b));
        let size = norm(&mut expected.iter().copied());
        // The gradient of a key's bias is zero except for rounding.
        let error = if size < 1e-9 {
            difference
        } else {
            difference / size
        };
        assert!(
            error < GRADIENT,
            "{name}: the gradient of {tensor} differs by {error:e}"
        );
    }
}

const MODELS: [&str; 11] = [
    "bert-masked",
    "bert-sequence",
    "roberta-masked",
    "roberta-sequence",
    "distilbert-masked",
    "distilbert-sequence",
    "modernbert-masked",
    "modernbert-sequence",
    "t5-relu",
    "t5-untied",
    "mt5-untied",
];

#[test]
fn loss_and_gradients_are_those_of_transformers() {
    let _alone = alone();
    for name in MODELS {
        check_gradients::<Flex>(name, false);
    }
    for name in ["bert-sequence", "modernbert-sequence", "t5-relu"] {
        check_gradients::<NdArray>(name, false);
    }
}

#[test]
fn recomputed_gradients_of_encoders_are_the_same() {
    let _alone = alone();
    for name in ["bert-masked", "modernbert-masked", "roberta-sequence"] {
        check_gradients::<Flex>(name, true);
    }
}

#[test]
fn ten_adamw_steps_are_those_of_pytorch() {
    let _alone = alone();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let steps = File::read(path.join("objectives.safetensors"));
    let settings: Value = serde_json::from_str(&steps.metadata("adamw")).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    let config = adamw(&settings);
    for name in MODELS {
        let directory = Directory::open(name);
        let mut model = directory.model::<Autodiff<Flex>>();
        let batch = batch(&directory.expected());
        let mut optimizer = Optimizer::<Flex>::new(&config, model.parameters());
        let (losses, _) = steps.values(&format!("{name}/losses"));
        let (norms, _) = steps.values(&format!("{name}/norms"));
        for (step, (expected_loss, expected_norm)) in losses.iter().zip(&norms).enumerate() {
            let (options, pass) = (HeadLossOptions::default(), TrainingPass::default());
            let (loss, grads, _) =
                model.loss_and_gradients(batch.clone(), batch.learnt, options, pass, None);
            let norm = global_norm::<Autodiff<Flex>, _>(&model, &grads).unwrap();
            let factor = clip_factor(norm.clone(), config.clip_norm);
            for (what, found, expected) in [
                ("loss", value(loss), expected_loss),
                ("norm", value(norm), expected_norm),
            ] {
                let error = (found / expected - 1.0).abs();
                let limit = if what == "norm" { 4.0 * STEP } else { STEP };
                assert!(
                    error < limit,
                    "{name}, step {step}: the {what} differs by {error:e}"
                );
            }
            let rate = number(&settings["lr"]);
            model = optimizer.update::<Autodiff<Flex>, _>(model, grads, factor, rate);
        }
    }
}
