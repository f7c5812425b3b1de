//! Preferences: losses, log-probabilities, rewards and AdamW steps against TRL, and whole runs.

use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::{IGNORED_ELEMENT, Tokens, TrainingPass, TransformerConfig, families};
use emberlm_trainer::clip::{clip_factor, global_norm};
use emberlm_trainer::config::{
    DpoConfig, DpoLoss, KtoConfig, ObjectiveConfig, OrpoConfig, SimpoConfig,
};
use emberlm_trainer::events::Event;
use emberlm_trainer::optimizer::Optimizer;
use emberlm_trainer::{
    CompletionBatch, DataConfig, PreferenceBatch, PreferenceLoss, PreferenceSequence, RunConfig,
    TokenBatch, TrainingModel,
};
use serde_json::Value;

use super::fixture::{File, adamw, published_gradients, value};
use super::whole_run::{check_resume, config, evaluations, records, run};
use crate::common::alone;

/// TRL computes log-probabilities in f32; the largest relative errors that were found are about a third of these.
const LOG_PROBABILITY: f64 = 4e-5;
const LOSS: f64 = 1e-5;
const NORM: f64 = 1e-4;
const GRADIENT: f64 = 3e-5;

type Triple = (Vec<i32>, Vec<i32>, Vec<i32>);

/// The batch of all pairs, with the completions' reference log-probabilities.
fn batch<B: Backend>(
    pairs: &[Triple],
    labels: &[bool],
    loss: PreferenceLoss,
    references: &[f64],
) -> TokenBatch<B> {
    let chosen = pairs.iter().map(|(prompt, chosen, _)| (prompt, chosen));
    let rejected = pairs.iter().map(|(prompt, _, rejected)| (prompt, rejected));
    let rows: Vec<(&Vec<i32>, &Vec<i32>)> = chosen.chain(rejected).collect();
    let lengths = rows.iter().map(|(prompt, rest)| prompt.len() + rest.len());
    let seq = lengths.max().unwrap();
    let (mut ids, mut targets, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
    for (row, (prompt, completion)) in rows.iter().enumerate() {
        ids.extend(prompt.iter().chain(*completion));
        ids.resize((row + 1) * seq, 0);
        targets.resize(row * seq + prompt.len() - 1, IGNORED_ELEMENT);
        targets.extend(*completion);
        targets.resize((row + 1) * seq, IGNORED_ELEMENT);
        let (start, tokens) = (prompt.len() - 1, completion.len());
        sequences.push(PreferenceSequence {
            completion: start..start + tokens,
            tokens,
            length: start + tokens,
            reference: references.get(row).copied().unwrap_or(0.0),
        });
    }
    let tensor = |values: Vec<i32>| {
        let data = TensorData::new(values, [rows.len(), seq]);
        Tensor::<B, 2, Int>::from_data(data, &Default::default())
    };
    TokenBatch {
        tokens: Tokens {
            ids: tensor(ids),
            documents: None,
        },
        segments: None,
        padding: None,
        targets: tensor(targets),
        learnt: pairs.len(),
        completions: Some(CompletionBatch::Preferences(PreferenceBatch {
            loss,
            sequences: sequences.into(),
            labels: labels.into(),
        })),
    }
}

/// Compares the norm of each gradient, and its sum with cosines, with those of the fixture.
fn check_gradients<I: Backend>(
    file: &File,
    (model_name, loss_name): (&str, &str),
    config: &TransformerConfig,
    model: &TrainingModel<I>,
    grads: &GradientsParams,
) {
    let names: Value = serde_json::from_str(&file.metadata("parameters")).unwrap();
    let names: Vec<String> = serde_json::from_value(names[model_name].clone()).unwrap();
    let (expected, _) = file.values(&format!("{model_name}/{loss_name}/gradients"));
    let expected = expected.as_chunks::<2>().0;
    assert_eq!(names.len(), expected.len());
    let found = published_gradients(config, model, grads, &names);
    let largest = expected.iter().map(|[norm, _]| *norm).fold(0.0, f64::max);
    for (name, [norm, wave]) in names.iter().zip(expected) {
        let values = found[name].iter().map(|&x| f64::from(x));
        let own_norm = values.clone().map(|x| x * x).sum::<f64>().sqrt();
        let own_wave: f64 = values.enumerate().map(|(i, x)| x * (i as f64).cos()).sum();
        // The gradient of a key's bias is zero except for rounding.
        let size = norm.max(1e-6 * largest);
        for (what, found, expected) in [("norm", own_norm, norm), ("waves", own_wave, wave)] {
            let error = (found - expected).abs() / size;
            assert!(
                error < GRADIENT,
                "{model_name}, {loss_name}: the {what} of the gradient of {name} differs by {error:e}"
            );
        }
    }
}

fn check_steps<I: Backend>(model_name: &str, loss_name: &str, recompute: bool)
where
    Autodiff<I>: TrainingBackend<InnerBackend = I>,
{
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let file = File::read(root.join("preferences.safetensors"));
    let metadata = |name: &str| -> Value { serde_json::from_str(&file.metadata(name)).unwrap() };
    let settings = metadata("adamw");
    let number = |value: &Value| value.as_f64().unwrap();
    let objective: ObjectiveConfig =
        serde_json::from_value(metadata("losses")[loss_name].clone()).unwrap();
    let loss: PreferenceLoss = match &objective {
        ObjectiveConfig::Dpo(config) => config.into(),
        ObjectiveConfig::Orpo(config) => config.into(),
        ObjectiveConfig::Simpo(config) => config.into(),
        ObjectiveConfig::Kto(config) => config.into(),
        other => panic!("{other:?}"),
    };
    let (form, labels) = match loss {
        PreferenceLoss::Kto { .. } => ("mismatched", metadata("labels")),
        _ => ("pairs", Value::Array(Vec::new())),
    };
    let pairs: Vec<Triple> = serde_json::from_value(metadata(form)).unwrap();
    let labels: Vec<bool> = serde_json::from_value(labels).unwrap();
    let expected = |name: &str| file.values(&format!("{model_name}/{loss_name}/{name}")).0;
    let train = adamw(&settings);
    let path = root.join("../../../model/tests/fixtures/families");
    let directory = HuggingFaceModel::open(&path.join(model_name)).unwrap();
    let decoder = directory.decoder::<Autodiff<I>>(&Default::default());
    let mut model: TrainingModel<Autodiff<I>> = decoder.unwrap().into();
    let mut optimizer = Optimizer::<I>::new(&train, model.parameters());
    let references = match loss.has_reference() {
        true => model
            .valid()
            .completion_log_probabilities(&batch(&pairs, &labels, loss, &[]))
            .concat(),
        false => Vec::new(),
    };
    let (logps, rewards) = (expected("logps"), expected("rewards"));
    let (losses, norms) = (expected("losses"), expected("norms"));
    for step in 0..losses.len() {
        let place = format!("{model_name}, {loss_name}, step {step}");
        let near = |what: &str, found: f64, expected: f64, limit: f64| {
            // A small loss is a difference of log-probabilities of this size.
            let error = (found - expected).abs() / expected.abs().max(1.0);
            assert!(
                error < limit,
                "{place}: the {what} {found} differs from {expected} by {error:e}"
            );
        };
        let valid = model.valid();
        let found = valid.completion_log_probabilities(&batch(&pairs, &labels, loss, &[]));
        let found = found.concat();
        let completions = pairs.iter().map(|pair| pair.1.len());
        let completions = completions.chain(pairs.iter().map(|pair| pair.2.len()));
        let of_step = &logps[step * found.len()..];
        for ((found, tokens), expected) in found.iter().zip(completions).zip(of_step) {
            let tokens = if loss.has_reference() { 1 } else { tokens };
            let found = found / tokens as f64;
            near("log-probability", found, *expected, LOG_PROBABILITY);
        }
        let scores = valid.completion_scores(&batch(&pairs, &labels, loss, &references));
        let values = scores.values();
        for (side, name) in ["reward_chosen", "reward_rejected"].iter().enumerate() {
            let expected = rewards[2 * step + side];
            near(name, values.get(name).unwrap(), expected, 3e-5);
        }

        let pass = TrainingPass {
            recompute,
            ..TrainingPass::default()
        };
        let (loss, grads, _) = model.loss_and_gradients(
            batch(&pairs, &labels, loss, &references),
            pairs.len(),
            HeadLossOptions::default(),
            pass,
            None,
        );
        near("loss", value(loss), losses[step], LOSS);
        let norm = global_norm::<Autodiff<I>, _>(&model, &grads).unwrap();
        near("norm", value(norm.clone()), norms[step], NORM);
        if step == 0 {
            let place = (model_name, loss_name);
            check_gradients(&file, place, directory.config(), &valid, &grads);
        }
        let factor = clip_factor(norm, train.clip_norm);
        let rate = number(&settings["lr"]);
        model = optimizer.update::<Autodiff<I>, _>(model, grads, factor, rate);
    }
}

const MODELS: [&str; 4] = ["gpt2-tied", "llama-bias", "gpt_neox-parallel", "qwen3-tied"];

const LOSSES: [&str; 7] = [
    "dpo-sigmoid",
    "dpo-ipo",
    "dpo-hinge",
    "dpo-robust",
    "orpo",
    "simpo",
    "kto",
];

#[test]
fn losses_log_probabilities_and_steps_are_those_of_trl() {
    let _alone = alone();
    for model in MODELS {
        for loss in LOSSES {
            check_steps::<Flex>(model, loss, false);
        }
    }
    check_steps::<NdArray>("llama-bias", "dpo-sigmoid", false);
    check_steps::<Flex>("llama-bias", "dpo-ipo", true);
    check_steps::<Flex>("gpt2-tied", "orpo", true);
}

#[cfg(feature = "vulkan")]
#[test]
fn steps_of_preferences_are_those_of_trl_on_vulkan() {
    let _alone = alone();
    for model in MODELS {
        check_steps::<burn::backend::Vulkan>(model, "dpo-sigmoid", false);
    }
    for loss in LOSSES {
        check_steps::<burn::backend::Vulkan>("llama-bias", loss, false);
    }
}

/// The same sums with a right or a wrong result.
fn labelled(folder: &Path) -> DataConfig {
    let line = |i: usize| {
        let (a, b, is_right) = (i % 7, i / 7 % 7, !i.is_multiple_of(3));
        let end = if is_right { '.' } else { '!' };
        let result = a + b + usize::from(!is_right);
        format!(
            "{{\"prompt\": \"{a}+{b}=\", \"completion\": \"{result}{end}\", \"label\": {is_right}}}\n"
        )
    };
    records(
        folder,
        "labelled.jsonl",
        &(0..80).map(line).collect::<String>(),
    )
}

/// Sums with a right and a wrong result.
fn pairs(folder: &Path) -> DataConfig {
    let line = |i: usize| {
        let (a, b) = (i % 7, i / 7 % 7);
        let wrong = a + b + 1 + i % 3;
        format!(
            "{{\"prompt\": \"{a}+{b}=\", \"chosen\": \"{}.\", \"rejected\": \"{wrong}!\"}}\n",
            a + b
        )
    };
    records(
        folder,
        "pairs.jsonl",
        &(0..80).map(line).collect::<String>(),
    )
}

fn preference_config(objective: ObjectiveConfig, data: DataConfig) -> RunConfig {
    let mut raw = families::preset("char-nano").unwrap().config;
    (raw.seq_len, raw.d_model, raw.n_layers, raw.heads) = (32, 16, 2, 2);
    config(raw, objective, data)
}

/// The accuracy of an evaluation, which has no perplexity.
fn accuracy(event: &Event) -> f64 {
    match event {
        Event::Evaluation {
            metrics,
            perplexity: None,
            ..
        } => metrics.get("reward_accuracy").unwrap(),
        _ => panic!("no evaluation"),
    }
}

#[test]
fn preferences_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let dpo = DpoConfig {
        loss: DpoLoss::Robust,
        label_smoothing: 0.1,
        ..DpoConfig::default()
    };
    for objective in [
        ObjectiveConfig::Dpo(dpo),
        ObjectiveConfig::Orpo(OrpoConfig::default()),
        ObjectiveConfig::Simpo(SimpoConfig::default()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = preference_config(objective, pairs(folder.path()));
        config.train.recompute = true;
        let resumed = check_resume(config.clone(), folder.path());
        let is_dpo = matches!(config.train.objective, ObjectiveConfig::Dpo(_));
        assert_eq!(resumed.join("reference.json").exists(), is_dpo);
        let (first, last) = {
            let found = evaluations(&resumed);
            (accuracy(&found[0]), accuracy(found.last().unwrap()))
        };
        // Every rejected completion ends differently.
        assert!(first <= last && last == 1.0, "{first} {last}");
    }
}

#[test]
fn labelled_completions_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let objective = ObjectiveConfig::Kto(KtoConfig {
        desirable_weight: 0.5,
        ..KtoConfig::default()
    });
    let config = preference_config(objective, labelled(folder.path()));
    let resumed = check_resume(config, folder.path());
    let found = evaluations(&resumed);
    let Event::Evaluation { metrics, .. } = found.last().unwrap() else {
        panic!("no evaluation");
    };
    assert!(metrics.get("reward_margin").unwrap() > 0.0);
    assert!(metrics.get("kl").unwrap() >= 0.0);
    assert_eq!(metrics.get("reward_accuracy"), None);
}

#[test]
fn unusable_preferences_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let dpo = || ObjectiveConfig::Dpo(DpoConfig::default());
    let error = |contents: &str, change: fn(&mut RunConfig)| {
        let data = records(folder.path(), "broken.jsonl", contents);
        let mut config = preference_config(dpo(), data);
        change(&mut config);
        let found = run(&config, &folder.path().join("run"));
        assert!(!folder.path().join("run").exists());
        found.unwrap_err().to_string()
    };
    let good = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n";
    let broken = format!("{good}{{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"c\"}}\n");
    let same = |_: &mut RunConfig| {};
    assert!(error(&broken, same).contains("line 2: `chosen` is empty"));
    assert!(error(good, same).contains("at least 2 records"));
    let messages = "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"c\"}]}\n";
    assert!(error(&messages.repeat(2), same).contains("no chat template"));
    let long =
        "{\"prompt\": \"aaaaaaaaaaaaaaaaaaaaaaaaaa\", \"chosen\": \"b\", \"rejected\": \"c\"}\n";
    assert!(error(&long.repeat(4), same).contains("at least 2 records"));
    let smoothed = error(&good.repeat(4), |config| {
        config.train.loss.label_smoothing = 0.1;
    });
    assert!(
        smoothed.contains("must be 0 with objective = dpo"),
        "{smoothed}"
    );
}
