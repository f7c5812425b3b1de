//! The sampling settings that a model's `generation_config.json` recommends.

use emberlm_generate::{SamplingDefaults, SettingError, ignored_fields};
use emberlm_model::ModelKind;
use serde_json::{Map, Value};

use crate::model::{GENERATION_CONFIG_FILE, Model};

impl Model {
    /// The sampling settings recommended by the model's `generation_config.json`, and a warning about each that is
    /// ignored: an invalid one, or one that is not supported. An encoder–decoder chooses the most probable token unless
    /// the file has `do_sample`, as `transformers` does.
    pub fn sampling_defaults(&self) -> (SamplingDefaults, Vec<String>) {
        let config = self.config();
        let fields = match self.generation_config() {
            Ok(fields) => fields,
            Err(error) => {
                let warning = format!("{error}; the file is ignored");
                return (self.without_file(), vec![warning]);
            }
        };
        let mut ignored = ignored_fields(&fields, config.longest());
        let start = config.start_token();
        ignored.extend(start.and_then(|start| other_start(&fields, start)));
        let (mut defaults, invalid) = SamplingDefaults::read(&fields, config.vocab_size());
        if !fields.get("do_sample").is_some_and(|value| value == true) {
            defaults.temperature = self.without_file().temperature.or(defaults.temperature);
        }
        let path = self.path().join(GENERATION_CONFIG_FILE);
        let ignored = invalid.iter().map(SettingError::to_string).chain(ignored);
        let warning = |reason| format!("{}: {reason}; it is ignored", path.display());
        (defaults, ignored.map(warning).collect())
    }

    /// The settings of a model whose files recommend none.
    fn without_file(&self) -> SamplingDefaults {
        SamplingDefaults {
            temperature: (self.kind() == ModelKind::EncoderDecoder).then_some(0.0),
            ..SamplingDefaults::default()
        }
    }
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
