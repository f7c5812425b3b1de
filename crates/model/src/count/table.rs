//! The parameters by part and layer, as one writes a model's size down.

use serde::Serialize;

use super::narrow;
use crate::checked::DecoderConfig;
use crate::feed_forward::FeedForwardConfig;
use crate::mixture::MixtureConfig;

/// A part's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The part.
    pub part: Part,
    /// Of one block that has it, for a part of blocks.
    pub per_layer: Option<usize>,
    /// The number of blocks that have it, for a part of blocks.
    pub layers: Option<usize>,
    /// Of the whole model.
    pub total: usize,
}

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The token embedding.
    TokenEmbedding,
    /// Learned positions.
    Positions,
    /// The map to queries, keys and values.
    AttentionQkv,
    /// The attention's output map.
    AttentionOut,
    /// The feed-forward part's maps into its hidden width, the gate's among them.
    FeedForwardUp,
    /// Its map back.
    FeedForwardDown,
    /// The routers of mixtures of experts.
    Router,
    /// The experts' maps into their hidden widths.
    ExpertsUp,
    /// Their maps back.
    ExpertsDown,
    /// The shared experts with their gates.
    SharedExpert,
    /// The norms of the blocks, those of queries and keys among them.
    BlockNorms,
    /// The norm after the last block, and the embedding's where there is one.
    FinalNorm,
    /// The output projection with its bias; a tied one is the embedding.
    Head,
}

/// The parameters of a part, in as many bits as the largest legal sizes need.
pub(super) struct Counted {
    pub(super) part: Part,
    /// Of one block, or of the whole model.
    each: u128,
    /// The number of blocks that have it, for a part of blocks.
    blocks: Option<u128>,
}

impl Counted {
    pub(super) fn total(&self) -> u128 {
        self.each * self.blocks.unwrap_or(1)
    }
}

/// Counts by the configurations that the model's components are initialized from.
pub(super) fn counted(config: &DecoderConfig) -> Vec<Counted> {
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
    let layer = |part, each| Counted {
        part,
        each,
        blocks: Some(stack.n_layers as u128),
    };
    let some = |blocks: usize, part, each| Counted {
        part,
        each,
        blocks: Some(blocks as u128),
    };
    let whole = |part, each| Counted {
        part,
        each,
        blocks: None,
    };
    let positions = embeddings.positions.parameters(embeddings.d_model);
    vec![
        whole(Part::TokenEmbedding, embeddings.tokens()),
        whole(Part::Positions, positions),
        layer(Part::AttentionQkv, attention.qkv().parameters()),
        layer(Part::AttentionOut, attention.out().parameters()),
        some(dense, Part::FeedForwardUp, up),
        some(dense, Part::FeedForwardDown, down),
        some(with_experts, Part::Router, router),
        some(with_experts, Part::ExpertsUp, of_all(0)),
        some(with_experts, Part::ExpertsDown, of_all(1)),
        some(with_experts, Part::SharedExpert, shared),
        layer(Part::BlockNorms, block.norm_parameters()),
        whole(Part::FinalNorm, final_norms),
        whole(Part::Head, head.parameters()),
    ]
}

/// The parameters of a feed-forward layer's maps into its hidden width, and of its map back.
fn both(layer: &FeedForwardConfig) -> [u128; 2] {
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

/// A model's parameters by part; the totals add up to [`super::Parameters::total`].
pub fn table(config: &DecoderConfig) -> Vec<Row> {
    let rows = counted(config).into_iter().map(|counted| Row {
        part: counted.part,
        per_layer: counted.blocks.map(|_| narrow(counted.each)),
        layers: counted.blocks.map(narrow),
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
    fn parts_add_up_for_every_preset() {
        for preset in families::presets() {
            let config = checked(preset.name);
            let sum: usize = table(&config).iter().map(|row| row.total).sum();
            assert_eq!(sum, parameters(&config).total, "{}", preset.name);
        }
    }

    // By the seed's formulas for GPT-2 small, with the biases that it leaves out.
    #[test]
    fn gpt2_small_by_hand() {
        let rows = table(&checked("gpt2-small"));
        let per_layer = |part| {
            let row = rows.iter().find(|row| row.part == part).expect("a row");
            row.per_layer.expect("a part of every block")
        };
        assert_eq!(per_layer(Part::AttentionQkv), 3 * 768 * 768 + 3 * 768);
        assert_eq!(per_layer(Part::AttentionOut), 768 * 768 + 768);
        assert_eq!(per_layer(Part::FeedForwardUp), 4 * 768 * 768 + 4 * 768);
        assert_eq!(per_layer(Part::FeedForwardDown), 4 * 768 * 768 + 768);
        assert_eq!(per_layer(Part::BlockNorms), 4 * 768);
        let total = |part| {
            let row = rows.iter().find(|row| row.part == part);
            row.expect("a row").total
        };
        assert_eq!(total(Part::FinalNorm), 2 * 768);
        assert_eq!(total(Part::Head), 0, "tied");
    }
}
