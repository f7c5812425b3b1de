//! The sampling settings, a row each. The options of `generate` and `chat`, `/set`, the fields of the HTTP API with their
//! schema, the keys of `serve.toml` and the numbers of the playground follow from the rows.

use serde::{Deserialize, Serialize};

use crate::chooser::ChooserConfig;
use crate::penalties;
use crate::ranges::NumberRange;
use crate::sampler;

/// A sampling setting.
#[derive(Clone, Copy, Debug)]
pub struct SamplingSetting {
    /// The name of the field in requests and files. The option has `-` for `_`.
    pub name: &'static str,
    /// The documentation of the field in requests.
    pub description: &'static str,
    /// The valid values.
    pub range: NumberRange,
    /// The value of `generate` and `chat` if neither the user nor the model has one. Requests default to the value that changes nothing.
    pub default: f64,
    /// True if `generation_config.json` has the field, with the meaning of `transformers`.
    pub is_of_models: bool,
    /// Other names of the option.
    pub aliases: &'static [&'static str],
    /// The name of the option's value in the help.
    pub value_name: &'static str,
    /// The help of the option, without range and default.
    pub help: &'static str,
    /// The number in the playground.
    pub slider: Slider,
    /// A line below the number in the playground; none if empty.
    pub hint: &'static str,
    /// Returns the value of these settings.
    pub get: fn(&SamplingDefaults) -> Option<f64>,
    /// Changes the value of these settings.
    pub set: fn(&mut SamplingDefaults, Option<f64>),
    /// Returns the value in a chooser's configuration.
    pub applied: fn(&ChooserConfig) -> f64,
    /// Changes the value in a chooser's configuration.
    pub apply: fn(&mut ChooserConfig, f64),
}

/// A number of the playground with its slider.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slider {
    /// The label.
    pub label: &'static str,
    /// The value if the model has none.
    pub value: f64,
    /// The lower end of the slider.
    pub least: f64,
    /// The upper end of the slider. Larger numbers can be typed.
    pub most: f64,
    /// The step of the slider.
    pub step: f64,
    /// True to show the number only on demand.
    pub more: bool,
}

/// Declares the settings: documentation, name (and alias), type, field of [`ChooserConfig`], and the fields of
/// [`SamplingSetting`] that do not follow from these.
macro_rules! sampling_settings {
    ($($(#[doc = $doc:literal])+ $name:ident $(($alias:ident))?: $type:ty = $($applied:ident).+ { $($row:tt)* })+) => {
        /// The sampling settings that a model recommends. They apply where neither the user nor the request chooses a
        /// value. `None` if the model has no recommendation.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct SamplingDefaults {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)+
            /// The maximum number of generated tokens.
            pub max_new_tokens: Option<usize>,
        }

        /// All settings.
        pub static SETTINGS: [SamplingSetting; [$(stringify!($name)),+].len()] = [$(SamplingSetting {
            name: stringify!($name),
            aliases: &[$(stringify!($alias))?],
            description: concat!($($doc),+).trim_ascii(),
            get: |settings| settings.$name.map(f64::from),
            set: |settings, value| settings.$name = value.map(|value| value as $type),
            applied: |config| config.$($applied).+ as f64,
            apply: |config, value| config.$($applied).+ = value as _,
            $($row)*
        }),+];
    };
}

sampling_settings! {
    /// Divides the logits; 0 always takes the most probable token.
    temperature (temp): f64 = sampler.temperature {
        range: sampler::TEMPERATURE, default: 0.8, is_of_models: true, value_name: "T",
        help: "Divides the logits: below 1, probable tokens become more probable; 0 always selects the most probable token",
        slider: Slider { label: "Temperature", value: 0.8, least: 0.0, most: 2.0, step: 0.05, more: false },
        hint: "0 always selects the most probable token",
    }

    /// Draws only from this many of the most probable tokens; 0 for all.
    top_k: u32 = sampler.top_k {
        range: NumberRange::COUNT, default: 0.0, is_of_models: true, value_name: "K",
        help: "Sample from the K most probable tokens; 0 for all",
        slider: Slider { label: "Top-k", value: 0.0, least: 0.0, most: 100.0, step: 1.0, more: false },
        hint: "the k most probable tokens; 0 is off",
    }

    /// Draws only from the most probable tokens that together have this probability.
    top_p: f64 = sampler.top_p {
        range: sampler::TOP_P, default: 1.0, is_of_models: true, value_name: "P",
        help: "Sample from the most probable tokens that together have this probability",
        slider: Slider { label: "Top-p", value: 0.95, least: 0.0, most: 1.0, step: 0.01, more: false },
        hint: "the most probable tokens with total probability p; 1 is off",
    }

    /// Draws only from tokens with at least this fraction of the most probable token's probability.
    min_p: f64 = sampler.min_p {
        range: sampler::MIN_P, default: 0.0, is_of_models: true, value_name: "P",
        help: "Sample from tokens with at least P times the probability of the most probable one",
        slider: Slider { label: "Min-p", value: 0.0, least: 0.0, most: 1.0, step: 0.01, more: false },
        hint: "minimum fraction of the highest probability; 0 is off",
    }

    /// Divides the positive logits of tokens in the prompt and the answer, and multiplies the negative ones.
    repetition_penalty: f64 = penalties.repetition {
        range: penalties::REPETITION, default: 1.0, is_of_models: true, value_name: "R",
        help: "Above 1, tokens of the prompt and of the generated text become less probable: their logits are divided by it, \
            negative ones multiplied",
        slider: Slider { label: "Repetition penalty", value: 1.0, least: 0.5, most: 2.0, step: 0.01, more: true },
        hint: "",
    }

    /// Subtracted from the logits of tokens that were generated.
    presence_penalty: f64 = penalties.presence {
        range: penalties::PRESENCE, default: 0.0, is_of_models: false, value_name: "X",
        help: "Subtracted from the logits of generated tokens",
        slider: Slider { label: "Presence penalty", value: 0.0, least: -2.0, most: 2.0, step: 0.05, more: true },
        hint: "",
    }

    /// Subtracted from the logits of tokens, once for each time that they were generated.
    frequency_penalty: f64 = penalties.frequency {
        range: penalties::FREQUENCY, default: 0.0, is_of_models: false, value_name: "X",
        help: "Subtracted from the logits of tokens for each time they were generated",
        slider: Slider { label: "Frequency penalty", value: 0.0, least: -2.0, most: 2.0, step: 0.05, more: true },
        hint: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chooser::Chooser;

    #[test]
    fn choosers_reject_the_values_outside_the_range_of_a_row() {
        for setting in SETTINGS.iter().filter(|setting| !setting.range.is_whole) {
            let NumberRange { least, most, .. } = setting.range;
            for value in [least, least - 0.5, least + 0.5, most, most + 0.5, f64::NAN] {
                let mut config = ChooserConfig::default();
                (setting.apply)(&mut config, value);
                let made = Chooser::new(&config, &[], 5, 0);
                let expected = setting.range.check(setting.name, value);
                assert_eq!(made.err(), expected.err(), "{}", setting.name);
            }
        }
    }

    #[test]
    fn a_value_passes_through_all_forms() {
        for setting in &SETTINGS {
            let value = setting.range.least + 1.0;
            let mut defaults = SamplingDefaults::default();
            (setting.set)(&mut defaults, Some(value));
            assert_eq!((setting.get)(&defaults), Some(value), "{}", setting.name);
            let written = serde_json::to_value(defaults).unwrap();
            assert_eq!(written[setting.name].as_f64(), Some(value));
            assert_eq!((setting.applied)(&defaults.chooser(0)), value);
        }
    }

    #[test]
    fn values_of_a_row_are_in_its_range() {
        for setting in &SETTINGS {
            let Slider {
                value, least, most, ..
            } = setting.slider;
            let neutral = (setting.applied)(&ChooserConfig::default());
            for value in [neutral, setting.default, value] {
                assert!(setting.range.allows(value), "{setting:?}");
            }
            assert!(
                least >= setting.range.least && most <= setting.range.most,
                "{setting:?}"
            );
        }
    }
}
