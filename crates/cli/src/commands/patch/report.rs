//! The effects of experiments, as tables and JSON.

use emberlm_tokenizer::Tokenizer;
use serde::Serialize;

use super::experiment::{By, Kind, Replacement};
use crate::output::{Align, Table};
use crate::plot::id_label;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The clean text.
    pub tokens: Vec<u32>,
    /// Its score.
    pub clean: f64,
    /// The score of the corrupted text.
    pub corrupted: Option<f64>,
    pub experiments: Vec<Experiment>,
}

/// One experiment, by block, then place.
#[derive(Debug, Serialize)]
pub struct Experiment {
    pub kind: Kind,
    pub site: &'static str,
    pub by: By,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Replacement>,
    pub scores: Vec<Vec<f64>>,
    /// Of a patch, the share of the difference between the texts that it restores, `None` if there is no difference; of an ablation, the change
    /// of the score.
    pub effects: Vec<Vec<Option<f64>>>,
}

impl Report {
    /// The scores of the texts, a line each.
    pub fn scores(&self) -> impl Iterator<Item = String> {
        let clean = format!("score of the clean text: {:.4}", self.clean);
        let corrupted = self.corrupted;
        let corrupted = corrupted.map(|score| format!("score of the corrupted text: {score:.4}"));
        std::iter::once(clean).chain(corrupted)
    }

    /// The names of an experiment's places: tokens, or numbers of heads.
    pub fn places(&self, of: &Experiment, tokenizer: Option<&Tokenizer>) -> Vec<String> {
        let places = of.effects.first().map_or(0, Vec::len);
        let name = |place: usize| match (of.by, self.tokens.get(place)) {
            (By::Position, Some(&id)) => id_label(id, tokenizer),
            (By::Layer, _) => String::new(),
            (By::Position | By::Head, _) => place.to_string(),
        };
        (0..places).map(name).collect()
    }

    /// A table for each experiment.
    pub fn tables(&self, tokenizer: Option<&Tokenizer>) -> String {
        let mut text: String = self.scores().map(|line| line + "\n").collect();
        for experiment in &self.experiments {
            let names = self.places(experiment, tokenizer);
            let mut table = Table::new(vec![Align::Right; names.len() + 1]);
            table.row(std::iter::once("block".to_owned()).chain(names));
            for (block, effects) in experiment.effects.iter().enumerate() {
                let cell = |effect: &Option<f64>| effect.map_or("-".to_owned(), Experiment::shown);
                let cells = effects.iter().map(cell);
                table.row(std::iter::once(block.to_string()).chain(cells));
            }
            text += &format!("\n{}\n{}", experiment.heading(), table.render());
        }
        text
    }
}

impl Experiment {
    /// The description of the experiment.
    pub fn heading(&self) -> String {
        let (site, by) = (self.site, self.by.name());
        match (self.kind, self.with) {
            (Kind::Patch, _) => {
                format!("{site} of the clean text: share of the difference restored, by {by}")
            }
            (Kind::Ablate, Some(Replacement::Mean)) => {
                format!("{site} replaced by its mean: change of the score, by {by}")
            }
            (Kind::Ablate, Some(Replacement::Zero) | None) => {
                format!("{site} replaced by zeros: change of the score, by {by}")
            }
        }
    }

    /// Formats an effect.
    pub fn shown(effect: f64) -> String {
        // Adding 0 to what is rounded makes -0 positive.
        format!("{:.3}", (effect * 1e3).round() / 1e3 + 0.0)
    }
}
