//! Whole runs: what they learn, that they resume bit by bit, and that their checkpoints open.

use std::fs;
use std::path::Path;

use burn_flex::Flex;
use emberlm_checkpoint::{EncoderModel, Model, ModelKind, kind_of};

use emberlm_generate::{GenerateOptions, Generator};
use emberlm_model::encoder::EncoderSettings;
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::config::{
    ClassifyConfig, MlmConfig, ObjectiveConfig, Seq2SeqConfig, SpanCorruptionConfig,
};
use emberlm_trainer::events::Event;
use emberlm_trainer::{Interrupter, RunConfig, RunFolder, RunStart, RunWeights};

use super::whole_run::{
    Training, as_earlier_version, check_resume, config, dataset, encoder, encoder_decoder,
    evaluations, keep_fifth_step, labelled, loss_of, pairs, resume, run, start,
};
use crate::common::{alone, options};

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

    // The same run from a checkpoint of an earlier version.
    as_earlier_version(&keep_fifth_step(&other));
    resume(&other);
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
    let model = Model::open(&long).unwrap();
    let tokenizer = model.require_tokenizer().unwrap();
    assert_eq!(model.stop_tokens(Some(&tokenizer)), [256]);
    let loaded = model.decoder::<Flex>(&Default::default()).unwrap();
    let options = GenerateOptions {
        max_new_tokens: 5,
        stop_tokens: model.stop_tokens(Some(&tokenizer)),
        chooser: emberlm_generate::SamplerConfig {
            temperature: 0.0,
            ..emberlm_generate::SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let source = model.prompt(&tokenizer, "bxx").unwrap();
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
    let model = Model::open(&run_folder).unwrap();
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
    small.model.vocab_size = Some(257);
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
