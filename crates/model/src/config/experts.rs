//! Mixtures of experts.

use serde::{Deserialize, Serialize};

use super::choices::{is_no, is_yes, yes};

/// A mixture of experts: feed-forward layers of which a router chooses some for each token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Experts per layer; by default 8.
    #[serde(default = "Experts::default_count")]
    pub count: usize,
    /// Experts per token; by default 2.
    #[serde(default = "Experts::default_active")]
    pub active: usize,
    /// Hidden elements of an expert; by default those of the feed-forward layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// True if the weights of a token's experts are divided by their sum.
    #[serde(default)]
    pub normalize: bool,
    /// The scores of the experts, which are also their weights.
    #[serde(default, skip_serializing_if = "ExpertScores::is_softmax")]
    pub scores: ExpertScores,
    /// True if a number per expert is added to the scores for the choice of experts, but not for their weights (Wang et al. 2024,
    /// [2408.15664](https://arxiv.org/abs/2408.15664)). It has no gradient.
    #[serde(default, skip_serializing_if = "is_no")]
    pub choice_bias: bool,
    /// The groups that restrict the choice; by default there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<ExpertGroups>,
    /// Factor on the weights; by default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Hidden elements of an expert that computes every token; by default there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_width: Option<usize>,
    /// True if the expert of every token is weighted by a sigmoid gate.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub shared_gate: bool,
    /// Coefficient of the load-balancing loss in training.
    #[serde(default)]
    pub balance_loss: f64,
    /// Coefficient of the squared logarithm of the router's normalizer in training.
    #[serde(default)]
    pub z_loss: f64,
    /// Blocks, counted from 0, with a feed-forward layer and no experts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense_layers: Vec<usize>,
}

impl Experts {
    const fn default_count() -> usize {
        8
    }

    const fn default_active() -> usize {
        2
    }
}

impl Default for Experts {
    fn default() -> Self {
        Self {
            count: Self::default_count(),
            active: Self::default_active(),
            width: None,
            normalize: false,
            scores: ExpertScores::Softmax,
            choice_bias: false,
            groups: None,
            scale: None,
            shared_width: None,
            shared_gate: true,
            balance_loss: 0.0,
            z_loss: 0.0,
            dense_layers: Vec::new(),
        }
    }
}

/// The scores of a token's experts, as a function of the router's outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertScores {
    /// The softmax over all experts. A group's score is the largest of its experts'.
    #[default]
    Softmax,
    /// The sigmoid of each output (DeepSeek-V3). A group's score is the sum of the two largest of its experts'.
    Sigmoid,
}

impl ExpertScores {
    fn is_softmax(&self) -> bool {
        *self == Self::Softmax
    }
}

/// Groups of consecutive experts, equally many in each. A token's experts are in the groups with the largest scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertGroups {
    /// Number of groups.
    pub count: usize,
    /// Groups that a token's experts are in.
    pub active: usize,
}
