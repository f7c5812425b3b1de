//! Sampling settings that a model recommends in its `generation_config.json`.

use serde_json::{Map, Value};

use crate::chooser::{Chooser, ChooserConfig};
use crate::error::SettingError;
use crate::settings::{SETTINGS, SamplingDefaults, SamplingSetting};

impl SamplingDefaults {
    /// Reads the fields of a `generation_config.json`, using the names of `transformers`. Null fields count
    /// as absent, and other fields are ignored ([`ignored_fields`](crate::ignored_fields)). `"do_sample": false` means temperature 0; without
    /// `do_sample`, the model is sampled.
    ///
    /// Invalid fields are skipped and returned in the second value. `eos_token_id` is only validated against
    /// a vocabulary of `vocab_size`, since the stop tokens are part of the model.
    pub fn read(fields: &Map<String, Value>, vocab_size: usize) -> (Self, Vec<SettingError>) {
        let mut reader = Reader {
            fields,
            ignored: Vec::new(),
        };
        let mut defaults = Self::default();
        for setting in SETTINGS.iter().filter(|setting| setting.is_of_models) {
            (setting.set)(&mut defaults, reader.number(setting));
        }
        defaults.max_new_tokens = reader.max_new_tokens();
        match reader.field("do_sample") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => defaults.temperature = Some(0.0),
            Some(value) => reader.ignore("do_sample", value, "must be true or false"),
        }
        reader.check_end(vocab_size);
        (defaults, reader.ignored)
    }

    /// These settings, with unset ones taken from `other`.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        for setting in &SETTINGS {
            let value = (setting.get)(&self).or_else(|| (setting.get)(&other));
            (setting.set)(&mut self, value);
        }
        self.max_new_tokens = self.max_new_tokens.or(other.max_new_tokens);
        self
    }

    /// The chooser configuration for these settings. Unset ones have no effect.
    pub fn chooser(self, seed: u64) -> ChooserConfig {
        let mut config = ChooserConfig::default();
        config.sampler.seed = seed;
        for setting in &SETTINGS {
            if let Some(value) = (setting.get)(&self) {
                (setting.apply)(&mut config, value);
            }
        }
        config
    }

    /// Checks each setting.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn check(self, vocab_size: usize) -> Result<(), SettingError> {
        if self.max_new_tokens == Some(0) {
            return Err(SettingError::new("max_new_tokens", 0, "must be at least 1"));
        }
        Chooser::new(&self.chooser(0), &[], vocab_size, 0).map(|_| ())
    }
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    ignored: Vec<SettingError>,
}

impl<'a> Reader<'a> {
    /// The value of a field, unless it is missing or null.
    fn field(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn ignore(&mut self, name: &'static str, value: &Value, rule: impl Into<String>) {
        self.ignored.push(SettingError::new(name, value, rule));
    }

    fn number(&mut self, setting: &SamplingSetting) -> Option<f64> {
        let value = self.field(setting.name)?;
        let Some(number) = value.as_f64() else {
            let rule = match setting.range.is_whole {
                true => setting.range.rule(),
                false => "must be a number".to_owned(),
            };
            self.ignore(setting.name, value, rule);
            return None;
        };
        let checked = setting.range.check(setting.name, number);
        let checked = checked.map_err(|error| self.ignored.push(error));
        checked.ok().map(|()| number)
    }

    fn max_new_tokens(&mut self) -> Option<usize> {
        let name = "max_new_tokens";
        let value = self.field(name)?;
        let count = value.as_u64().filter(|&count| count >= 1);
        let count = count.and_then(|count| usize::try_from(count).ok());
        if count.is_none() {
            self.ignore(name, value, "must be a whole number, at least 1");
        }
        count
    }

    fn check_end(&mut self, vocab_size: usize) {
        let name = "eos_token_id";
        let Some(value) = self.field(name) else {
            return;
        };
        let is_id = |id: &Value| id.as_u64().is_some_and(|id| id < vocab_size as u64);
        let good = match value {
            Value::Array(ids) => ids.iter().all(is_id),
            id => is_id(id),
        };
        if !good {
            let rule = format!("must be token ids below {vocab_size}, one or a list");
            self.ignore(name, value, rule);
        }
    }
}
