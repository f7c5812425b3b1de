//! The model of a run: the table `[model]`. Earlier versions had encoders and encoder–decoders in two further tables.

use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::{ModelConfig, ModelKind};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::RunConfig;
use crate::error::TrainError;

impl RunConfig {
    /// The configuration of a decoder.
    ///
    /// # Errors
    /// The model is another one.
    pub fn decoder(&self) -> Result<&ModelConfig, TrainError> {
        match self.model.kind() {
            ModelKind::Decoder => Ok(&self.model),
            kind => Err(TrainError::NotADecoder { kind }),
        }
    }
}

/// Moves a whole table of an earlier version into `[model]`. Tables that are not whole stay, and are refused.
pub(super) fn upgrade(run: &mut Table) {
    move_table::<EncoderSettings>(run, "encoder");
    move_table::<EncoderDecoderSettings>(run, "encoder_decoder");
}

fn move_table<S: DeserializeOwned + Into<ModelConfig>>(run: &mut Table, name: &str) {
    let settings = run.get(name).cloned().map(Value::try_into::<S>);
    let Some(Ok(settings)) = settings else {
        return;
    };
    let mut model: ModelConfig = settings.into();
    // Earlier versions wrote 0 for as many as the data needs.
    model.vocab_size = model.vocab_size.filter(|&size| size > 0);
    if let Ok(model) = Table::try_from(model) {
        run.remove(name);
        run.insert("model".to_owned(), Value::Table(model));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::presets;
    use crate::config::run_config::{from_toml, layered, to_toml};

    /// The rest of a file of an earlier version.
    const REST: &str = "[data]\n[train]\n[train.objective]\nkind = \"mlm\"\n";

    #[test]
    fn a_model_of_another_kind_replaces_the_model() {
        for (preset, other) in [
            ("bert-nano", "char-nano"),
            ("t5-nano", "bert-nano"),
            ("char-nano", "t5-nano"),
        ] {
            let [base, other] = [preset, other].map(|name| presets::run(name).expect("a preset"));
            let text = to_toml(&base).expect("TOML");
            assert_eq!(from_toml(&text).expect("TOML"), base);
            let file = tempfile::NamedTempFile::new().expect("a file");
            fs::write(file.path(), text).expect("written");
            let settings = ["model.d_model=32".to_owned()];
            let read = layered(other, Some(file.path()), &settings).expect("legal");
            let mut expected = base.model;
            expected.d_model = 32;
            assert_eq!(read.model, expected);
        }
    }

    #[test]
    fn tables_of_earlier_versions_are_read() {
        let encoder = EncoderSettings {
            first_position: 2,
            ..EncoderSettings::nano(0)
        };
        let text = toml::to_string(&encoder).expect("TOML");
        let (sizes, inner) = text.split_at(text.find('[').expect("tables"));
        let inner = inner.replace('[', "[encoder.");
        let old = format!("[encoder]\n{sizes}{inner}{REST}");
        let read = from_toml(&old).expect("a file of an earlier version");
        assert_eq!((read.model.seq_len, read.model.vocab_size), (126, None));
        assert_eq!(read.model.kind(), ModelKind::Encoder);
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), old).expect("written");
        let base = presets::run("char-nano").expect("a preset");
        let layered = layered(base, Some(file.path()), &[]).expect("legal");
        assert_eq!(layered.model, read.model);
        let base = presets::run("bert-nano").expect("a preset");
        let settings = ["encoder.d_model=32".to_owned()];
        let error =
            crate::config::run_config::layered(base, None, &settings).expect_err("not whole");
        assert!(
            error.to_string().contains("unknown field `encoder`"),
            "{error}"
        );
    }
}
