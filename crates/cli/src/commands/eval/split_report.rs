//! The result of an evaluation on a split, as text and JSON.

use std::path::Path;

use emberlm_data::{Packing, Split, SplitManifest};
use emberlm_trainer::{Evaluation, PositionLosses, evaluated_windows};
use indicatif::HumanCount;
use serde::Serialize;

use crate::output::{Align, Table};

/// The result of an evaluation.
#[derive(Debug)]
pub struct SplitResult {
    pub evaluation: Evaluation,
    pub positions: Option<PositionLosses>,
    /// Bytes of text that the predicted tokens represent, if known.
    pub bytes: Option<u64>,
    pub protocol: Protocol,
}

/// The division of the split into windows.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    pub windows: u64,
    /// Window length, and distance between the starts of windows, in tokens.
    pub window: usize,
    pub documents: Packing,
    /// Documents that are longer than a row, if documents are isolated.
    pub cut: Option<u64>,
}

/// The result of an evaluation in comparable units.
#[derive(Debug, Serialize)]
pub struct Report {
    loss: f64,
    perplexity: f64,
    /// Unknown if the tokens' text lengths are unknown.
    bits_per_byte: Option<f64>,
    /// Bytes of text that the predicted tokens represent.
    bytes: Option<u64>,
    tokens: u64,
    split: &'static str,
    /// The number of windows.
    windows: u64,
    /// Window length, and distance between the starts of windows, in tokens.
    window: usize,
    stride: usize,
    documents: Packing,
    /// The first token that a token is predicted from.
    context: ContextStart,
    /// Documents that are longer than a window. Their rest is predicted without what is before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_documents: Option<u64>,
    /// Loss by position, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    positions: Option<Vec<Position>>,
}

/// The beginning of the text that a token is predicted from.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ContextStart {
    /// The first token of the window.
    Window,
    /// The first token of the document.
    Document,
}

/// The loss at one position of the window.
#[derive(Debug, Serialize)]
struct Position {
    loss: f64,
    tokens: u64,
}

impl Report {
    pub fn new(found: &SplitResult, split: Split) -> Self {
        let Protocol {
            windows,
            window,
            documents,
            cut,
        } = found.protocol;
        let Evaluation { loss, tokens } = found.evaluation;
        let bits = loss * tokens as f64 / std::f64::consts::LN_2;
        let bytes = found.bytes.filter(|&bytes| bytes > 0);
        let position = |Evaluation { loss, tokens }| Position { loss, tokens };
        let positions = found.positions.as_ref().map(PositionLosses::positions);
        Self {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: bytes.map(|bytes| bits / bytes as f64),
            bytes,
            tokens,
            split: split.name(),
            windows,
            window,
            stride: window,
            documents,
            context: match documents.isolates_documents() {
                true => ContextStart::Document,
                false => ContextStart::Window,
            },
            cut_documents: cut,
            positions: positions.map(|all| all.into_iter().map(position).collect()),
        }
    }

    pub fn text(&self, split: &SplitManifest, positions: Option<&PositionLosses>) -> String {
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        table.row(["loss", &format!("{:.4}", self.loss), "nats per token"]);
        if let Some(floor) = &split.floor {
            table.row([
                "floor",
                &format!("{:.4}", floor.nats_per_token),
                &floor.source,
            ]);
        }
        table.row(["perplexity", &format!("{:.4}", self.perplexity), ""]);
        if let (Some(bits), Some(bytes)) = (self.bits_per_byte, self.bytes) {
            let of = format!("over {} bytes of text", HumanCount(bytes));
            table.row(["bits per byte", &format!("{bits:.4}"), &of]);
        }
        let windows = format!(
            "predicted, {}",
            evaluated_windows(self.window, self.documents)
        );
        table.row(["tokens", &HumanCount(self.tokens).to_string(), &windows]);
        let count = HumanCount(self.windows).to_string();
        table.row(["windows", &count, &self.context_text()]);
        let by_position = positions.map(|found| format!("\n{}", position_table(found)));
        table.render() + &by_position.unwrap_or_default()
    }

    /// A description of the text that a token is predicted from.
    fn context_text(&self) -> String {
        let start = match self.context {
            ContextStart::Window => "the context starts at the window's first token",
            ContextStart::Document => "the context starts at the document's first token",
        };
        match self.cut_documents {
            None | Some(0) => start.to_owned(),
            Some(1) => format!("{start}; 1 document is longer than a row and cut"),
            Some(cut) => {
                let cut = HumanCount(cut);
                format!("{start}; {cut} documents are longer than a row and cut")
            }
        }
    }
}

/// The reports on several datasets.
#[derive(Serialize)]
pub struct Reports<'a> {
    pub datasets: Vec<NamedReport<'a>>,
}

/// The report on one of several datasets.
#[derive(Serialize)]
pub struct NamedReport<'a> {
    pub data: &'a Path,
    #[serde(flatten)]
    pub report: &'a Report,
    #[serde(skip)]
    pub positions: Option<&'a PositionLosses>,
}

impl Reports<'_> {
    /// A table with a line for each dataset, and the losses by position if there are any.
    pub fn text(&self) -> String {
        let right = Align::Right;
        let mut table = Table::new([Align::Left, right, right, right, right]);
        table.row(["dataset", "loss", "perplexity", "bits per byte", "tokens"]);
        let mut by_position = String::new();
        for NamedReport {
            data,
            report,
            positions,
        } in &self.datasets
        {
            let name = data.display().to_string();
            if let Some(found) = positions {
                by_position += &format!("\n{name}\n{}", position_table(found));
            }
            let bits = report.bits_per_byte.map(|bits| format!("{bits:.4}"));
            table.row([
                name,
                format!("{:.4}", report.loss),
                format!("{:.4}", report.perplexity),
                bits.unwrap_or_else(|| "–".to_owned()),
                HumanCount(report.tokens).to_string(),
            ]);
        }
        table.render() + &by_position
    }
}

/// Formats the loss by position in powers of two, which fits a screen.
fn position_table(found: &PositionLosses) -> String {
    let mut table = Table::new([Align::Left, Align::Right, Align::Right]);
    table.row(["position", "loss", "tokens"]);
    for (first, last, Evaluation { loss, tokens }) in found.by_powers_of_two() {
        let positions = match first == last {
            true => first.to_string(),
            false => format!("{first}–{last}"),
        };
        let tokens = HumanCount(tokens).to_string();
        table.row([positions, format!("{loss:.4}"), tokens]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_the_loss() {
        let loss = 3.0 * std::f64::consts::LN_2;
        let report = |bytes| {
            let found = SplitResult {
                evaluation: Evaluation { loss, tokens: 20 },
                positions: None,
                bytes,
                protocol: Protocol {
                    windows: 3,
                    window: 8,
                    documents: Packing::Stream,
                    cut: None,
                },
            };
            Report::new(&found, Split::Val)
        };
        let known = report(Some(40));
        assert!((known.perplexity - 8.0).abs() < 1e-12);
        assert!((known.bits_per_byte.unwrap() - 1.5).abs() < 1e-12);
        for unknown in [report(None), report(Some(0))] {
            assert_eq!(unknown.bits_per_byte, None);
        }
    }
}
