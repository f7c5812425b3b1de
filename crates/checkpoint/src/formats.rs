//! The files of a checkpoint, for the reference documentation.

use emberlm_data::formats::FileFormat;
use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_tokenizer::TOKENIZER_FILE;
use schemars::{Schema, schema_for};

use crate::checkpoint::{
    DESCRIPTION, MANIFEST, MODEL, Manifest, OPTIMIZER, SETTINGS, STATE, TRAINING,
};
use crate::description::Description;
use crate::source_files::SourceFiles;

/// The files of a checkpoint whose state has the fields of `state`. `optimizer` describes the optimizer's tensors.
pub fn checkpoint_files(state: Schema, optimizer: &str) -> Vec<FileFormat> {
    let source: Vec<String> = SourceFiles::names()
        .map(|name| format!("`{name}`"))
        .collect();
    vec![
        FileFormat::new(
            DESCRIPTION,
            "the model's configuration, the tokenizer and the chat template, so that a checkpoint can be copied anywhere",
        )
        .with_schema(schema_for!(Description)),
        FileFormat::new(
            MODEL,
            "the weights, named by the model's paths; with `train.ema`, their average",
        ),
        FileFormat::new(
            TRAINING,
            "with `train.ema`, the weights that training resumes from",
        ),
        FileFormat::new(
            OPTIMIZER,
            format!("the optimizer's state, for [exact resume](../explanations/exact-resume.md): {optimizer}"),
        ),
        FileFormat::new(STATE, "the position of the run").with_schema(state),
        FileFormat::new(
            SETTINGS,
            "the settings that the run was trained with, in the format of `config.toml`, which [a resumed run must not change](../explanations/exact-resume.md#what-may-change)",
        ),
        FileFormat::new(
            CONFIG_FILE,
            "of an encoder or encoder–decoder of an earlier version, instead of `model.json`: the checkpoint is a Hugging Face directory",
        ),
        FileFormat::new(TOKENIZER_FILE, "the tokenizer, if it is a file"),
        FileFormat::new(
            source.join(", ").trim_matches('`'),
            "the files of the Hugging Face directory that was fine-tuned, byte for byte; its `config.json` is renamed",
        ),
        FileFormat::new(MANIFEST, "size and BLAKE3 of each file, written last").with_schema(schema_for!(Manifest)),
    ]
}
