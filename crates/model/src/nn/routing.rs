//! The choice of a token's experts, and their weights.

use burn::tensor::activation::{self, sigmoid};
use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::{Backend, ops};

use crate::config::{ExpertGroups, ExpertScores};

/// The rule that chooses the experts of a token by their scores `s`, and weights them.
///
/// ```text
/// s = softmax(logits)  or  σ(logits)
/// w = scale · s, or scale · s / Σ s of the chosen ones
/// ```
///
/// The chosen experts have the largest `s + bias`, in groups only those of the groups with the largest scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutingRule {
    /// Experts that compute a token.
    pub active: usize,
    /// The scores.
    pub scores: ExpertScores,
    /// True if the weights of a token's experts are divided by their sum.
    pub normalize: bool,
    /// The groups that restrict the choice, if any.
    pub groups: Option<ExpertGroups>,
    /// Factor on the weights, if any.
    pub scale: Option<f64>,
}

impl RoutingRule {
    /// The softmax's `active` largest, with weights that add up to 1.
    pub const fn new(active: usize) -> Self {
        Self {
            active,
            scores: ExpertScores::Softmax,
            normalize: true,
            groups: None,
            scale: None,
        }
    }

    /// The scores of the router's outputs `[tokens, count]`.
    pub(super) fn scores<B: Backend>(&self, logits: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.scores {
            ExpertScores::Softmax => softmax(logits),
            ExpertScores::Sigmoid => sigmoid(logits),
        }
    }

    /// The logarithms of the scores, but for a constant of each token with a softmax.
    pub(super) fn log_scores<B: Backend>(&self, logits: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.scores {
            ExpertScores::Softmax => logits,
            ExpertScores::Sigmoid => ops::softplus(logits.neg()).neg(),
        }
    }

    /// The experts of each token; of equal ones, the first.
    pub(super) fn choose<B: Backend>(
        &self,
        scores: &Tensor<B, 2>,
        log_scores: &Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
    ) -> Chosen {
        // Probabilities that are too small for f32 are equal, but their logarithms are not.
        let values = match (self.scores, bias) {
            (ExpertScores::Softmax, None) => log_scores.clone(),
            (ExpertScores::Sigmoid, None) => scores.clone(),
            (_, Some(bias)) => scores.clone() + bias.unsqueeze(),
        };
        let [tokens, count] = values.dims();
        let values: Vec<f32> = values.into_data().iter::<f32>().collect();
        let mut chosen = Chosen {
            ids: Vec::with_capacity(tokens * self.active),
            experts: vec![ExpertRows::default(); count],
        };
        let mut best = Vec::with_capacity(self.active + 1);
        for (token, row) in values.chunks(count.max(1)).enumerate() {
            self.best_of(row, &mut best);
            for &expert in &best {
                let rows = &mut chosen.experts[expert];
                rows.tokens.push(token as i32);
                rows.places.push(chosen.ids.len() as i32);
                chosen.ids.push(expert as i32);
            }
        }
        chosen
    }

    /// Fills `best` with the experts of a token.
    fn best_of(&self, row: &[f32], best: &mut Vec<usize>) {
        let Some(ExpertGroups { count, active }) = self.groups else {
            return largest(row, self.active, best);
        };
        let size = (row.len() / count.max(1)).max(1);
        let summed = match self.scores {
            ExpertScores::Softmax => 1,
            ExpertScores::Sigmoid => 2,
        };
        let score = |group: &[f32]| {
            largest(group, summed, best);
            best.iter().map(|&expert| group[expert]).sum()
        };
        let scores: Vec<f32> = row.chunks(size).map(score).collect();
        let mut groups = Vec::with_capacity(active + 1);
        largest(&scores, active, &mut groups);
        groups.sort_unstable();
        let experts = groups
            .iter()
            .flat_map(|group| group * size..(group + 1) * size);
        largest_of(row, experts, self.active, best);
    }

    /// The weights of each token's experts, in the order of [`Chosen::ids`], `[tokens · active, 1]`.
    pub(super) fn weights<B: Backend>(
        &self,
        scores: &Tensor<B, 2>,
        log_scores: &Tensor<B, 2>,
        chosen: &Chosen,
    ) -> Tensor<B, 2> {
        let tokens = scores.dims()[0];
        let ids = TensorData::new(chosen.ids.clone(), [tokens, self.active]);
        let ids = Tensor::<B, 2, Int>::from_data(ids, &scores.device());
        let weights = match self.normalize {
            // Their scores divided by the sum of these.
            true => softmax(log_scores.clone().gather(1, ids)),
            false => scores.clone().gather(1, ids),
        }; // [tokens, active]
        let weights = weights.reshape([tokens * self.active, 1]);
        match self.scale {
            Some(scale) => weights * scale,
            None => weights,
        }
    }
}

/// The softmax of each row of `[rows, count]`, with the gradient `pᵢ (gᵢ - Σⱼ pⱼ gⱼ)` of `p` computed from products.
///
/// The backward pass of Burn's softmax divides, and on ndarray Burn's autodiff divides by an estimate of the reciprocal
/// with 12 to 14 bits.
pub(super) fn softmax<B: Backend>(logits: Tensor<B, 2>) -> Tensor<B, 2> {
    let constant = logits.clone().detach();
    let p = activation::softmax(constant.clone(), 1);
    let change = logits - constant; // zeros, with the gradient of the logits
    let mean = (p.clone() * change.clone()).sum_dim(1);
    p.clone() + p * (change - mean)
}

/// The experts of each token and the tokens of each expert.
pub(super) struct Chosen {
    /// Token by token, its experts from the most probable on.
    pub(super) ids: Vec<i32>,
    /// For each expert.
    pub(super) experts: Vec<ExpertRows>,
}

/// The tokens of one expert, in their order.
#[derive(Clone, Default)]
pub(super) struct ExpertRows {
    pub(super) tokens: Vec<i32>,
    /// The expert's place in [`Chosen::ids`] for each of the tokens.
    pub(super) places: Vec<i32>,
}

/// Fills `best` with the places of the `count` largest values, the largest first. A value that is not a number is chosen
/// only if there are too few others before it.
fn largest(values: &[f32], count: usize, best: &mut Vec<usize>) {
    largest_of(values, 0..values.len(), count, best);
}

/// [`largest`] among some places.
fn largest_of(
    values: &[f32],
    places: impl Iterator<Item = usize>,
    count: usize,
    best: &mut Vec<usize>,
) {
    best.clear();
    for place in places {
        let smaller = |&other: &usize| values[place] > values[other];
        let at = best.iter().position(smaller).unwrap_or(best.len());
        if at < count {
            best.truncate(count - 1);
            best.insert(at, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_found_in_their_order() {
        let of = |values: &[f32], count| {
            let mut best = Vec::new();
            largest(values, count, &mut best);
            best
        };
        assert_eq!(of(&[1.0, 3.0, 2.0, 3.0], 3), [1, 3, 2]);
        assert_eq!(of(&[0.0; 4], 2), [0, 1]);
        assert_eq!(of(&[-1.0, -2.0], 2), [0, 1]);
        assert_eq!(of(&[f32::NAN; 3], 2), [0, 1]);
        assert_eq!(of(&[5.0], 1), [0]);
    }

    /// The two of six experts in the best one of two groups, for scores of which the largest has a weak group.
    #[test]
    fn groups_are_chosen_by_their_scores() {
        let of = |scores| {
            let rule = RoutingRule {
                scores,
                groups: Some(ExpertGroups {
                    count: 2,
                    active: 1,
                }),
                ..RoutingRule::new(2)
            };
            let mut best = Vec::new();
            rule.best_of(&[0.1, 0.7, 0.6, 0.9, 0.2, 0.3], &mut best);
            best
        };
        assert_eq!(of(ExpertScores::Softmax), [3, 5]);
        assert_eq!(of(ExpertScores::Sigmoid), [1, 2]);
    }
}
