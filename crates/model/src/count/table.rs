//! The parameters by part and layer, as one writes a model's size down.

use serde::Serialize;

use super::{Parameters, Sizes, narrow, norm_vectors, parameters, where_there};
use crate::checked::DecoderConfig;
use crate::config::FeedForward;

/// A part's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The part.
    pub part: Part,
    /// Of one block, for a part that every block has.
    pub per_layer: Option<usize>,
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
    /// The norms of the blocks, those of queries and keys among them.
    BlockNorms,
    /// The norm after the last block, and the embedding's where there is one.
    FinalNorm,
    /// The output projection with its bias; a tied one is the embedding.
    Head,
}

/// A model's parameters by part; the totals add up to [`Parameters::total`].
pub fn table(config: &DecoderConfig) -> Vec<Row> {
    let Parameters {
        embedding,
        positions,
        attention,
        feed_forward,
        norms,
        head,
        ..
    } = parameters(config);
    let sizes = Sizes::of(config);
    let layers = config.n_layers.max(1);
    let qkv = narrow(sizes.qkv * (sizes.d_model + where_there(config.bias.qkv, 1)));
    let maps = match config.feed_forward {
        FeedForward::Dense { .. } => 1,
        FeedForward::Gated { .. } => 2,
    };
    let inputs = sizes.d_model + where_there(config.bias.feed_forward, 1);
    let up = narrow(maps * sizes.width * inputs);
    let whole_norms = 1 + where_there(config.norm_embedding, 1);
    let final_norm = narrow(norm_vectors(config) * whole_norms * sizes.d_model);
    let layer = |part, per_layer: usize| Row {
        part,
        per_layer: Some(per_layer),
        total: per_layer.saturating_mul(layers),
    };
    let whole = |part, total| Row {
        part,
        per_layer: None,
        total,
    };
    vec![
        whole(Part::TokenEmbedding, embedding),
        whole(Part::Positions, positions),
        layer(Part::AttentionQkv, qkv),
        layer(Part::AttentionOut, (attention / layers).saturating_sub(qkv)),
        layer(Part::FeedForwardUp, up),
        layer(
            Part::FeedForwardDown,
            (feed_forward / layers).saturating_sub(up),
        ),
        layer(Part::BlockNorms, norms.saturating_sub(final_norm) / layers),
        whole(Part::FinalNorm, final_norm),
        whole(Part::Head, head),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecoderConfig, families};

    fn checked(name: &str) -> DecoderConfig {
        let mut config = families::preset(name).expect("a preset").config;
        config.vocab_size = config.vocab_size.max(257);
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
        assert_eq!(rows[7].total, 2 * 768);
        assert_eq!(rows[8].total, 0, "tied");
    }
}
