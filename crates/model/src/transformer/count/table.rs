//! Parameter counts by component, per layer and in total.

use serde::Serialize;

use super::narrow;
use crate::config::{ModelKind, ResidualMix};
use crate::nn::block::BlockConfig;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::stack::StackConfig;
use crate::transformer::checked::TransformerConfig;

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
    /// Norm of the embeddings.
    EmbeddingNorm,
    /// Biases of scores by distance, shared by a stack's blocks.
    RelativeBias,
    /// Factors that mix the embeddings into the blocks' inputs.
    ResidualMix,
    /// Sinks of the attentions.
    Sinks,
    /// Value embeddings with their gates.
    ValueEmbeddings,
    /// Projection to queries, keys and values.
    AttentionQkv,
    /// Projection to the gate of the attention's output.
    AttentionGate,
    /// Output projection of the attention.
    AttentionOut,
    /// Gated delta nets with their projections.
    DeltaNet,
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
    /// Norm after the last block.
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
    const fn once(component: Component, each: u128) -> Self {
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
pub(crate) fn counted(config: &TransformerConfig) -> Vec<ComponentCount> {
    let embeddings = config.embeddings();
    let width = embeddings.d_model;
    let positions = embeddings.positions.parameters(width);
    let segments = embeddings.segments as u128 * width as u128;
    let norm = embeddings.norm().map_or(0, |norm| norm.parameters());
    let once = ComponentCount::once;
    let mut counts = vec![
        once(Component::TokenEmbedding, embeddings.tokens()),
        once(Component::Positions, positions),
        once(Component::Segments, segments),
        once(Component::EmbeddingNorm, norm),
    ];
    if let Some(encoder) = config.source_stack() {
        counts.extend(of_stack(&encoder, Some(StackRole::Encoder)));
    }
    let role = (config.kind() == ModelKind::EncoderDecoder).then_some(StackRole::Decoder);
    counts.extend(of_stack(&config.stack(), role));
    let head = match config.kind() {
        ModelKind::Encoder => {
            let head = config.encoder_head();
            head.map_or(0, |head| head.parameters(config))
        }
        ModelKind::Decoder | ModelKind::EncoderDecoder => config.lm_head().parameters(),
    };
    counts.push(once(Component::Head, head));
    counts
}

/// The components of a stack.
fn of_stack(stack: &StackConfig, role: Option<StackRole>) -> Vec<ComponentCount> {
    let block = &stack.block;
    let with_experts = stack.expert_layers();
    let dense = stack.n_layers - with_experts;
    let some = |blocks: usize, component, each| ComponentCount {
        blocks: Some(blocks as u128),
        ..ComponentCount::once(component, each)
    };
    let layer = |component, each| some(stack.n_layers, component, each);
    let heads = block.attention.heads;
    let biases = stack
        .relative
        .map_or(0, |relative| relative.parameters(heads));
    let values = block.attention.values.map_or(0, |values| {
        values.parameters([block.attention.kv_heads, block.attention.head_dim])
    });
    let mix = block.mix.map_or(0, |_| ResidualMix::PARAMETERS);
    let mut counts = vec![
        ComponentCount::once(Component::RelativeBias, biases),
        layer(Component::ResidualMix, mix),
        some(stack.value_layers.len(), Component::ValueEmbeddings, values),
    ];
    for (blocks, attention) in stack.attentions() {
        if let Some(delta) = attention.delta() {
            let linear = attention.linear_layers();
            let each = linear.map(|layer| layer.parameters()).sum::<u128>();
            let each = each + delta.parameters(attention.head_sizes());
            counts.push(some(blocks, Component::DeltaNet, each));
            continue;
        }
        let gate = attention.gate().map_or(0, |gate| gate.parameters());
        counts.extend([
            some(
                blocks,
                Component::AttentionQkv,
                attention.qkv().parameters() + attention.latent_parameters(),
            ),
            some(blocks, Component::AttentionGate, gate),
            some(
                blocks,
                Component::AttentionOut,
                attention.out().parameters(),
            ),
            some(blocks, Component::Sinks, attention.sinks() as u128),
        ]);
    }
    if let Some(cross) = &block.cross_attention {
        let [q, kv, out] = cross.linear_layers();
        counts.extend([
            layer(Component::CrossQueries, q.parameters()),
            layer(Component::CrossKeysValues, kv.parameters()),
            layer(Component::CrossOut, out.parameters()),
        ]);
    }
    let [up, down] = both(&block.feed_forward);
    counts.extend([
        some(dense, Component::FeedForwardUp, up),
        some(dense, Component::FeedForwardDown, down),
    ]);
    if let Some(mixture) = &block.experts {
        let [up, down] = both(&mixture.expert).map(|each| mixture.count as u128 * each);
        let shared = mixture.shared().map_or(0, |(shared, gate)| {
            both(&shared).iter().sum::<u128>() + gate.map_or(0, |gate| gate.parameters())
        });
        counts.extend([
            some(
                with_experts,
                Component::Router,
                mixture.router().parameters() + mixture.choice_biases() as u128,
            ),
            some(with_experts, Component::ExpertsUp, up),
            some(with_experts, Component::ExpertsDown, down),
            some(with_experts, Component::SharedExpert, shared),
        ]);
    }
    // The first block may lack the norm of its attention, and delta nets have no norms of queries and keys.
    let first = usize::from(!stack.first_norm).min(stack.n_layers);
    let mut norms = vec![(first, stack.block(0).norm_parameters())];
    for (at, (blocks, attention)) in stack.attentions().into_iter().enumerate() {
        let others = blocks - if at == 0 { first } else { 0 };
        let each = BlockConfig {
            attention,
            ..*block
        }
        .norm_parameters();
        match norms.last_mut() {
            Some((same, last)) if *last == each => *same += others,
            _ => norms.push((others, each)),
        }
    }
    for (blocks, each) in norms.into_iter().filter(|(blocks, _)| *blocks > 0) {
        counts.push(some(blocks, Component::BlockNorms, each));
    }
    let norm = stack.norm_final().map_or(0, |norm| norm.parameters());
    counts.push(ComponentCount::once(Component::FinalNorm, norm));
    for count in &mut counts {
        count.stack = role;
    }
    counts
}

/// Parameters of a feed-forward layer's projections to its hidden width, and of the projection back.
fn both(layer: &FeedForwardConfig) -> [u128; 2] {
    let (gate, up) = layer.widening();
    let gate = gate.map_or(0, |gate| gate.parameters());
    [gate + up.parameters(), layer.down().parameters()]
}

/// The parameters of the experts that do not compute a token.
pub(super) fn idle(config: &TransformerConfig) -> u128 {
    let stack = config.stack();
    let with_experts = stack.expert_layers();
    stack.block.experts.map_or(0, |mixture| {
        let each: u128 = both(&mixture.expert).iter().sum();
        with_experts as u128 * (mixture.count - mixture.routing.active) as u128 * each
    })
}

/// Counts the parameters of each component. The totals add up to [`super::Parameters::total`].
pub fn table(config: &TransformerConfig) -> Vec<ComponentParameters> {
    rows(&counted(config))
}

/// The counts, clamped to `usize::MAX`.
fn rows(counts: &[ComponentCount]) -> Vec<ComponentParameters> {
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
    use crate::encoder::EncoderSettings;
    use crate::encoder_decoder::EncoderDecoderSettings;
    use crate::{TransformerConfig, families};

    fn checked(name: &str) -> TransformerConfig {
        let mut config = families::preset(name).expect("a preset").config;
        config.vocab_size.get_or_insert(257);
        TransformerConfig::try_from(config).expect("legal")
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

    // BERT base, uncased, without its pooler: the published 109,482,240 less 590,592. By hand from the paper's sizes.
    #[test]
    fn bert_base_matches_the_published_count() {
        let settings = EncoderSettings {
            n_layers: 12,
            ..EncoderSettings::new(768, 12)
        };
        let config = TransformerConfig::try_from(settings).expect("legal");
        assert_eq!(config.parameters(), 109_482_240 - 590_592);
        let table = table(&config);
        let total = |component| {
            let row = table.iter().find(|row| row.component == component);
            row.expect("a row").total
        };
        assert_eq!(total(Component::Segments), 2 * 768);
        assert_eq!(total(Component::EmbeddingNorm), 2 * 768);
        assert_eq!(total(Component::FinalNorm), 0);
        assert_eq!(total(Component::BlockNorms), 12 * 4 * 768);
    }

    // The published 60,506,624 of T5 small.
    #[test]
    fn t5_small_matches_the_published_count() {
        let settings = EncoderDecoderSettings {
            encoder_layers: 6,
            decoder_layers: 6,
            ..EncoderDecoderSettings::new(512, 8)
        };
        let config = TransformerConfig::try_from(settings).expect("legal");
        assert_eq!(config.parameters(), 60_506_624);
        let table = table(&config);
        let sum: usize = table.iter().map(|row| row.total).sum();
        assert_eq!(sum, 60_506_624);
        let cross = table.iter().filter(|row| {
            matches!(row.component, Component::CrossKeysValues) && row.stack.is_some()
        });
        let cross: Vec<_> = cross.map(|row| (row.stack, row.per_layer)).collect();
        assert_eq!(cross, [(Some(StackRole::Decoder), Some(2 * 512 * 512))]);
    }
}
