//! The published models. To add one: a file here with its equations, sizes and weight map, and a line in each of
//! [`Family`]'s two tables.

mod gpt2;
mod pocket;

use crate::checked::DecoderConfig;
pub use crate::config::Family;
use crate::config::ModelConfig;
use crate::weights::map::Source;

/// A named size of a family. Its vocabulary is 0 where it is the dataset's.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// What it is called on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The model.
    pub config: ModelConfig,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 2] = [Self::Pocket, Self::Gpt2];

    /// Its named sizes.
    pub fn presets(self) -> Vec<Preset> {
        match self {
            Self::Pocket => pocket::presets(),
            Self::Gpt2 => gpt2::presets(),
        }
    }

    /// Where the family's published checkpoints hold the parameter of a path; none where they have no such.
    pub fn source(self, config: &DecoderConfig, path: &str) -> Option<Source> {
        match self {
            Self::Pocket => pocket::source(config, path),
            Self::Gpt2 => gpt2::source(config, path),
        }
    }
}

/// Every preset of every family.
pub fn presets() -> Vec<Preset> {
    Family::ALL.into_iter().flat_map(Family::presets).collect()
}

/// The preset of a name.
pub fn preset(name: &str) -> Option<Preset> {
    presets().into_iter().find(|preset| preset.name == name)
}
