//! Sampling settings with the origin of each value.

use std::fmt;

use emberlm_generate::{ChooserConfig, Penalties, SamplerConfig, SamplingDefaults};

use super::choice::ChoiceArgs;

/// The settings' names in display order.
pub const NAMES: [&str; 9] = [
    "temperature",
    "top-k",
    "top-p",
    "min-p",
    "repetition-penalty",
    "presence-penalty",
    "frequency-penalty",
    "seed",
    "max-new-tokens",
];

/// The default temperature.
const TEMPERATURE: f64 = 0.8;

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

#[derive(Clone, Debug)]
pub struct Sampling {
    pub sampler: SamplerConfig,
    /// Penalties on tokens that occurred before.
    pub penalties: Penalties,
    /// The maximum number of generated tokens.
    pub max_new_tokens: usize,
    /// The origin of each setting, in the order of [`NAMES`].
    pub origins: [Origin; NAMES.len()],
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
        let free = Penalties::default();
        let none = SamplerConfig::default();
        let (temperature, of_temperature) = pick(args.temperature, model.temperature, TEMPERATURE);
        let (top_k, of_top_k) = pick(args.top_k, model.top_k.map(|k| k as usize), none.top_k);
        let (top_p, of_top_p) = pick(args.top_p, model.top_p, none.top_p);
        let (min_p, of_min_p) = pick(args.min_p, model.min_p, none.min_p);
        let (repetition, of_repetition) = pick(
            args.repetition_penalty,
            model.repetition_penalty,
            free.repetition,
        );
        let (presence, of_presence) =
            pick(args.presence_penalty, model.presence_penalty, free.presence);
        let (frequency, of_frequency) = pick(
            args.frequency_penalty,
            model.frequency_penalty,
            free.frequency,
        );
        let (seed, of_seed) = pick(args.seed, None, none.seed);
        let (max_new_tokens, of_tokens) =
            pick(requested_tokens, model.max_new_tokens, max_new_tokens);
        Self {
            sampler: SamplerConfig {
                temperature,
                top_k,
                top_p,
                min_p,
                seed,
            },
            penalties: Penalties {
                repetition,
                presence,
                frequency,
            },
            max_new_tokens,
            origins: [
                of_temperature,
                of_top_k,
                of_top_p,
                of_min_p,
                of_repetition,
                of_presence,
                of_frequency,
                of_seed,
                of_tokens,
            ],
        }
    }

    /// Returns `chooser` with these settings.
    pub fn apply(&self, chooser: ChooserConfig) -> ChooserConfig {
        ChooserConfig {
            sampler: self.sampler,
            penalties: self.penalties,
            ..chooser
        }
    }

    /// Each setting's name, value and origin.
    pub fn all(&self) -> Vec<(&'static str, String, Origin)> {
        let Self {
            sampler, penalties, ..
        } = self;
        let values = [
            sampler.temperature.to_string(),
            sampler.top_k.to_string(),
            sampler.top_p.to_string(),
            sampler.min_p.to_string(),
            penalties.repetition.to_string(),
            penalties.presence.to_string(),
            penalties.frequency.to_string(),
            sampler.seed.to_string(),
            self.max_new_tokens.to_string(),
        ];
        let named = NAMES.into_iter().zip(values).zip(self.origins);
        named
            .map(|((name, value), origin)| (name, value, origin))
            .collect()
    }
}

fn pick<T>(argument: Option<T>, model: Option<T>, default: T) -> (T, Origin) {
    match (argument, model) {
        (Some(value), _) => (value, Origin::CommandLine),
        (None, Some(value)) => (value, Origin::Model),
        (None, None) => (default, Origin::Default),
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
