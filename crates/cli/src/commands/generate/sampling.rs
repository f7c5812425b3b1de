//! Sampling settings with the origin of each value.

use std::fmt;

use emberlm_generate::ranges::NumberRange;
use emberlm_generate::{ChooserConfig, SETTINGS, SamplingDefaults};

use super::choice::ChoiceArgs;
use super::sampling_args;

/// The settings' names in display order.
pub fn names() -> impl Iterator<Item = &'static str> {
    let sampling = sampling_args::NAMES.iter().map(String::as_str);
    sampling.chain(["seed", "max-new-tokens"])
}

/// The origin of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program's default.
    Default,
    /// The model's `generation_config.json`.
    Model,
    /// The command line.
    CommandLine,
    /// `/set` in `chat`.
    Set,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Model => "generation_config.json",
            Self::CommandLine => "command line",
            Self::Set => "/set",
        })
    }
}

/// The value of a setting with its origin.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<T> {
    /// The value.
    pub value: T,
    origin: Origin,
}

impl<T> Resolved<T> {
    fn new(argument: Option<T>, model: Option<T>, default: T) -> Self {
        let (value, origin) = match (argument, model) {
            (Some(value), _) => (value, Origin::CommandLine),
            (None, Some(value)) => (value, Origin::Model),
            (None, None) => (default, Origin::Default),
        };
        Self { value, origin }
    }

    /// Changes the value in `chat`.
    ///
    /// # Errors
    /// The value is an error, which is returned.
    pub fn set(&mut self, value: Result<T, String>) -> Result<(), String> {
        let (value, origin) = (value?, Origin::Set);
        *self = Self { value, origin };
        Ok(())
    }
}

/// The settings.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// The values of [`SETTINGS`], in their order.
    sampling: Vec<Resolved<f64>>,
    /// The seed.
    pub seed: Resolved<u64>,
    /// The maximum number of generated tokens.
    pub max_new_tokens: Resolved<usize>,
}

impl Sampling {
    /// Resolves each setting: the command line takes precedence over the model's `generation_config.json` and
    /// that over the program's defaults. `max_new_tokens` is the default token limit.
    pub fn resolve(
        args: &ChoiceArgs,
        requested_tokens: Option<usize>,
        model: &SamplingDefaults,
        max_new_tokens: usize,
    ) -> Self {
        let sampling = SETTINGS.iter().map(|setting| {
            let argument = (setting.get)(&args.sampling.0);
            Resolved::new(argument, (setting.get)(model), setting.default)
        });
        Self {
            sampling: sampling.collect(),
            seed: Resolved::new(args.seed, None, 0),
            max_new_tokens: Resolved::new(requested_tokens, model.max_new_tokens, max_new_tokens),
        }
    }

    /// Returns `chooser` with these settings.
    pub fn apply(&self, mut chooser: ChooserConfig) -> ChooserConfig {
        chooser.sampler.seed = self.seed.value;
        for (setting, resolved) in SETTINGS.iter().zip(&self.sampling) {
            (setting.apply)(&mut chooser, resolved.value);
        }
        chooser
    }

    /// The range and the value of the setting of [`SETTINGS`] whose option has this name.
    pub fn setting(&mut self, name: &str) -> Option<(NumberRange, &mut Resolved<f64>)> {
        let index = sampling_args::NAMES
            .iter()
            .position(|known| known == name)?;
        Some((SETTINGS[index].range, &mut self.sampling[index]))
    }

    /// Each setting's name, value and origin.
    pub fn all(&self) -> Vec<(&'static str, String, Origin)> {
        let sampling = self.sampling.iter();
        let sampling = sampling.map(|resolved| (resolved.value.to_string(), resolved.origin));
        let (seed, tokens) = (self.seed, self.max_new_tokens);
        let others = [
            (seed.value.to_string(), seed.origin),
            (tokens.value.to_string(), tokens.origin),
        ];
        let named = names().zip(sampling.chain(others));
        named
            .map(|(name, (value, origin))| (name, value, origin))
            .collect()
    }
}

impl fmt::Display for Sampling {
    /// Formats the settings as "temperature 0.6 (generation_config.json), top-k 0 (default), …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value, origin)) in self.all().into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {value} ({origin})")?;
        }
        Ok(())
    }
}
