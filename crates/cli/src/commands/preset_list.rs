//! The list of presets, which `emberlm info` shows without an argument.

use emberlm_model::families::{self, Preset};
use emberlm_model::{DecoderConfig, count};
use indicatif::HumanCount;
use serde::Serialize;

use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};

/// The vocabulary that a preset is counted with where the dataset would decide: the byte tokenizer's, which any text
/// can be prepared with.
pub const ASSUMED_VOCAB_SIZE: usize = 257;

/// A preset as JSON.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    /// 0 where it is the dataset's.
    vocab_size: usize,
    parameters: usize,
}

/// Lists them.
pub fn run(json: bool) -> Result<(), CliError> {
    let presets = families::presets().into_iter().map(listed);
    let presets: Vec<Listed> = presets.collect::<Result<_, _>>()?;
    match json {
        true => print_json(&presets),
        false => print(&table(&presets)),
    }
}

/// A preset's configuration with a vocabulary: `vocab_size`, or its own, or the assumed one.
pub fn checked(preset: &Preset, vocab_size: Option<usize>) -> Result<DecoderConfig, CliError> {
    let mut config = preset.config.clone();
    config.vocab_size = vocab_size.or(config.vocab_size);
    config.vocab_size.get_or_insert(ASSUMED_VOCAB_SIZE);
    Ok(DecoderConfig::try_from(config)?)
}

fn listed(preset: Preset) -> Result<Listed, CliError> {
    Ok(Listed {
        name: preset.name,
        about: preset.about,
        vocab_size: preset.config.vocab_size.unwrap_or(0),
        parameters: count::parameters(&checked(&preset, None)?).total,
    })
}

fn table(presets: &[Listed]) -> String {
    let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
    for preset in presets {
        let parameters = HumanCount(preset.parameters as u64).to_string();
        let mark = if preset.vocab_size == 0 { "*" } else { " " };
        table.row([preset.name, &(parameters + mark), preset.about]);
    }
    format!(
        "Presets, with their parameters\n{}  * with {ASSUMED_VOCAB_SIZE} token ids: the vocabulary is the dataset's\n\
         More of one: emberlm info PRESET\n",
        table.render()
    )
}
