//! Parameter counts by component, per layer and in total.

use serde::Serialize;

use super::narrow;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::mixture::MixtureConfig;
use crate::transformer::checked::DecoderConfig;

/// Parameter count of one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentParameters {
    /// The component.
    #[serde(rename = "part")]
    pub component: Component,
    /// The stack that has it, in an encoder–decoder; `None` for a component outside of both stacks, and in other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackRole>,
    /// Parameters per block that has it; `None` for a component outside the blocks.
    pub per_layer: Option<usize>,
    /// Number of blocks that have it; `None` for a component outside the blocks.
    pub layers: Option<usize>,
    /// Parameters in the whole model.
    pub total: usize,
}

/// A stack of an encoder–decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StackRole {
    /// The encoder.
    Encoder,
    /// The decoder, with cross-attention.
    Decoder,
}

/// A component of a model with parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Token embedding.
    TokenEmbedding,
    /// Learned positions.
    Positions,
    /// Segment vectors of an encoder.
    Segments,
    /// Norm of an encoder's embeddings.
    EmbeddingNorm,
    /// Biases of scores by distance, shared by a stack's blocks.
    RelativeBias,
    /// Projection to queries, keys and values.
    AttentionQkv,
    /// Output projection of the attention.
    AttentionOut,
    /// Projection of the cross-attention to queries.
    CrossQueries,
    /// Projection of the cross-attention to keys and values.
    CrossKeysValues,
    /// Output projection of the cross-attention.
    CrossOut,
    /// Projections of the feed-forward layer to its hidden width: up and, if gated, gate.
    FeedForwardUp,
    /// Projection of the feed-forward layer back to `d_model`.
    FeedForwardDown,
    /// Routers of mixtures of experts.
    Router,
    /// Projections of the experts to their hidden widths.
    ExpertsUp,
    /// Projections of the experts back to `d_model`.
    ExpertsDown,
    /// Shared experts with their gates.
    SharedExpert,
    /// Norms of the blocks, including those of queries and keys.
    BlockNorms,
    /// Norm after the last block, and that of a decoder's embeddings, if any.
    FinalNorm,
    /// Output projection with its bias, or the head of an encoder. A tied projection counts as embedding.
    Head,
}

/// [`ComponentParameters`] in 128 bits, as the largest legal sizes require.
#[derive(Clone, Copy)]
pub(crate) struct ComponentCount {
    pub(super) component: Component,
    pub(super) stack: Option<StackRole>,
    /// Parameters per block, or in the whole model.
    pub(super) each: u128,
    /// Number of blocks that have it, for a component of blocks.
    pub(super) blocks: Option<u128>,
}

impl ComponentCount {
    /// A component outside the blocks.
    pub(super) const fn once(component: Component, each: u128) -> Self {
        Self {
            component,
            stack: None,
            each,
            blocks: None,
        }
    }

    pub(crate) fn total(&self) -> u128 {
        self.each * self.blocks.unwrap_or(1)
    }
}

/// Counts parameters from the configurations that initialize the components, so counts and models cannot diverge.
pub(super) fn counted(config: &DecoderConfig) -> Vec<ComponentCount> {
    let (embeddings, stack, head) = (config.embeddings(), config.stack(), config.lm_head());
    let block = &stack.block;
    let attention = &block.attention;
    let [(with_experts, _), (dense, _)] = stack.kinds();
    let [up, down] = both(&block.feed_forward);
    let experts = block.experts.as_ref();
    let of_all = |part: usize| {
        let count = |mixture: &MixtureConfig| mixture.count as u128 * both(&mixture.expert)[part];
        experts.map_or(0, count)
    };
    let router = experts.map_or(0, |mixture| mixture.router().parameters());
    let shared = experts.and_then(MixtureConfig::shared);
    let shared = shared.map_or(0, |(shared, gate)| {
        both(&shared).iter().sum::<u128>() + gate.parameters()
    });
    let final_norms = [embeddings.norm(), stack.norm_final()]
        .into_iter()
        .flatten();
    let final_norms = final_norms.map(|norm| norm.parameters()).sum();
    let some = |blocks: usize, component, each| ComponentCount {
        blocks: Some(blocks as u128),
        ..ComponentCount::once(component, each)
    };
    let layer = |component, each| some(stack.n_layers, component, each);
    let global = ComponentCount::once;
    let positions = embeddings.positions.parameters(embeddings.d_model);
    vec![
        global(Component::TokenEmbedding, embeddings.tokens()),
        global(Component::Positions, positions),
        layer(Component::AttentionQkv, attention.qkv().parameters()),
        layer(Component::AttentionOut, attention.out().parameters()),
        some(dense, Component::FeedForwardUp, up),
        some(dense, Component::FeedForwardDown, down),
        some(with_experts, Component::Router, router),
        some(with_experts, Component::ExpertsUp, of_all(0)),
        some(with_experts, Component::ExpertsDown, of_all(1)),
        some(with_experts, Component::SharedExpert, shared),
        layer(Component::BlockNorms, block.norm_parameters()),
        global(Component::FinalNorm, final_norms),
        global(Component::Head, head.parameters()),
    ]
}

/// Parameters of a feed-forward layer's projections to its hidden width, and of the projection back.
pub(super) fn both(layer: &FeedForwardConfig) -> [u128; 2] {
    let (gate, up) = layer.widening();
    let gate = gate.map_or(0, |gate| gate.parameters());
    [gate + up.parameters(), layer.down().parameters()]
}

/// The parameters of the experts that do not compute a token.
pub(super) fn idle(config: &DecoderConfig) -> u128 {
    let stack = config.stack();
    let [(with_experts, _), _] = stack.kinds();
    stack.block.experts.map_or(0, |mixture| {
        let each: u128 = both(&mixture.expert).iter().sum();
        with_experts as u128 * (mixture.count - mixture.active) as u128 * each
    })
}

/// Counts the parameters of each component. The totals add up to [`super::Parameters::total`].
pub fn table(config: &DecoderConfig) -> Vec<ComponentParameters> {
    rows(&counted(config))
}

/// The counts, clamped to `usize::MAX`.
pub(super) fn rows(counts: &[ComponentCount]) -> Vec<ComponentParameters> {
    let row = |count: &ComponentCount| ComponentParameters {
        component: count.component,
        stack: count.stack,
        per_layer: count.blocks.map(|_| narrow(count.each)),
        layers: count.blocks.map(narrow),
        total: narrow(count.total()),
    };
    counts.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::parameters;
    use super::*;
    use crate::{DecoderConfig, families};

    fn checked(name: &str) -> DecoderConfig {
        let mut config = families::preset(name).expect("a preset").config;
        config.vocab_size.get_or_insert(257);
        DecoderConfig::try_from(config).expect("legal")
    }

    #[test]
    fn components_add_up_for_every_preset() {
        for preset in families::presets() {
            let config = checked(preset.name);
            let sum: usize = table(&config).iter().map(|row| row.total).sum();
            assert_eq!(sum, parameters(&config).total, "{}", preset.name);
        }
    }

    // Calculated by hand, biases included.
    #[test]
    fn gpt2_small_matches_hand_calculation() {
        let rows = table(&checked("gpt2-small"));
        let per_layer = |component| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row.component == component);
            let per_layer = row.expect("a row").per_layer;
            per_layer.expect("a component of every block")
        };
        assert_eq!(per_layer(Component::AttentionQkv), 3 * 768 * 768 + 3 * 768);
        assert_eq!(per_layer(Component::AttentionOut), 768 * 768 + 768);
        assert_eq!(per_layer(Component::FeedForwardUp), 4 * 768 * 768 + 4 * 768);
        assert_eq!(per_layer(Component::FeedForwardDown), 4 * 768 * 768 + 768);
        assert_eq!(per_layer(Component::BlockNorms), 4 * 768);
        let total = |component| {
            let row = rows.iter().find(|row| row.component == component);
            row.expect("a row").total
        };
        assert_eq!(total(Component::FinalNorm), 2 * 768);
        assert_eq!(total(Component::Head), 0, "tied");
    }
}
