//! Sampling settings that a model recommends in its `generation_config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chooser::{Chooser, ChooserConfig};
use crate::error::SettingError;
use crate::penalties::Penalties;
use crate::sampler::SamplerConfig;

/// The sampling settings that a model recommends. They apply where neither the user nor the request chooses a
/// value. `None` if the model has no recommendation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingDefaults {
    /// See [`SamplerConfig::temperature`]; 0 for `"do_sample": false`.
    pub temperature: Option<f64>,
    /// See [`SamplerConfig::top_k`].
    pub top_k: Option<u32>,
    /// See [`SamplerConfig::top_p`].
    pub top_p: Option<f64>,
    /// See [`SamplerConfig::min_p`].
    pub min_p: Option<f64>,
    /// See [`Penalties::repetition`].
    pub repetition_penalty: Option<f64>,
    /// See [`Penalties::presence`].
    pub presence_penalty: Option<f64>,
    /// See [`Penalties::frequency`].
    pub frequency_penalty: Option<f64>,
    /// The maximum number of generated tokens.
    pub max_new_tokens: Option<usize>,
}

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
        let sampler = SamplerConfig::default();
        let mut defaults = Self {
            temperature: reader.number("temperature", |temperature| {
                SamplerConfig {
                    temperature,
                    ..sampler
                }
                .check()
            }),
            top_k: reader.count(
                "top_k",
                0,
                "must be a whole number of at least 0 (0 for all tokens)",
            ),
            top_p: reader.number("top_p", |top_p| SamplerConfig { top_p, ..sampler }.check()),
            min_p: reader.number("min_p", |min_p| SamplerConfig { min_p, ..sampler }.check()),
            repetition_penalty: reader.number("repetition_penalty", |repetition| {
                Penalties {
                    repetition,
                    ..Penalties::default()
                }
                .check()
            }),
            max_new_tokens: reader.count("max_new_tokens", 1, "must be a whole number, at least 1"),
            ..Self::default()
        };
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
    pub fn or(self, other: Self) -> Self {
        Self {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
            max_new_tokens: self.max_new_tokens.or(other.max_new_tokens),
        }
    }
}

impl SamplingDefaults {
    /// The chooser configuration for these settings. Unset ones have no effect.
    pub fn chooser(self, seed: u64) -> ChooserConfig {
        let (none, free) = (SamplerConfig::default(), Penalties::default());
        ChooserConfig {
            sampler: SamplerConfig {
                temperature: self.temperature.unwrap_or(none.temperature),
                top_k: self.top_k.map_or(none.top_k, |k| k as usize),
                top_p: self.top_p.unwrap_or(none.top_p),
                min_p: self.min_p.unwrap_or(none.min_p),
                seed,
            },
            penalties: Penalties {
                repetition: self.repetition_penalty.unwrap_or(free.repetition),
                presence: self.presence_penalty.unwrap_or(free.presence),
                frequency: self.frequency_penalty.unwrap_or(free.frequency),
            },
            ..ChooserConfig::default()
        }
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

    fn number(
        &mut self,
        name: &'static str,
        check: impl FnOnce(f64) -> Result<(), SettingError>,
    ) -> Option<f64> {
        let value = self.field(name)?;
        let Some(number) = value.as_f64() else {
            self.ignore(name, value, "must be a number");
            return None;
        };
        match check(number) {
            Ok(()) => Some(number),
            Err(error) => {
                self.ignored.push(error);
                None
            }
        }
    }

    fn count<T: TryFrom<u64>>(&mut self, name: &'static str, least: u64, rule: &str) -> Option<T> {
        let value = self.field(name)?;
        let count = value.as_u64().filter(|&count| count >= least);
        let count = count.and_then(|count| T::try_from(count).ok());
        if count.is_none() {
            self.ignore(name, value, rule);
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
