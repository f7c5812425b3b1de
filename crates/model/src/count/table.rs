//! Parameter counts by component, per layer and in total.

use serde::Serialize;

use super::narrow;
use crate::checked::DecoderConfig;

/// Parameter count of one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentParameters {
    /// The component.
    #[serde(rename = "part")]
    pub component: Component,
    /// Parameters per block; `None` for a component outside the blocks.
    pub per_layer: Option<usize>,
    /// Parameters in the whole model.
    pub total: usize,
}

/// A component of a model with parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Token embedding.
    TokenEmbedding,
    /// Learned positions.
    Positions,
    /// Projection to queries, keys and values.
    AttentionQkv,
    /// Output projection of the attention.
    AttentionOut,
    /// Projections of the feed-forward layer to its hidden width: up and, if gated, gate.
    FeedForwardUp,
    /// Projection of the feed-forward layer back to `d_model`.
    FeedForwardDown,
    /// Norms of the blocks, including those of queries and keys.
    BlockNorms,
    /// Norm after the last block, and that of the embeddings, if any.
    FinalNorm,
    /// Output projection with its bias. A tied projection counts as embedding.
    Head,
}

/// [`ComponentParameters`] in 128 bits, as the largest legal sizes require.
pub(super) struct ComponentCount {
    pub(super) component: Component,
    /// Parameters per block, or in the whole model.
    each: u128,
    /// Number of blocks, for a component that every block has.
    blocks: Option<u128>,
}

impl ComponentCount {
    pub(super) fn total(&self) -> u128 {
        self.each * self.blocks.unwrap_or(1)
    }
}

/// Counts parameters from the configurations that initialize the components, so counts and models cannot diverge.
pub(super) fn counted(config: &DecoderConfig) -> Vec<ComponentCount> {
    let (embeddings, stack, head) = (config.embeddings(), config.stack(), config.lm_head());
    let block = &stack.block;
    let (attention, feed_forward) = (&block.attention, &block.feed_forward);
    let (gate, up) = feed_forward.widening();
    let widening = gate.map_or(0, |gate| gate.parameters()) + up.parameters();
    let final_norms = [embeddings.norm(), stack.norm_final()]
        .into_iter()
        .flatten();
    let final_norms = final_norms.map(|norm| norm.parameters()).sum();
    let layer = |component, each| ComponentCount {
        component,
        each,
        blocks: Some(stack.n_layers as u128),
    };
    let global = |component, each| ComponentCount {
        component,
        each,
        blocks: None,
    };
    let positions = embeddings.positions.parameters(embeddings.d_model);
    vec![
        global(Component::TokenEmbedding, embeddings.tokens()),
        global(Component::Positions, positions),
        layer(Component::AttentionQkv, attention.qkv().parameters()),
        layer(Component::AttentionOut, attention.out().parameters()),
        layer(Component::FeedForwardUp, widening),
        layer(Component::FeedForwardDown, feed_forward.down().parameters()),
        layer(Component::BlockNorms, block.norm_parameters()),
        global(Component::FinalNorm, final_norms),
        global(Component::Head, head.parameters()),
    ]
}

/// Counts the parameters of each component. The totals add up to [`super::Parameters::total`].
pub fn table(config: &DecoderConfig) -> Vec<ComponentParameters> {
    let rows = counted(config)
        .into_iter()
        .map(|counted| ComponentParameters {
            component: counted.component,
            per_layer: counted.blocks.map(|_| narrow(counted.each)),
            total: narrow(counted.total()),
        });
    rows.collect()
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
        assert_eq!(rows[7].total, 2 * 768);
        assert_eq!(rows[8].total, 0, "tied");
    }
}
