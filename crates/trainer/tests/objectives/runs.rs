//! Whole runs: what they learn, that they resume bit by bit, and that their checkpoints open.

use std::fs;
use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn_flex::Flex;
use emberlm_checkpoint::{EncoderDecoderModel, EncoderModel, Model, ModelKind, kind_of};
use emberlm_data::{PrepareOptions, prepare};
use emberlm_generate::{GenerateOptions, Generator};
use emberlm_model::config::FeedForward;
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::config::{
    ClassifyConfig, ConstantConfig, EvaluationConfig, MlmConfig, ObjectiveConfig, ScheduleConfig,
    Seq2SeqConfig, SpanCorruptionConfig,
};
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::{
    DataConfig, Interrupter, RunConfig, RunFolder, RunModel, RunResult, RunStart, RunWeights,
    TrainConfig, TrainError,
};

use crate::common::{alone, options};

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
    model: impl Into<RunModel>,
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
    for entry in fs::read_dir(whole.join("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("step-00000005") {
            fs::remove_dir_all(path).unwrap();
        }
    }
    let checkpoint = Checkpoint::newest_to_resume(&whole, |_| {})
        .unwrap()
        .unwrap();
    assert_eq!(checkpoint.state.as_ref().unwrap().step, 5);
    let start = RunStart::Resumed(RunFolder::open(&whole).unwrap(), Some(Box::new(checkpoint)));
    let written = fs::read_to_string(whole.join("config.toml")).unwrap();
    let again = emberlm_trainer::run_config::from_toml(&written).unwrap();
    let options = options(Interrupter::new());
    emberlm_trainer::Training::<Training>::new(again, start)
        .options(options)
        .run()
        .unwrap();
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

#[test]
fn masked_tokens_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let objective = ObjectiveConfig::Mlm(MlmConfig::default());
    let mut config = config(encoder(), objective, dataset(folder.path()));
    config.train.recompute = true;
    let run_folder = check_resume(config.clone(), folder.path());
    assert_eq!(kind_of(&run_folder), ModelKind::Encoder);
    let model = EncoderModel::open(&run_folder).unwrap();
    // Bytes, the end of text, and a mask.
    assert_eq!(model.config().vocab_size(), 258);
    let embedder = model.embedder::<Flex>(&Default::default()).unwrap();
    let vectors = embedder.embed(&["1 and 2 make 3"]).unwrap();
    assert_eq!(vectors[0].len(), 16);
    let opened = Model::open(&run_folder).unwrap();
    let error = opened.of_kind(ModelKind::Decoder).unwrap_err().to_string();
    assert!(error.contains("is an encoder, not a decoder"), "{error}");

    config.train.steps = 300;
    config.train.evaluation.interval = 150;
    config.train.recompute = false;
    run(&config, &folder.path().join("long")).unwrap();
    let losses: Vec<f64> = evaluations(&folder.path().join("long"))
        .iter()
        .map(loss_of)
        .collect();
    assert!(losses[1] < 3.0, "{losses:?}, of ln 258 = 5.6");

    // The same run without recomputation.
    let other = folder.path().join("kept");
    config.train.steps = 12;
    config.train.evaluation.interval = 6;
    config.train.checkpoints.interval = 5;
    config.train.ema = 0.9;
    run(&config, &other).unwrap();
    let weights = |run: &Path| fs::read(run.join("checkpoints/step-00000012/model.safetensors"));
    assert!(weights(&other).unwrap() == weights(&run_folder).unwrap());
}

#[test]
fn labels_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let objective = ObjectiveConfig::Classify(ClassifyConfig::default());
    let mut config = config(encoder(), objective, labelled(folder.path()));
    let resumed = check_resume(config.clone(), folder.path());

    config.train.steps = 120;
    config.train.evaluation.interval = 60;
    let long = folder.path().join("long");
    run(&config, &long).unwrap();
    let evaluations = evaluations(&long);
    let Event::Evaluation {
        metrics, tokens, ..
    } = &evaluations[1]
    else {
        panic!("no evaluation");
    };
    assert_eq!(*tokens, 12, "a tenth of the texts");
    assert_eq!(metrics.get("accuracy"), Some(1.0));
    assert_eq!(metrics.get("f1_macro"), Some(1.0));
    let begun = fs::read_to_string(long.join("events.jsonl")).unwrap();
    assert!(begun.lines().next().unwrap().contains("\"f1_macro\""));

    let model = EncoderModel::open(&long).unwrap();
    let labels = model.config().encoder_head().unwrap().labels().unwrap();
    assert_eq!(labels, ["a", "b", "c"]);
    let embedder = model.embedder::<Flex>(&Default::default()).unwrap();
    let texts =
        ["cxyzxyz", "axyz", "bxyzxyzxyz"].map(|text| embedder.sequences().encode(text).unwrap());
    let found = embedder.class_scores(&texts).unwrap().unwrap();
    for (probabilities, expected) in found.iter().zip([2, 0, 1]) {
        assert!(probabilities[expected] > 0.8, "{probabilities:?}");
    }

    // Fine-tuning keeps the labels of a classifier that has those of the records, and replaces others.
    let directory = |run: &Path| {
        let model = EncoderModel::open(run).unwrap();
        let settings = EncoderSettings::of(model.config()).unwrap();
        let weights = RunWeights::from(model.into_model());
        (settings, weights)
    };
    let (settings, weights) = directory(&long);
    config.model = settings.into();
    config.train.steps = 1;
    let tuned = folder.path().join("tuned");
    start(&config, &tuned, Some(weights)).unwrap();
    let Event::Evaluation { metrics, .. } = &self::evaluations(&tuned)[0] else {
        panic!("no evaluation");
    };
    assert_eq!(
        metrics.get("accuracy"),
        Some(1.0),
        "the classifier was not kept"
    );
    let (settings, weights) = directory(&resumed);
    config.model = settings.into();
    let path = folder.path().join("two.csv");
    fs::write(&path, "text,label\nax,10\nbx,9\n".repeat(4)).unwrap();
    config.data.dataset = path;
    let two = folder.path().join("two");
    // A header in the middle is a record with its own label.
    start(&config, &two, Some(weights)).unwrap();
    let model = EncoderModel::open(&two).unwrap();
    let labels = model.config().encoder_head().unwrap().labels().unwrap();
    assert_eq!(labels, ["10", "9", "label"]);
}

#[test]
fn pairs_of_texts_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let objective = ObjectiveConfig::Seq2seq(Seq2SeqConfig::default());
    let mut config = config(encoder_decoder(), objective, pairs(folder.path()));
    for recompute in [true, false] {
        let of_runs = folder.path().join(format!("recompute-{recompute}"));
        fs::create_dir(&of_runs).unwrap();
        config.train.recompute = recompute;
        check_resume(config.clone(), &of_runs);
    }

    config.train.steps = 250;
    config.train.evaluation.interval = 125;
    let long = folder.path().join("long");
    run(&config, &long).unwrap();
    let losses: Vec<f64> = evaluations(&long).iter().map(loss_of).collect();
    assert!(losses[1] < 0.2, "{losses:?}");
    assert_eq!(kind_of(&long), ModelKind::EncoderDecoder);
    let model = EncoderDecoderModel::open(&long).unwrap();
    assert_eq!(model.stop_tokens(), [256]);
    let loaded = model.load::<Flex>(&Default::default()).unwrap();
    let options = GenerateOptions {
        max_new_tokens: 5,
        stop_tokens: model.stop_tokens(),
        chooser: emberlm_generate::SamplerConfig {
            temperature: 0.0,
            ..emberlm_generate::SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let source = model.encode("bxx").unwrap();
    let generator = Generator::new(&loaded, &source, &options).unwrap();
    let tokens: Vec<u32> = generator.map(Result::unwrap).collect();
    assert_eq!(tokens[..2], [98, 98]);
}

#[test]
fn removed_spans_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let objective = ObjectiveConfig::SpanCorruption(SpanCorruptionConfig::default());
    let mut config = config(encoder_decoder(), objective, dataset(folder.path()));
    let run_folder = check_resume(config.clone(), folder.path());
    let model = EncoderDecoderModel::open(&run_folder).unwrap();
    // Bytes, the end of text, and sentinels.
    assert_eq!(model.config().vocab_size(), 357);
    assert_eq!(model.config().start_token().unwrap(), 256);

    config.train.steps = 300;
    config.train.evaluation.interval = 150;
    run(&config, &folder.path().join("long")).unwrap();
    let losses: Vec<f64> = evaluations(&folder.path().join("long"))
        .iter()
        .map(loss_of)
        .collect();
    assert!(
        losses[1] < losses[0] && losses[1] < 2.1,
        "{losses:?}, of ln 357 = 5.9"
    );
}

#[test]
fn objectives_refuse_models_and_settings_that_they_do_not_support() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = dataset(folder.path());
    let mlm = || ObjectiveConfig::Mlm(MlmConfig::default());
    let seq2seq = || ObjectiveConfig::Seq2seq(Seq2SeqConfig::default());
    let error = |config: RunConfig| {
        let error = run(&config, &folder.path().join("refused")).unwrap_err();
        error.to_string()
    };
    let of_pairs = config(encoder_decoder(), mlm(), data.clone());
    let expected = "train.objective.kind = mlm: must be span_corruption or seq2seq";
    assert!(error(of_pairs).starts_with(expected));
    let mut isolated = config(encoder(), mlm(), data.clone());
    isolated.train.documents = emberlm_data::Packing::Isolated;
    assert!(error(isolated).contains("documents = isolated: must be stream"));
    let mut small = config(encoder(), mlm(), data.clone());
    if let RunModel::Encoder(settings) = &mut small.model {
        settings.vocab_size = 257;
    }
    assert!(error(small).contains("vocab_size = 257: must be at least 258"));
    let mut long = config(encoder(), mlm(), data.clone());
    long.train.seq_len = 25;
    assert!(error(long).contains("seq_len = 25: must be at most the model's context of 24"));
    let mut without = config(encoder_decoder(), seq2seq(), pairs(folder.path()));
    without.data.tokenizer.clear();
    assert!(error(without).contains("data.tokenizer = \"\": must be set"));
    let whole = ObjectiveConfig::Mlm(MlmConfig {
        whole_words: true,
        ..MlmConfig::default()
    });
    assert!(error(config(encoder(), whole, data)).contains("whole_words = true: must be false"));
}

#[test]
fn a_run_does_not_resume_on_other_records() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let objective = ObjectiveConfig::Classify(ClassifyConfig::default());
    let config = config(encoder(), objective, labelled(folder.path()));
    let out = folder.path().join("run");
    run(&config, &out).unwrap();
    let written = fs::read_to_string(out.join("config.toml")).unwrap();
    let mut again = emberlm_trainer::run_config::from_toml(&written).unwrap();
    again.train.steps = 14;
    let text = fs::read_to_string(&config.data.dataset).unwrap();
    fs::write(&config.data.dataset, text.replacen("axyz,a", "axyy,a", 1)).unwrap();
    let checkpoint = Checkpoint::newest_to_resume(&out, |_| {}).unwrap();
    let start = RunStart::Resumed(RunFolder::open(&out).unwrap(), checkpoint.map(Box::new));
    let options = options(Interrupter::new());
    let error = emberlm_trainer::Training::<Training>::new(again, start)
        .options(options)
        .run()
        .unwrap_err();
    assert!(error.to_string().contains("has other tokens"), "{error}");
}
