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
    /// A table for each experiment.
    pub fn tables(&self, tokenizer: Option<&Tokenizer>) -> String {
        let mut text = format!("score of the clean text: {:.4}\n", self.clean);
        if let Some(corrupted) = self.corrupted {
            text += &format!("score of the corrupted text: {corrupted:.4}\n");
        }
        for experiment in &self.experiments {
            text += &self.table(experiment, tokenizer);
        }
        text
    }

    fn table(&self, of: &Experiment, tokenizer: Option<&Tokenizer>) -> String {
        let (site, by) = (of.site, of.by.name());
        let heading = match (of.kind, of.with) {
            (Kind::Patch, _) => {
                format!("{site} of the clean text: share of the difference restored")
            }
            (Kind::Ablate, Some(Replacement::Mean)) => {
                format!("{site} replaced by its mean: change of the score")
            }
            (Kind::Ablate, Some(Replacement::Zero) | None) => {
                format!("{site} replaced by zeros: change of the score")
            }
        };
        let places = of.effects.first().map_or(0, Vec::len);
        let mut table = Table::new(vec![Align::Right; places + 1]);
        let names = (0..places).map(|place| match (of.by, self.tokens.get(place)) {
            (By::Position, Some(&id)) => id_label(id, tokenizer),
            (By::Layer, _) => String::new(),
            (By::Position | By::Head, _) => place.to_string(),
        });
        table.row(std::iter::once("block".to_owned()).chain(names));
        for (block, effects) in of.effects.iter().enumerate() {
            let cell = |effect: &Option<f64>| match effect {
                // Adding 0 to what is rounded makes -0 positive.
                Some(effect) => format!("{:.3}", (effect * 1e3).round() / 1e3 + 0.0),
                None => "-".to_owned(),
            };
            let cells = effects.iter().map(cell);
            table.row(std::iter::once(block.to_string()).chain(cells));
        }
        format!("\n{heading}, by {by}\n{}", table.render())
    }
}
