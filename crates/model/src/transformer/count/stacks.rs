//! Parameter counts of encoders and encoder–decoders by component.

use super::table::{Component, ComponentCount, ComponentParameters, StackRole, both, rows};
use crate::nn::norm::NormConfig;
use crate::nn::stack::StackConfig;
use crate::transformer::encoder::EncoderConfig;
use crate::transformer::encoder_decoder::EncoderDecoderConfig;

/// Counts the parameters of each component of an encoder. The totals add up to [`EncoderConfig::parameters`].
pub fn encoder_table(config: &EncoderConfig) -> Vec<ComponentParameters> {
    rows(&encoder(config))
}

/// Counts the parameters of each component of an encoder–decoder. The totals add up to
/// [`EncoderDecoderConfig::parameters`].
pub fn encoder_decoder_table(config: &EncoderDecoderConfig) -> Vec<ComponentParameters> {
    rows(&encoder_decoder(config))
}

pub(crate) fn encoder(config: &EncoderConfig) -> Vec<ComponentCount> {
    let (embeddings, stack) = (config.embeddings(), config.stack());
    let width = embeddings.d_model;
    let norm = |norm: Option<NormConfig>| norm.map_or(0, |norm| norm.parameters());
    let mut counts = vec![
        ComponentCount::once(Component::TokenEmbedding, embeddings.tokens()),
        ComponentCount::once(Component::Positions, embeddings.positions.parameters(width)),
        ComponentCount::once(
            Component::Segments,
            embeddings.segments as u128 * width as u128,
        ),
    ];
    counts.push(ComponentCount::once(
        Component::EmbeddingNorm,
        norm(embeddings.norm()),
    ));
    counts.extend(blocks(&stack));
    counts.extend([
        ComponentCount::once(Component::FinalNorm, norm(stack.norm_final())),
        ComponentCount::once(Component::Head, config.head_parameters()),
    ]);
    counts
}

pub(crate) fn encoder_decoder(config: &EncoderDecoderConfig) -> Vec<ComponentCount> {
    let tokens = config.embeddings().tokens();
    let mut counts = vec![ComponentCount::once(Component::TokenEmbedding, tokens)];
    counts.extend(with_role(&config.encoder(), StackRole::Encoder));
    counts.extend(with_role(&config.decoder(), StackRole::Decoder));
    let head = config.lm_head().parameters();
    counts.push(ComponentCount::once(Component::Head, head));
    counts
}

/// The components of one stack of an encoder–decoder.
fn with_role(stack: &StackConfig, role: StackRole) -> Vec<ComponentCount> {
    let heads = stack.block.attention.heads;
    let biases = stack
        .relative
        .map_or(0, |relative| relative.parameters(heads));
    let norm = stack.norm_final().map_or(0, |norm| norm.parameters());
    let mut counts = vec![ComponentCount::once(Component::RelativeBias, biases)];
    counts.extend(blocks(stack));
    counts.push(ComponentCount::once(Component::FinalNorm, norm));
    for count in &mut counts {
        count.stack = Some(role);
    }
    counts
}

/// The components of a stack's blocks.
fn blocks(stack: &StackConfig) -> Vec<ComponentCount> {
    let block = &stack.block;
    let [up, down] = both(&block.feed_forward);
    let mut parts = vec![
        (Component::AttentionQkv, block.attention.qkv().parameters()),
        (Component::AttentionOut, block.attention.out().parameters()),
    ];
    if let Some(cross) = &block.cross_attention {
        let [q, kv, out] = cross.linear_layers();
        parts.extend([
            (Component::CrossQueries, q.parameters()),
            (Component::CrossKeysValues, kv.parameters()),
            (Component::CrossOut, out.parameters()),
        ]);
    }
    parts.extend([
        (Component::FeedForwardUp, up),
        (Component::FeedForwardDown, down),
    ]);
    let some = |blocks: usize, component, each| ComponentCount {
        blocks: Some(blocks as u128),
        ..ComponentCount::once(component, each)
    };
    let of_all = parts.into_iter();
    let mut counts: Vec<ComponentCount> = of_all
        .map(|(component, each)| some(stack.n_layers, component, each))
        .collect();
    // The first block may lack the norm of its attention.
    let first = usize::from(!stack.first_norm).min(stack.n_layers);
    let norms = [(first, stack.block(0)), (stack.n_layers - first, *block)];
    for (blocks, block) in norms.into_iter().filter(|(blocks, _)| *blocks > 0) {
        counts.push(some(blocks, Component::BlockNorms, block.norm_parameters()));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformer::encoder::EncoderSettings;
    use crate::transformer::encoder_decoder::EncoderDecoderSettings;

    // BERT base, uncased, without its pooler: the published 109,482,240 less 590,592. By hand from the paper's sizes.
    #[test]
    fn bert_base_matches_the_published_count() {
        let settings = EncoderSettings {
            n_layers: 12,
            ..EncoderSettings::new(768, 12)
        };
        let config = EncoderConfig::try_from(settings).expect("legal");
        assert_eq!(config.parameters(), 109_482_240 - 590_592);
        let table = encoder_table(&config);
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
        let config = EncoderDecoderConfig::try_from(settings).expect("legal");
        assert_eq!(config.parameters(), 60_506_624);
        let table = encoder_decoder_table(&config);
        let sum: usize = table.iter().map(|row| row.total).sum();
        assert_eq!(sum, 60_506_624);
        let cross = table.iter().filter(|row| {
            matches!(row.component, Component::CrossKeysValues) && row.stack.is_some()
        });
        let cross: Vec<_> = cross.map(|row| (row.stack, row.per_layer)).collect();
        assert_eq!(cross, [(Some(StackRole::Decoder), Some(2 * 512 * 512))]);
    }
}
