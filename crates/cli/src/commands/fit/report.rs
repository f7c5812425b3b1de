//! The text that `fit` prints.

use emberlm_trainer::fit::{Phase, Plan, Prediction};

use super::Fit;
use crate::output::{Align, Table, size};

impl Fit {
    /// The output for people.
    pub(super) fn text(&self) -> String {
        let ranks = match self.ranks {
            1 => String::new(),
            ranks => format!(", memory of each of {ranks} ranks"),
        };
        let mut text = format!("{}{ranks}\n", described(self.asked.plan));
        let predicted = &self.asked.predicted;
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        let all = ("predicted", predicted.total, "");
        for (name, bytes, about) in parts(predicted).into_iter().chain([all]) {
            table.row([name, &size(bytes), about]);
        }
        let measured = match self.asked.measured {
            Some(bytes) => (size(bytes), prediction_error(predicted.total, bytes)),
            None => ("-".to_owned(), String::new()),
        };
        table.row(["measured", &measured.0, &measured.1]);
        let more = format!("+ {}", size(predicted.checkpoint));
        let about = match self.ranks {
            1 => "at most, while one is written",
            _ => "on rank 0 at most, while one is written",
        };
        table.row(["checkpoint", &more, about]);
        text += &table.render();
        if self.vocab_size_assumed {
            let vocab_size = self.vocab_size;
            text += &format!("  with {vocab_size} token ids: the vocabulary is the dataset's\n");
        }
        let Some(proposal) = &self.proposal else {
            return text;
        };
        let each = if self.ranks > 1 { " per rank" } else { "" };
        text += &format!("\nFits in {}{each}\n", size(self.memory));
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["step", &described(proposal.plan)]);
        let peak = match proposal.measured {
            Some(bytes) => format!(
                "{} measured, {}",
                size(bytes),
                prediction_error(proposal.predicted.total, bytes)
            ),
            None => format!("{} predicted", size(proposal.predicted.total)),
        };
        table.row(["peak", &peak]);
        table.row(["run", self.command.as_deref().unwrap_or_default()]);
        text + &table.render()
    }
}

/// A plan in words.
pub(super) fn described(plan: Plan) -> String {
    let (sequences, times) = (plan.micro_batch, plan.accumulation);
    let recompute = match plan.recompute {
        true => ", recomputing blocks",
        false => "",
    };
    format!("{times} x {sequences} sequences a step{recompute}")
}

/// Components of a prediction: name, bytes and description.
pub fn parts(predicted: &Prediction) -> [(&'static str, u64, &'static str); 7] {
    [
        ("program", predicted.program, ""),
        ("weights", predicted.weights, ""),
        ("optimizer", predicted.optimizer, ""),
        ("gradients", predicted.gradients, ""),
        ("activations", predicted.activations, ""),
        ("temporaries", predicted.temporaries, phase(predicted.phase)),
        (
            "allocator",
            predicted.allocator,
            "freed, and kept for later use",
        ),
    ]
}

/// Describes the tensors allocated at the peak.
fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Head => "logits and loss",
        Phase::Block => "the backward pass of a block",
        Phase::Embedding => "the embedding's gradient",
        Phase::Update => "the optimizer's update",
        Phase::Exchange => "an exchange between ranks",
        Phase::Evaluation => "an evaluation's batch",
    }
}

fn prediction_error(predicted: u64, measured: u64) -> String {
    let off = 100.0 * (predicted as f64 / measured as f64 - 1.0);
    let side = if off < 0.0 { "below" } else { "above" };
    format!("the prediction is {:.1}% {side}", off.abs())
}
