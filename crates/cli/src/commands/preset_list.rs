//! The list of presets, printed by `emberlm info` without an argument.

use emberlm_model::families::Preset;
use emberlm_model::{TransformerConfig, count};
use emberlm_trainer::presets;
use indicatif::HumanCount;
use serde::Serialize;

use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};

/// The assumed vocabulary size of a preset whose vocabulary depends on the dataset: that of the byte
/// tokenizer, which works for any text.
pub const ASSUMED_VOCAB_SIZE: usize = 257;

/// A preset as printed.
#[derive(Serialize)]
struct ListedPreset {
    name: &'static str,
    about: &'static str,
    /// 0 if the dataset determines it.
    vocab_size: usize,
    parameters: usize,
}

/// Prints the presets.
pub fn run(json: bool) -> Result<(), CliError> {
    let presets = presets::all().map(listed);
    let presets: Vec<ListedPreset> = presets.collect::<Result<_, _>>()?;
    match json {
        true => print_json(&presets),
        false => print(&table(&presets)),
    }
}

/// A preset's configuration with the vocabulary size `vocab_size`, the preset's own, or else the assumed one.
pub fn checked(preset: &Preset, vocab_size: Option<usize>) -> Result<TransformerConfig, CliError> {
    let mut config = preset.config.clone();
    config.vocab_size = vocab_size.or(config.vocab_size);
    config.vocab_size.get_or_insert(ASSUMED_VOCAB_SIZE);
    Ok(TransformerConfig::try_from(config)?)
}

fn listed(preset: Preset) -> Result<ListedPreset, CliError> {
    Ok(ListedPreset {
        name: preset.name,
        about: preset.about,
        vocab_size: preset.config.vocab_size.unwrap_or(0),
        parameters: count::parameters(&checked(&preset, None)?).total,
    })
}

fn table(presets: &[ListedPreset]) -> String {
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
