//! Size of a model, computed from the configuration only: parameters, operations and memory.
//!
//! A legal configuration can exceed any machine. Counts use 128 bits, which the product of the largest legal sizes does
//! not overflow; results above `usize::MAX` are clamped to it.

mod table;

pub use table::{Part, Row, table};

use emberlm_kernels::{LINEAR_ATTENTION_CHUNK, Reach};
use serde::Serialize;

use self::table::counted;
use crate::attention::{AttentionConfig, Mechanism};
use crate::checked::DecoderConfig;
use crate::kv_cache::held_tokens;

/// Parameters by component. A tied head counts 0, because it is the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// Sum of all components.
    pub total: usize,
    /// The token embedding.
    pub embedding: usize,
    /// Learned positions.
    pub positions: usize,
    /// The attentions' linear layers with their biases.
    pub attention: usize,
    /// The feed-forward layers' linear layers with their biases.
    pub feed_forward: usize,
    /// Gains and biases of all norms.
    pub norms: usize,
    /// The untied head, with its bias.
    pub head: usize,
}

/// Floating-point operations per token at the full sequence length. A multiplication and an addition count as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flops {
    /// One forward pass: 2 per weight of each linear layer and of the head, and `4 · heads · head_dim · seq_len` per
    /// block for the attention's two products. These are counted over the full square, as is customary (Chowdhery et
    /// al. 2022). For linear attention, the products of its features, sums and chunk squares are counted instead.
    pub forward: usize,
    /// Forward and backward: three times the forward pass.
    pub training: usize,
}

/// Bytes in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The weights.
    pub weights: usize,
    /// Weights, gradients and AdamW's two moments, without activations.
    pub training_state: usize,
    /// Cache of one full-length sequence: keys and values, or linear attention's sums.
    pub kv_cache: usize,
}

/// Converts a count to `usize`, clamped to `usize::MAX`.
fn narrow(count: u128) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Counts a model's parameters, component by component.
pub fn parameters(config: &DecoderConfig) -> Parameters {
    let counted = counted(config);
    let of = |parts: &[Part]| {
        let chosen = counted.iter().filter(|c| parts.contains(&c.part));
        narrow(chosen.map(|c| c.total()).sum())
    };
    Parameters {
        total: narrow(counted.iter().map(|c| c.total()).sum()),
        embedding: of(&[Part::TokenEmbedding]),
        positions: of(&[Part::Positions]),
        attention: of(&[Part::AttentionQkv, Part::AttentionOut]),
        feed_forward: of(&[Part::FeedForwardUp, Part::FeedForwardDown]),
        norms: of(&[Part::BlockNorms, Part::FinalNorm]),
        head: of(&[Part::Head]),
    }
}

/// Counts a model's operations per token.
pub fn flops_per_token(config: &DecoderConfig) -> Flops {
    let stack = config.stack();
    let layers = stack.n_layers as u128;
    let linear = stack.block.linear_layers().into_iter();
    let weights_per_block: u128 = linear.map(|layer| layer.weights()).sum();
    let head = config.embeddings().tokens();
    let products = 2 * (layers * weights_per_block + head);
    let mixing = attention_products(&stack.block.attention, config.seq_len());
    let forward = products + layers * mixing;
    Flops {
        forward: narrow(forward),
        training: narrow(3 * forward),
    }
}

/// Operations per token of an attention's products, without its linear layers.
fn attention_products(attention: &AttentionConfig, seq_len: usize) -> u128 {
    let [heads, kv_heads, head_dim, seq_len] = [
        attention.heads,
        attention.kv_heads,
        attention.head_dim,
        seq_len,
    ]
    .map(|size| size as u128);
    match attention.mechanism {
        Mechanism::Softmax { .. } => 4 * heads * head_dim * seq_len,
        Mechanism::Linear { features, .. } => {
            let features = features as u128;
            // The values have an additional column of ones.
            let chunk = (LINEAR_ATTENTION_CHUNK as u128).min(seq_len);
            let value = head_dim + 1;
            let per_query = features * head_dim + chunk * (features + value) + features * value;
            let per_key = features * head_dim + features * value;
            2 * (heads * per_query + kv_heads * per_key)
        }
    }
}

/// Cached elements per block for a sequence of the full length.
fn cached_elements(attention: &AttentionConfig, seq_len: usize) -> u128 {
    let [kv_heads, head_dim] = [attention.kv_heads, attention.head_dim].map(|size| size as u128);
    match attention.mechanism {
        Mechanism::Softmax { .. } => {
            2 * kv_heads * head_dim * held_tokens(attention, seq_len) as u128
        }
        Mechanism::Linear { features, .. } => kv_heads * (features as u128 * (head_dim + 1) + 1),
    }
}

/// Bytes of one sequence's cache with room for `capacity` tokens: keys and values, or linear attention's sums.
pub fn kv_cache(config: &DecoderConfig, capacity: usize) -> usize {
    let stack = config.stack();
    let full = stack.full_layers.len().min(stack.n_layers) as u128;
    let with_reach = |attention: &AttentionConfig| cached_elements(attention, capacity);
    let elements = full * with_reach(&stack.block.attention.with_reach(Reach::Causal))
        + (stack.n_layers as u128 - full) * with_reach(&stack.block.attention);
    narrow(4 * elements)
}

/// Counts a model's memory.
pub fn memory(config: &DecoderConfig) -> Memory {
    let weights = 4 * parameters(config).total as u128;
    Memory {
        weights: narrow(weights),
        training_state: narrow(4 * weights),
        kv_cache: kv_cache(config, config.seq_len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;

    fn preset(name: &str) -> DecoderConfig {
        let config = families::preset(name).expect("a preset").config;
        DecoderConfig::try_from(config).expect("legal")
    }

    // Counted by PyTorch, the modules on the `meta` device: `num_parameters()` of what `transformers` 5.23's
    // `AutoModelForCausalLM.from_config` makes of these sizes.
    #[test]
    fn published_counts() {
        let published: [(&str, usize); 45] = [
            ("gpt2-small", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("gptj-6b", 6_050_882_784),
            ("pythia-70m", 70_426_624),
            ("pythia-160m", 162_322_944),
            ("pythia-410m", 405_334_016),
            ("pythia-1b", 1_011_781_632),
            ("pythia-1.4b", 1_414_647_808),
            ("pythia-2.8b", 2_775_208_960),
            ("pythia-6.9b", 6_857_302_016),
            ("pythia-12b", 11_846_072_320),
            ("gpt-neox-20b", 20_554_567_680),
            ("tinyllama-1.1b", 1_100_048_384),
            ("llama-2-7b", 6_738_415_616),
            ("llama-3-8b", 8_030_261_248),
            ("llama-3.2-1b", 1_235_814_400),
            ("mistral-7b", 7_241_732_096),
            ("qwen2-0.5b", 494_032_768),
            ("qwen2-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-8b", 8_190_735_360),
            ("gemma2-2b", 2_614_341_888),
            ("gemma2-9b", 9_241_705_984),
            ("gemma2-27b", 27_227_128_320),
            ("olmo2-1b", 1_484_916_736),
            ("olmo2-7b", 7_298_617_344),
            ("olmo3-7b", 7_298_011_136),
            ("smollm3-3b", 3_075_098_624),
            ("phi3-mini-4k", 3_821_079_552),
            ("phi4", 14_659_507_200),
            ("granite-3-2b", 2_533_531_648),
            ("granite-3-8b", 8_170_848_256),
            ("gemma3-270m", 268_098_176),
            ("gemma3-1b", 999_885_952),
            ("starcoder2-3b", 3_030_371_328),
            ("starcoder2-7b", 7_173_923_840),
            ("command-r", 34_980_831_232),
            ("glm4-9b", 9_400_279_040),
            ("bloom-560m", 559_214_592),
            ("bloom-1b1", 1_065_314_304),
            ("bloom-7b1", 7_069_016_064),
            ("falcon-7b", 6_921_720_704),
            ("falcon-40b", 41_303_293_952),
        ];
        for (name, count) in published {
            assert_eq!(parameters(&preset(name)).total, count, "{name}");
        }
    }

    // By hand from the equations, but PaLM's: the paper's table 1 has 8.63, 62.50 and 540.35 billion.
    #[test]
    fn counts_of_families_that_transformers_lacks() {
        let pocket = 2 * 50_257 * 384 + 6 * (384 * 640 + 384 * 384 + 2 * 384 * 1536);
        let block = 12 * 768 * 768;
        // Biases of 3 · d + d + 4 · d + d, two norms.
        let vanilla = 2 * 50_257 * 768 + 12 * (block + 13 * 768) + 2 * 768 + 50_257;
        let prenorm = 2 * 50_257 * 768
            + 1024 * 768
            + 12 * (4 * 768 * 768 + 2 * 768 * 2048 + 9 * 768 + 2048)
            + 2 * 768;
        let cs336 = 2 * 10_000 * 512 + 4 * (4 * 512 * 512 + 3 * 512 * 1365 + 2 * 512) + 512;
        let counted: [(&str, usize); 7] = [
            ("pocket", pocket),
            ("vanilla", vanilla),
            ("prenorm", prenorm),
            ("cs336", cs336),
            ("palm-8b", 8_632_012_800),
            ("palm-62b", 62_495_662_080),
            ("palm-540b", 540_356_474_880),
        ];
        assert_eq!(pocket, 48_034_560);
        for (name, count) in counted {
            assert_eq!(parameters(&preset(name)).total, count, "{name}");
        }
    }

    // By hand: 2 · (12 · 12 · 768² + 50257 · 768) + 12 · 4 · 768 · 1024.
    #[test]
    fn operations_of_gpt2() {
        let flops = flops_per_token(&preset("gpt2"));
        assert_eq!(
            flops.forward,
            2 * (144 * 589_824 + 50_257 * 768) + 48 * 786_432
        );
        assert_eq!(flops.training, 3 * flops.forward);
    }

    // By hand, of 64 features in 12 heads of 64, chunks of 64: 2 · 12 · (64·64 + 64·(64 + 65) + 64·65) per token for the
    // queries, 2 · 12 · (64·64 + 64·65) for the keys; 64 · 65 + 1 numbers per head kept, whatever the length.
    #[test]
    fn linear_attention_does_not_grow_with_the_sequence() {
        let linear = |seq_len| {
            let mut raw = preset("gpt2").raw();
            raw.attention = crate::config::AttentionKind::Linear {
                features: Some(64),
                seed: 0,
            };
            raw.seq_len = seq_len;
            DecoderConfig::try_from(raw).expect("legal")
        };
        let products = 2 * 12 * (4096 + 64 * 129 + 4160) + 2 * 12 * (4096 + 4160);
        let forward = 2 * (144 * 589_824 + 50_257 * 768) + 12 * products;
        for seq_len in [1024, 8192] {
            assert_eq!(flops_per_token(&linear(seq_len)).forward, forward);
            assert_eq!(memory(&linear(seq_len)).kv_cache, 4 * 12 * 12 * 4161);
        }
        let softmax = preset("gpt2");
        assert_eq!(memory(&softmax).kv_cache, 4 * 12 * 2 * 12 * 64 * 1024);
    }

    // The greatest of every size: what does not fit is the greatest number there is, what does is exact.
    #[test]
    fn sizes_beyond_any_machine_are_counted_without_overflow() {
        const MOST: usize = 1 << 24;
        let mut raw = families::preset("gpt2").expect("a preset").config;
        raw.vocab_size = Some(MOST);
        raw.seq_len = MOST;
        raw.d_model = MOST;
        raw.n_layers = MOST;
        raw.heads = MOST;
        raw.kv_heads = Some(MOST);
        raw.head_dim = Some(MOST);
        raw.feed_forward =
            crate::config::FeedForward::gated(crate::Activation::Silu).with_width(MOST);
        raw.qk_norm = true;
        let config = DecoderConfig::try_from(raw).expect("legal");
        let counted = parameters(&config);
        assert_eq!(counted.total, usize::MAX);
        assert_eq!(counted.attention, usize::MAX);
        assert_eq!(counted.embedding, 1 << 48);
        // Gain and bias of two norms a block and the last, and of each block's query and key norms.
        assert_eq!(counted.norms, 2 * ((1 << 49) + (1 << 24) + (1 << 49)));
        assert_eq!(flops_per_token(&config).training, usize::MAX);
        let memory = memory(&config);
        assert_eq!(memory.training_state, usize::MAX);
        assert_eq!(memory.kv_cache, usize::MAX);
    }
}
