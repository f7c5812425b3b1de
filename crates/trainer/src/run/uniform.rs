//! The loss of a model without knowledge, which a first loss is compared with.

use std::fmt;

use super::RunInputs;
use crate::config::ObjectiveConfig;
use crate::objective::validation::Validation;

/// The cross-entropy of a uniform distribution over all tokens or labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UniformLoss {
    classes: usize,
    class: &'static str,
}

impl UniformLoss {
    /// The uniform loss of a run. `None` if its objective's loss is not a cross-entropy.
    pub(super) fn of(objective: &ObjectiveConfig, inputs: &RunInputs) -> Option<Self> {
        let (classes, class) = match &inputs.validation {
            Validation::Labelled { labels, .. } => (*labels, "label"),
            _ => (inputs.model.vocab_size(), "token"),
        };
        let is_cross_entropy = objective.has_perplexity() && classes > 0;
        is_cross_entropy.then_some(Self { classes, class })
    }

    /// The loss in nats.
    pub(super) fn nats(self) -> f64 {
        (self.classes as f64).ln()
    }
}

/// A note that is printed above the first loss.
impl fmt::Display for UniformLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { classes, class } = self;
        let nats = self.nats();
        write!(
            f,
            "ln {classes} = {nats:.3}: the loss of a model that gives every {class} the same probability"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::UniformLoss;

    #[test]
    fn the_note_has_the_vocabulary_and_its_logarithm() {
        let loss = UniformLoss {
            classes: 50_257,
            class: "token",
        };
        let expected =
            "ln 50257 = 10.825: the loss of a model that gives every token the same probability";
        assert_eq!(loss.to_string(), expected);
    }
}
