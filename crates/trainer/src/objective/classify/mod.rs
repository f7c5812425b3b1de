//! Accuracy and F1 of predicted labels.

mod open;

use emberlm_data::IGNORED;

use crate::report::metrics::{Direction, Metric, MetricValues, Phase};

/// Counts of predictions by label.
#[derive(Clone, Debug)]
pub(crate) struct ClassScores {
    /// `counts[actual][predicted]`.
    counts: Vec<Vec<u64>>,
    /// The sum of the losses in nats.
    loss: f64,
}

impl ClassScores {
    /// No predictions of `labels` labels.
    pub(crate) fn new(labels: usize) -> Self {
        Self {
            counts: vec![vec![0; labels]; labels],
            loss: 0.0,
        }
    }

    /// Adds the predictions of a batch: logits `[batch, labels]` and labels `[batch]`.
    pub(crate) fn add(&mut self, logits: &[f64], labels: &[u32]) {
        let width = self.counts.len().max(1);
        for (logits, &label) in logits.chunks(width).zip(labels) {
            if label == IGNORED {
                continue;
            }
            let best = (0..logits.len()).max_by(|&a, &b| {
                // Of equals the first.
                logits[a].total_cmp(&logits[b]).then(b.cmp(&a))
            });
            let label = label as usize;
            if let (Some(best), Some(row)) = (best, self.counts.get_mut(label)) {
                row[best] += 1;
                let sum: f64 = logits.iter().map(|x| (x - logits[best]).exp()).sum();
                self.loss += logits[best] + sum.ln() - logits[label];
            }
        }
    }

    /// The number of predictions.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// The mean loss in nats.
    pub(crate) fn loss(&self) -> f64 {
        self.loss / self.count() as f64
    }

    /// The share of correct predictions.
    fn accuracy(&self) -> f64 {
        let correct: u64 = (0..self.counts.len())
            .map(|label| self.counts[label][label])
            .sum();
        correct as f64 / self.count() as f64
    }

    /// The mean over the labels that occur, as actual or as predicted ones, of `2 tp / (2 tp + fp + fn)`.
    fn macro_f1(&self) -> f64 {
        let labels = 0..self.counts.len();
        let f1 = labels.filter_map(|label| {
            let correct = self.counts[label][label];
            let actual: u64 = self.counts[label].iter().sum();
            let predicted: u64 = self.counts.iter().map(|row| row[label]).sum();
            let total = actual + predicted;
            (total > 0).then(|| 2.0 * correct as f64 / total as f64)
        });
        let f1: Vec<f64> = f1.collect();
        f1.iter().sum::<f64>() / f1.len() as f64
    }

    /// The values of [`ClassScores::metrics`].
    pub(crate) fn values(&self) -> MetricValues {
        let mut values = MetricValues::default();
        values.insert("accuracy", self.accuracy());
        values.insert("f1_macro", self.macro_f1());
        values
    }

    /// The metrics of a run that classifies.
    pub(crate) fn metrics() -> Vec<Metric> {
        [("accuracy", "Accuracy"), ("f1_macro", "F1")]
            .map(|(name, title)| {
                Metric::new(name, title)
                    .direction(Direction::HigherIsBetter)
                    .phase(Phase::Validation)
            })
            .to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss is numpy's in float64; the predictions are 0, 1, 2, 0, 1, 0.
    #[test]
    fn scores_match_numpy_and_the_definitions() {
        let logits = [
            [2.0, 0.5, -1.0],
            [0.1, 0.3, 0.2],
            [-1.0, 0.0, 1.5],
            [1.0, 1.0, 0.0],
            [0.0, 2.0, 0.5],
            [0.3, -0.2, 0.1],
        ];
        let mut scores = ClassScores::new(3);
        scores.add(logits[..4].as_flattened(), &[0, 1, 1, 0]);
        scores.add(logits[4..].as_flattened(), &[1, 2]);
        assert_eq!(scores.count(), 6);
        assert!((scores.accuracy() - 4.0 / 6.0).abs() < 1e-12);
        // F1 of the labels: 0.8, 0.8 and 0.
        assert!((scores.macro_f1() - 1.6 / 3.0).abs() < 1e-12);
        let error = scores.loss() - 0.877_318_646_441_564_9;
        assert!(error.abs() < 1e-12, "{error}");
    }

    #[test]
    fn labels_that_do_not_occur_do_not_count() {
        let mut scores = ClassScores::new(3);
        scores.add(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], &[0, 1]);
        assert_eq!(scores.macro_f1(), 1.0);
        assert_eq!(scores.accuracy(), 1.0);
    }
}
