//! Adapters of encoders and encoder–decoders in whole runs.

use std::fs;
use std::path::Path;

use burn_flex::Flex;
use emberlm_checkpoint::{Model, kind_of};
use emberlm_data::{TOKENIZER_FILE, Tokenizer};
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::hugging_face::{ExportOptions, export};
use emberlm_model::weights::load_tensors;
use emberlm_model::{LoraConfig, TransformerConfig};
use emberlm_trainer::RunStart;
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::config::{
    ClassifyConfig, ConstantConfig, MlmConfig, ObjectiveConfig, ScheduleConfig, Seq2SeqConfig,
};

use super::whole_run::{
    Training, check_resume_from, config, dataset, encoder, encoder_decoder, evaluations, labelled,
    loss_of, pairs,
};
use crate::common::alone;

/// Writes a model of `config` with a tokenizer of bytes, as a Hugging Face directory.
fn write_base(config: &TransformerConfig, folder: &Path) {
    fs::create_dir(folder).unwrap();
    let model = config.init::<Flex>(5, &Default::default());
    export(&model, folder, &ExportOptions::default()).unwrap();
    let tokenizer = Tokenizer::from_choice(&"byte".parse().unwrap()).unwrap();
    let file = folder.join(TOKENIZER_FILE);
    fs::write(file, tokenizer.to_tokenizer_json()).unwrap();
}

#[test]
fn adapters_of_encoders_and_encoder_decoders_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let encoder = TransformerConfig::try_from(EncoderSettings {
        vocab_size: 257,
        ..encoder()
    });
    let pair = TransformerConfig::try_from(EncoderDecoderSettings {
        vocab_size: 257,
        ..encoder_decoder()
    });
    let classify = ObjectiveConfig::Classify(ClassifyConfig::default());
    let seq2seq = ObjectiveConfig::Seq2seq(Seq2SeqConfig::default());
    for (name, model, objective, data) in [
        ("bert", encoder.unwrap(), classify, labelled(folder.path())),
        ("t5", pair.unwrap(), seq2seq, pairs(folder.path())),
    ] {
        let own = folder.path().join(name);
        let base = own.join("base");
        fs::create_dir(&own).unwrap();
        write_base(&model, &base);
        let weights = fs::read(base.join("model.safetensors")).unwrap();
        let mut config = config(model.raw(), objective, data);
        config.train.from.clone_from(&base);
        config.train.steps = 24;
        config.train.checkpoints.keep_last = 10;
        config.train.adapter = Some(LoraConfig {
            rank: 4,
            targets: vec!["all-linear".to_owned()],
            ..LoraConfig::default()
        });
        config.train.schedule = ScheduleConfig::Constant(ConstantConfig {
            learning_rate: 2e-2,
            warmup_steps: 0,
        });
        let run = check_resume_from(Some(&base), config, &own);
        let losses: Vec<f64> = evaluations(&run).iter().map(loss_of).collect();
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last < 0.8 * first, "{name}: {losses:?}");
        let after = fs::read(base.join("model.safetensors")).unwrap();
        assert!(after == weights, "the base model of {name} is unchanged");
        let newest = Checkpoint::newest(&run, |_| {}).unwrap().unwrap();
        for (path, _) in load_tensors(&newest.path.join("model.safetensors")).unwrap() {
            let is_saved = path.contains(".adapter.") || path.starts_with("head.");
            assert!(is_saved, "{name} saves {path}");
        }
        let opened = Model::open(&run).unwrap();
        let adapted = opened.decoder::<Flex>(&Default::default()).unwrap();
        assert!(adapted.has_adapter());
        assert_eq!(kind_of(&run), model.kind());
        assert_eq!(adapted.config().kind(), model.kind());
    }
}

#[test]
fn an_adapter_needs_the_head_that_predicts_masked_tokens() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let settings = EncoderSettings {
        vocab_size: 258,
        ..encoder()
    };
    let model = TransformerConfig::try_from(settings).unwrap();
    let base = folder.path().join("base");
    write_base(&model, &base);
    let objective = ObjectiveConfig::Mlm(MlmConfig::default());
    let mut config = config(model.raw(), objective, dataset(folder.path()));
    config.train.from.clone_from(&base);
    config.train.adapter = Some(LoraConfig::default());
    let start = RunStart::New(folder.path().join("run"));
    let training = emberlm_trainer::Training::<Training>::new(config, start);
    let training = training.fine_tuning(&Model::open(&base).unwrap()).unwrap();
    let error = training.run().unwrap_err().to_string();
    assert!(
        error.contains("no head that predicts masked tokens"),
        "{error}"
    );
}
