//! Parameters, floating-point operations and memory of a model, computed from its configuration.
//!
//! A valid configuration can be larger than any machine. Counts use 128 bits, which products of the largest valid sizes
//! do not overflow; results are clamped to `usize::MAX`.

mod table;

pub(crate) use table::counted;
pub use table::{Component, ComponentParameters, StackRole, table};

use emberlm_kernels::{DELTA_RULE_CHUNK, LINEAR_ATTENTION_CHUNK};
use serde::Serialize;

use crate::config::ModelKind;
use crate::nn::attention::{AttentionConfig, Mechanism};
use crate::nn::kv_cache::{CacheFormat, held_tokens};
use crate::transformer::checked::TransformerConfig;

/// Parameters by component. A tied head counts 0, because it is the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// Sum of all components.
    pub total: usize,
    /// Parameters that one token uses: without the experts of a mixture that do not compute it.
    pub active: usize,
    /// Token embedding.
    pub embedding: usize,
    /// Learned positions.
    pub positions: usize,
    /// Linear layers of the attentions, with biases.
    pub attention: usize,
    /// Linear layers of the feed-forward layers, with biases. For mixtures, all experts and the routers.
    pub feed_forward: usize,
    /// Gains and biases of all norms.
    pub norms: usize,
    /// Untied head and its bias.
    pub head: usize,
}

/// Floating-point operations per token at the full sequence length. A multiplication and an addition count as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flops {
    /// One forward pass: 2 per weight of the linear layers (of a mixture, its active experts) and the head, plus
    /// `4 · heads · head_dim · seq_len` per block for the attention's two products. As is customary, the causal mask
    /// is ignored (Chowdhery et al. 2022). Linear attention counts the products of its features, sums and chunks
    /// instead.
    pub forward: usize,
    /// Forward and backward pass: three times the forward pass.
    pub training: usize,
}

/// Bytes, in f32 unless a field states another format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Weights.
    pub weights: usize,
    /// Weights, gradients and AdamW's two moments, without activations.
    pub training_state: usize,
    /// Cache of one full-length sequence: keys and values, or linear attention's sums.
    pub kv_cache: usize,
    /// The same cache in f16.
    pub kv_cache_f16: usize,
    /// The same cache in q8; `None` if the model does not support it.
    pub kv_cache_q8: Option<usize>,
}

/// Converts a count to `usize`, clamped to `usize::MAX`.
fn narrow(count: u128) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Counts a model's parameters, component by component.
pub fn parameters(config: &TransformerConfig) -> Parameters {
    let counted = counted(config);
    let sum_of = |components: &[Component]| {
        let counts = counted.iter();
        let counts = counts.filter(|count| components.contains(&count.component));
        narrow(counts.map(|count| count.total()).sum())
    };
    Parameters {
        total: narrow(counted.iter().map(|count| count.total()).sum()),
        active: narrow(
            counted.iter().map(|count| count.total()).sum::<u128>() - table::idle(config),
        ),
        embedding: sum_of(&[Component::TokenEmbedding]),
        positions: sum_of(&[Component::Positions]),
        attention: sum_of(&[
            Component::AttentionQkv,
            Component::AttentionGate,
            Component::AttentionOut,
            Component::DeltaNet,
        ]),
        feed_forward: sum_of(&[
            Component::FeedForwardUp,
            Component::FeedForwardDown,
            Component::Router,
            Component::ExpertsUp,
            Component::ExpertsDown,
            Component::SharedExpert,
        ]),
        norms: sum_of(&[
            Component::EmbeddingNorm,
            Component::BlockNorms,
            Component::FinalNorm,
        ]),
        head: sum_of(&[Component::Head]),
    }
}

/// Counts a model's operations per token. For models other than decoders an estimate: six in training for each parameter
/// that is not in the token table.
pub fn flops_per_token(config: &TransformerConfig) -> Flops {
    if config.kind() != ModelKind::Decoder {
        let table = config.embeddings().tokens();
        let forward = 2 * config.parameters().saturating_sub(table);
        return Flops {
            forward: narrow(forward),
            training: narrow(3 * forward),
        };
    }
    let stack = config.stack();
    let weights = stack.kinds().into_iter().map(|(blocks, block)| {
        let linear = block.active_linear_layers().into_iter();
        blocks as u128 * linear.map(|layer| layer.weights()).sum::<u128>()
    });
    let head = config.embeddings().tokens();
    let products = 2 * (weights.sum::<u128>() + head);
    let mixing = stack.attentions().into_iter().map(|(blocks, attention)| {
        blocks as u128 * attention_products(&attention, config.seq_len())
    });
    let forward = products + mixing.sum::<u128>();
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
        Mechanism::Softmax { .. } => {
            let latent = attention.latent.map(|latent| latent.value_dim as u128);
            2 * heads * (head_dim + latent.unwrap_or(head_dim)) * seq_len
        }
        Mechanism::Linear { features, .. } => {
            let features = features as u128;
            // Values have an additional column of ones, which yields the normalizer.
            let chunk = (LINEAR_ATTENTION_CHUNK as u128).min(seq_len);
            let value = head_dim + 1;
            let per_query = features * head_dim + chunk * (features + value) + features * value;
            let per_key = features * head_dim + features * value;
            2 * (heads * per_query + kv_heads * per_key)
        }
        Mechanism::Delta(delta) => {
            // Products of a token with those of its chunk, among them the inverse of the chunk's system; reads of the memory by
            // keys and queries, and the write to it.
            let value = delta.value_dim as u128;
            let chunk = (DELTA_RULE_CHUNK as u128).min(seq_len);
            let doublings = u128::from(chunk.next_power_of_two().ilog2());
            let within = chunk * (2 * head_dim + 2 * value + 2 * doublings * chunk);
            2 * heads * (within + 3 * head_dim * value)
        }
    }
}

/// Bytes cached per block for a sequence of `seq_len` tokens.
fn cached_bytes(attention: &AttentionConfig, seq_len: usize, format: CacheFormat) -> u128 {
    let [kv_heads, head_dim] = [attention.kv_heads, attention.head_dim].map(|size| size as u128);
    match attention.mechanism {
        Mechanism::Softmax { .. } => {
            let ([heads, width], tensors) = attention.cached();
            let vectors = (tensors * heads) as u128 * held_tokens(attention, seq_len) as u128;
            vectors * format.vector_bytes(width) as u128
        }
        Mechanism::Linear { features, .. } => {
            4 * kv_heads * (features as u128 * (head_dim + 1) + 1)
        }
        Mechanism::Delta(delta) => {
            let memory = attention.heads as u128 * head_dim * delta.value_dim as u128;
            let inputs = (delta.taps as u128 - 1) * delta.channels(attention.head_sizes()) as u128;
            4 * (memory + inputs)
        }
    }
}

/// Bytes of one sequence's cache for `capacity` tokens: keys and values in `format`, or the states of other attentions. 0 for an
/// encoder.
pub fn kv_cache(config: &TransformerConfig, capacity: usize, format: CacheFormat) -> usize {
    if config.kind() == ModelKind::Encoder {
        return 0;
    }
    let stack = config.stack();
    let of = |(layers, attention): (usize, AttentionConfig)| {
        layers as u128 * cached_bytes(&attention, capacity, format)
    };
    // Those without a window are of the first kind of attention.
    let full = stack.full_layers.len().min(stack.n_layers);
    let unbounded = of((full, stack.block.attention.without_window()));
    let mut others = stack.attentions();
    if let Some((layers, _)) = others.first_mut() {
        *layers = layers.saturating_sub(full);
    }
    let bytes = unbounded + others.into_iter().map(of).sum::<u128>();
    narrow(bytes)
}

/// Computes a model's memory.
pub fn memory(config: &TransformerConfig) -> Memory {
    let weights = 4 * parameters(config).total as u128;
    let cache = |format| kv_cache(config, config.seq_len(), format);
    let q8 = CacheFormat::Q8.check(config).is_ok();
    Memory {
        weights: narrow(weights),
        training_state: narrow(4 * weights),
        kv_cache: cache(CacheFormat::F32),
        kv_cache_f16: cache(CacheFormat::F16),
        kv_cache_q8: q8.then(|| cache(CacheFormat::Q8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::limits::MOST_LAYERS;
    use crate::families;

    fn preset(name: &str) -> TransformerConfig {
        let config = families::preset(name).expect("a preset").config;
        TransformerConfig::try_from(config).expect("legal")
    }

    // Counts from `transformers` 5.23: `AutoModelForCausalLM.from_config(…).num_parameters()` on the `meta` device.
    #[test]
    fn parameter_counts_match_transformers() {
        let published: [(&str, usize); 58] = [
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
            ("mixtral-8x7b", 46_702_792_704),
            ("qwen1.5-moe-a2.7b", 14_315_784_192),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("olmoe-1b-7b", 6_919_161_856),
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
            ("qwen3-next-80b-a3b", 79_674_391_296),
            ("qwen3.5-9b", 8_953_803_264),
            ("deepseek-v3", 671_026_419_200),
            ("moonlight-16b-a3b", 15_960_110_208),
            ("deepseek-v2-lite", 15_706_484_224),
            ("deepseek-v2", 235_741_434_880),
            ("glm-4.5-air", 106_852_251_264),
            ("glm-4.5", 352_797_829_024),
            ("glm-4.7-flash", 29_943_393_920),
        ];
        for (name, count) in published {
            assert_eq!(parameters(&preset(name)).total, count, "{name}");
        }
    }

    // Calculated by hand from the equations. PaLM's counts round to those in the paper's table 1: 8.63, 62.50 and
    // 540.35 billion.
    #[test]
    fn parameter_counts_of_families_missing_in_transformers() {
        let pocket = 2 * 50_257 * 384 + 6 * (384 * 640 + 384 * 384 + 2 * 384 * 1536);
        let block = 12 * 768 * 768;
        // 13 · d: biases of 3 · d + d + 4 · d + d, and two norms of 2 · d.
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

    // Calculated by hand for OLMoE: 8 of 64 experts of 3 · 2048 · 1024 in each of 16 layers. The published count is 1.3
    // billion.
    #[test]
    fn a_token_uses_the_active_experts() {
        let config = preset("olmoe-1b-7b");
        let counted = parameters(&config);
        let expert = 3 * 2048 * 1024;
        assert_eq!(counted.active, counted.total - 16 * 56 * expert);
        let layers = 16 * (4 * 2048 * 2048 + 2048 * 64 + 8 * expert);
        let products = 2 * (layers + 50_304 * 2048);
        let mixing = 16 * 4 * 2048 * 4096;
        assert_eq!(flops_per_token(&config).forward, products + mixing);
    }

    // Calculated by hand: 2 · (12 · 12 · 768² + 50257 · 768) + 12 · 4 · 768 · 1024.
    #[test]
    fn operations_of_gpt2() {
        let flops = flops_per_token(&preset("gpt2"));
        assert_eq!(
            flops.forward,
            2 * (144 * 589_824 + 50_257 * 768) + 48 * 786_432
        );
        assert_eq!(flops.training, 3 * flops.forward);
    }

    // Calculated by hand for 64 features, 12 heads of 64 and chunks of 64. Operations per token: 2 · 12 · (64·64 +
    // 64·(64 + 65) + 64·65) for the queries and 2 · 12 · (64·64 + 64·65) for the keys. The cache holds 64 · 65 + 1
    // elements per head for any sequence length.
    #[test]
    fn linear_attention_costs_are_independent_of_sequence_length() {
        let linear = |seq_len| {
            let mut raw = preset("gpt2").raw();
            raw.attention = crate::config::AttentionKind::Linear {
                features: Some(64),
                seed: 0,
            };
            raw.seq_len = seq_len;
            TransformerConfig::try_from(raw).expect("legal")
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

    // Calculated by hand: 512 + 64 elements per token and block, and scores and sums of 16 heads of 192 and 128.
    #[test]
    fn latents_are_all_that_a_cache_holds() {
        let lite = preset("deepseek-v2-lite");
        assert_eq!(memory(&lite).kv_cache, 4 * 576 * 27 * 163_840);
        let attention = lite.stack().block.attention;
        assert_eq!(attention_products(&attention, 1000), 2 * 16 * 320 * 1000);
    }

    // Every size has its largest valid value. Counts that do not fit are clamped, the others are exact.
    #[test]
    fn counts_of_largest_sizes_do_not_overflow() {
        const LARGEST: usize = 1 << 24;
        let mut raw = families::preset("gpt2").expect("a preset").config;
        raw.vocab_size = Some(LARGEST);
        raw.seq_len = LARGEST;
        raw.d_model = LARGEST;
        raw.n_layers = MOST_LAYERS;
        raw.heads = LARGEST;
        raw.kv_heads = Some(LARGEST);
        raw.head_dim = Some(LARGEST);
        raw.feed_forward =
            crate::config::FeedForward::gated(crate::Activation::Silu).with_width(LARGEST);
        raw.qk_norm = true;
        let config = TransformerConfig::try_from(raw).expect("legal");
        let counted = parameters(&config);
        assert_eq!(counted.total, usize::MAX);
        assert_eq!(counted.attention, usize::MAX);
        assert_eq!(counted.embedding, 1 << 48);
        // Gains and biases of two norms per block, of the final norm, and of the query and key norms of each block.
        assert_eq!(counted.norms, 2 * ((1 << 41) + (1 << 24) + (1 << 41)));
        assert_eq!(flops_per_token(&config).training, usize::MAX);
        let memory = memory(&config);
        assert_eq!(memory.training_state, usize::MAX);
        assert_eq!(memory.kv_cache, usize::MAX);
    }
}
