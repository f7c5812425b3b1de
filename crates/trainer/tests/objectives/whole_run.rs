//! Small models and data for whole runs, and the comparison of a run with its resumed one.

use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn_flex::Flex;
use emberlm_checkpoint::Model;
use emberlm_checkpoint::write::write_manifest;
use emberlm_data::{PrepareOptions, TOKENIZER_FILE, prepare};

use emberlm_model::ModelConfig;
use emberlm_model::config::FeedForward;
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::hugging_face::{ExportOptions, export};
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::config::{ConstantConfig, EvaluationConfig, ObjectiveConfig, ScheduleConfig};
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::{
    DataConfig, Interrupter, RunConfig, RunFolder, RunResult, RunStart, RunWeights, TrainConfig,
    TrainError,
};

use crate::common::options;

pub(super) type Training = Autodiff<Flex>;

pub(super) fn encoder() -> EncoderSettings {
    EncoderSettings {
        vocab_size: 0,
        positions: 24,
        n_layers: 2,
        dropout: 0.1,
        attention_dropout: 0.1,
        feed_forward: FeedForward::dense(emberlm_model::Activation::Gelu).with_width(32),
        ..EncoderSettings::new(16, 2)
    }
}

pub(super) fn encoder_decoder() -> EncoderDecoderSettings {
    EncoderDecoderSettings {
        vocab_size: 0,
        dropout: 0.1,
        feed_forward: FeedForward::dense(emberlm_model::Activation::Relu).with_width(32),
        ..EncoderDecoderSettings::new(16, 2)
    }
}

pub(super) fn config(
    model: impl Into<ModelConfig>,
    objective: ObjectiveConfig,
    data: DataConfig,
) -> RunConfig {
    RunConfig {
        model: model.into(),
        data,
        train: TrainConfig {
            steps: 12,
            micro_batch: 4,
            accumulation: 2,
            log_interval: 1,
            seq_len: 20,
            objective,
            schedule: ScheduleConfig::Constant(ConstantConfig {
                learning_rate: 5e-3,
                warmup_steps: 0,
            }),
            evaluation: EvaluationConfig {
                interval: 6,
                batch: 8,
                ..EvaluationConfig::default()
            },
            ..TrainConfig::default()
        },
    }
}

/// A dataset of bytes.
pub(super) fn dataset(folder: &Path) -> DataConfig {
    let lines = (0..400).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
    let input = folder.join("text.txt");
    fs::write(&input, lines.collect::<String>()).unwrap();
    let options = PrepareOptions {
        tokenizer: "byte".parse().unwrap(),
        ..PrepareOptions::default()
    };
    let out = folder.join("data");
    prepare(&[input], &out, &options, &|_| {}).unwrap();
    DataConfig::of(out)
}

/// Records for a tokenizer of bytes, in a file of `folder`.
pub(super) fn records(folder: &Path, name: &str, contents: &str) -> DataConfig {
    let path = folder.join(name);
    fs::write(&path, contents).unwrap();
    DataConfig {
        tokenizer: "byte".to_owned(),
        ..DataConfig::of(path)
    }
}

/// Texts of different lengths, whose label is the letter that they begin with.
pub(super) fn labelled(folder: &Path) -> DataConfig {
    let row = |i: usize| {
        let letter = ["a", "b", "c"][i % 3];
        format!("{letter}{},{letter}\n", "xyz".repeat(1 + i % 5))
    };
    let rows: String = (0..120).map(row).collect();
    records(folder, "labelled.csv", &format!("text,label\n{rows}"))
}

/// Sources of a letter, whose target is the same letter twice.
pub(super) fn pairs(folder: &Path) -> DataConfig {
    let line = |i: usize| {
        let letter = ["a", "b", "c"][i % 3];
        format!(
            "{{\"source\": \"{letter}{}\", \"target\": \"{letter}{letter}\"}}\n",
            "x".repeat(i % 4)
        )
    };
    records(
        folder,
        "pairs.jsonl",
        &(0..120).map(line).collect::<String>(),
    )
}

pub(super) fn run(config: &RunConfig, out: &Path) -> Result<RunResult, TrainError> {
    start(config, out, None)
}

pub(super) fn start(
    config: &RunConfig,
    out: &Path,
    weights: Option<RunWeights<Training>>,
) -> Result<RunResult, TrainError> {
    let start = RunStart::New(out.to_owned());
    let options = options(Interrupter::new());
    let mut training =
        emberlm_trainer::Training::<Training>::new(config.clone(), start).options(options);
    if let Some(weights) = weights {
        training = training.weights(weights);
    }
    training.run()
}

/// The files of a run that do not depend on the machine.
fn files(run: &Path) -> Vec<(String, Vec<u8>)> {
    let events = fs::read_to_string(run.join("events.jsonl")).unwrap();
    let events = events.lines().filter(|line| !line.contains("\"time\":"));
    let mut files = vec![(
        "events".to_owned(),
        events.collect::<Vec<_>>().join("\n").into_bytes(),
    )];
    for entry in fs::read_dir(run.join("checkpoints")).unwrap() {
        for file in fs::read_dir(entry.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(run).unwrap().display().to_string();
            files.push((name, fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

/// [`check_resume_from`] initial weights, with an average of the weights.
pub(super) fn check_resume(mut config: RunConfig, folder: &Path) -> PathBuf {
    config.train.ema = 0.9;
    check_resume_from(None, config, folder)
}

/// Runs to the end, from the model at `base` if there is one, and again to the end from the checkpoint in the middle; both
/// must have the same files.
pub(super) fn check_resume_from(
    base: Option<&Path>,
    mut config: RunConfig,
    folder: &Path,
) -> PathBuf {
    config.train.checkpoints.interval = 5;
    let whole = folder.join("whole");
    let mut training =
        emberlm_trainer::Training::<Training>::new(config, RunStart::New(whole.clone()))
            .options(options(Interrupter::new()));
    if let Some(base) = base {
        training = training.fine_tuning(&Model::open(base).unwrap()).unwrap();
    }
    training.run().unwrap();
    let expected = files(&whole);
    let written = fs::read_to_string(whole.join("config.toml")).unwrap();
    keep_fifth_step(&whole);
    resume(&whole);
    assert_eq!(
        fs::read_to_string(whole.join("config.toml")).unwrap(),
        written
    );
    let found = files(&whole);
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&found), names(&expected));
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        assert!(found == expected, "{name} differs after a resume");
    }
    whole
}

/// Removes all checkpoints of a run but that of step 5, and returns it.
pub(super) fn keep_fifth_step(run: &Path) -> PathBuf {
    let kept = run.join("checkpoints/step-00000005");
    for entry in fs::read_dir(run.join("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if path != kept {
            fs::remove_dir_all(path).unwrap();
        }
    }
    kept
}

/// Continues a run from its newest checkpoint, that of step 5, to its end.
pub(super) fn resume(run: &Path) {
    let checkpoint = Checkpoint::newest_to_resume(run, |_| {}).unwrap().unwrap();
    assert_eq!(checkpoint.state.as_ref().unwrap().step, 5);
    let start = RunStart::Resumed(RunFolder::open(run).unwrap(), Some(Box::new(checkpoint)));
    let written = fs::read_to_string(run.join("config.toml")).unwrap();
    let config = emberlm_trainer::run_config::from_toml(&written).unwrap();
    emberlm_trainer::Training::<Training>::new(config, start)
        .options(options(Interrupter::new()))
        .run()
        .unwrap();
}

/// Rewrites a checkpoint in the form that earlier versions wrote: a Hugging Face directory.
pub(super) fn as_earlier_version(checkpoint: &Path) {
    let model = Model::open(checkpoint).unwrap();
    let weights = model.decoder::<Flex>(&Default::default()).unwrap();
    let tokenizer = model.tokenizer().unwrap().unwrap();
    export(&weights, checkpoint, &ExportOptions::default()).unwrap();
    fs::write(
        checkpoint.join(TOKENIZER_FILE),
        tokenizer.to_tokenizer_json(),
    )
    .unwrap();
    fs::remove_file(checkpoint.join("model.json")).unwrap();
    fs::remove_file(checkpoint.join("manifest.json")).unwrap();
    let files = fs::read_dir(checkpoint).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    write_manifest(checkpoint, &names).unwrap();
}

/// The evaluations of a run.
pub(super) fn evaluations(run: &Path) -> Vec<Event> {
    let events = events::read(run).unwrap().events;
    let is_evaluation = |event: &Event| matches!(event, Event::Evaluation { .. });
    events.into_iter().filter(is_evaluation).collect()
}

pub(super) fn loss_of(event: &Event) -> f64 {
    match event {
        Event::Evaluation { loss, .. } => *loss,
        _ => panic!("no evaluation"),
    }
}
