//! The sampling settings that a model's `generation_config.json` recommends.

use std::path::Path;

use emberlm_generate::{SamplingDefaults, SettingError, ignored_fields};
use serde_json::{Map, Value};

use crate::encoder_decoder_model::EncoderDecoderModel;
use crate::error::ModelError;
use crate::model::{GENERATION_CONFIG_FILE, Model};

impl Model {
    /// The sampling settings recommended by the model's `generation_config.json`, and a warning about each that is
    /// ignored: an invalid one, or one that is not supported.
    pub fn sampling_defaults(&self) -> (SamplingDefaults, Vec<String>) {
        let config = self.config();
        match self.generation_config() {
            Ok(fields) => {
                let ignored = ignored_fields(&fields, Some(config.seq_len()));
                recommended(self.path(), &fields, config.vocab_size(), ignored)
            }
            Err(error) => unreadable(&error),
        }
    }
}

impl EncoderDecoderModel {
    /// The sampling settings recommended by the model's `generation_config.json`, and a warning about each that is
    /// ignored. Unless the file has `do_sample`, the most probable token is chosen, as `transformers` does.
    pub fn sampling_defaults(&self) -> (SamplingDefaults, Vec<String>) {
        let mut samples = false;
        let (mut defaults, warnings) = match self.model().generation_config() {
            Ok(fields) => {
                samples = fields.get("do_sample").is_some_and(|value| value == true);
                let mut ignored = ignored_fields(&fields, None);
                let start = self.config().start_token().unwrap_or(0);
                ignored.extend(other_start(&fields, start));
                let path = self.model().path();
                recommended(path, &fields, self.config().vocab_size(), ignored)
            }
            Err(error) => unreadable(&error),
        };
        if !samples {
            defaults.temperature = Some(0.0);
        }
        (defaults, warnings)
    }
}

/// Reads the settings of the file in `folder`. `ignored` describes its fields that are not supported.
fn recommended(
    folder: &Path,
    fields: &Map<String, Value>,
    vocab_size: usize,
    ignored: Vec<String>,
) -> (SamplingDefaults, Vec<String>) {
    let (defaults, invalid) = SamplingDefaults::read(fields, vocab_size);
    let path = folder.join(GENERATION_CONFIG_FILE);
    let ignored = invalid.iter().map(SettingError::to_string).chain(ignored);
    let warning = |reason| format!("{}: {reason}; it is ignored", path.display());
    (defaults, ignored.map(warning).collect())
}

fn unreadable(error: &ModelError) -> (SamplingDefaults, Vec<String>) {
    let warning = format!("{error}; the file is ignored");
    (SamplingDefaults::default(), vec![warning])
}

/// Describes a start token in the file that differs from the one that targets begin with.
fn other_start(fields: &Map<String, Value>, start: u32) -> Option<String> {
    let other = fields.get("decoder_start_token_id")?;
    if other.is_null() || other.as_u64() == Some(u64::from(start)) {
        return None;
    }
    let rule = format!("texts begin with the token {start} of config.json");
    Some(format!("decoder_start_token_id = {other}: {rule}"))
}
