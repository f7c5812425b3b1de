//! Tiny configurations for tests: all 80 combinations of positions, wirings and norms, with the other settings
//! varied, and the components of every preset.

use emberlm_model::config::{
    AttentionKind, Biases, DeltaNets, ExpertScores, Experts, FeedForward, FullLayers, Head, Init,
    LatentAttention, ModelConfig, Norm, Position, ResidualMix, RotaryScaling, ValueEmbeddings,
    Window, Wiring,
};
use emberlm_model::{Activation, RotaryLayout, TransformerConfig, families};

pub const VOCAB_SIZE: usize = ModelConfig::TINY_VOCAB_SIZE;
pub const SEQ_LEN: usize = ModelConfig::TINY_SEQ_LEN;

pub fn spread() -> Vec<(String, TransformerConfig)> {
    let mut models: Vec<_> = Vec::new();
    for preset in families::presets() {
        let (_, config) = checked(preset.config.tiny());
        // At tiny sizes, most presets of a family are identical.
        if models.iter().all(|(_, known)| *known != config) {
            models.push((preset.name.to_owned(), config));
        }
    }
    for (i, position) in positions().into_iter().enumerate() {
        for (j, wiring) in wirings().into_iter().enumerate() {
            for (k, norm) in norms().into_iter().enumerate() {
                let mut raw = base();
                raw.position = position.clone();
                raw.wiring = wiring;
                raw.norm = norm;
                vary(&mut raw, 16 * i + 4 * j + k);
                models.push(checked(raw));
            }
        }
    }
    models
}

fn checked(raw: ModelConfig) -> (String, TransformerConfig) {
    let config = TransformerConfig::try_from(raw).unwrap();
    (format!("{:?}", config.raw()), config)
}

pub fn base() -> ModelConfig {
    ModelConfig {
        vocab_size: Some(VOCAB_SIZE),
        seq_len: SEQ_LEN,
        d_model: 16,
        n_layers: 2,
        heads: 4,
        kv_heads: Some(4),
        // Large enough that attention is far from uniform and activations are far from linear.
        init: Init::Normal {
            std: 0.3,
            scale_residual: false,
        },
        ..families::preset("char-nano").unwrap().config
    }
}

/// Varies the other settings with the index of the model, each with a different period.
fn vary(raw: &mut ModelConfig, n: usize) {
    // Mix the base-4 digits of the index, so that settings do not change in lockstep.
    let pick = |count: usize, pace: usize| (n * pace + n / 4 + n / 16 * (pace + 1)) % count;
    raw.kv_heads = Some([4, 2, 1][pick(3, 1)]);
    raw.head_dim = [None, Some(6)][pick(2, 3)];
    let window = [None, Some(3), Some(5), Some(40)][pick(4, 3)];
    raw.scale_embedding = pick(4, 1) == 1;
    if let Some(tokens) = window {
        raw.attention = AttentionKind::windowed(Window {
            tokens,
            global_tokens: [0, 2, 1, 12, 0][pick(5, 1)],
            full_layers: FullLayers::Listed([vec![], vec![0], vec![1]][pick(3, 2)].clone()),
        });
    } else if (1..3).contains(&pick(5, 3)) {
        let seed = n as u64;
        raw.attention = AttentionKind::Linear {
            features: Some(24),
            seed,
        };
        raw.qk_norm = n / 4 % 2 == 1;
    }
    raw.qk_norm = pick(2, 1) == 1;
    raw.norm_embedding = pick(3, 2) == 1;
    raw.residual_mix = (pick(3, 5) == 1).then_some(ResidualMix {
        stream: 0.9,
        embedding: 0.3,
    });
    raw.value_embeddings = (pick(4, 5) == 2).then(|| ValueEmbeddings {
        layers: FullLayers::Listed([vec![1], vec![0, 1]][pick(2, 3)].clone()),
        gate_inputs: [None, Some(5)][pick(2, 1)],
    });
    let is_softmax = matches!(raw.attention, AttentionKind::Softmax { .. });
    raw.gated_attention = is_softmax && pick(3, 7) == 1;
    let can_differ = is_softmax && window.is_none() && raw.value_embeddings.is_none();
    raw.delta_nets = (can_differ && pick(2, 7) == 0).then(|| DeltaNets {
        key_heads: Some(2),
        value_heads: [None, Some(4)][pick(2, 3)],
        value_dim: [None, Some(5)][pick(2, 1)],
        taps: [2, 4][pick(2, 5)],
        full_layers: FullLayers::Listed([vec![], vec![1]][pick(2, 1)].clone()),
        ..DeltaNets::default()
    });
    raw.bias = Biases {
        qkv: pick(2, 1) == 1,
        attention_out: pick(3, 1) == 1,
        feed_forward: pick(5, 2) < 2,
    };
    let plain = is_softmax && raw.delta_nets.is_none() && raw.value_embeddings.is_none();
    if let Position::Rotary { dims, .. } = &mut raw.position
        && plain
        && !raw.qk_norm
        && pick(3, 1) > 0
    {
        *dims = None;
        let query_rank = [None, Some(5)][pick(2, 5)];
        raw.kv_heads = None;
        raw.bias.qkv &= query_rank.is_some();
        raw.latent_attention = Some(LatentAttention {
            rank: 7,
            query_rank,
            rope_dim: Some(2),
            value_dim: [None, Some(5), Some(9)][pick(3, 1)],
        });
    }
    let activation = Activation::ALL[pick(6, 1)];
    raw.feed_forward = if pick(3, 1) == 1 {
        FeedForward::gated(activation).with_width(20)
    } else {
        FeedForward::dense(activation)
    };
    // One in three has experts, of them one in two in only the second block.
    raw.experts = (pick(3, 4) == 1).then(|| Experts {
        count: [4, 3][pick(2, 1)],
        active: [1, 2, 3][pick(3, 2)],
        width: [None, Some(12)][pick(2, 3)],
        normalize: pick(2, 5) == 1,
        scores: [ExpertScores::Softmax, ExpertScores::Sigmoid][pick(2, 4)],
        choice_bias: pick(3, 7) == 1,
        groups: None,
        scale: [None, Some(1.5)][pick(2, 3)],
        shared_width: [None, Some(8)][pick(2, 7)],
        shared_gate: pick(2, 1) == 1,
        balance_loss: 0.2,
        z_loss: 0.1,
        dense_layers: [vec![], vec![0]][pick(2, 1)].clone(),
    });
    raw.head = Head {
        tied: pick(2, 3) == 1,
        bias: pick(5, 3) == 1,
        scaled: pick(3, 1) == 2,
        scale: None,
        soft_cap: [None, None, Some(3.0)][pick(3, 2)],
    };
}

fn positions() -> [Position; 5] {
    [
        Position::None,
        Position::Learned,
        Position::Sinusoidal,
        Position::Rotary {
            dims: None,
            base: 10_000.0,
            layout: RotaryLayout::Interleaved,
            scaling: RotaryScaling::None,
        },
        Position::Rotary {
            dims: Some(2),
            base: 100.0,
            layout: RotaryLayout::HalfSplit,
            scaling: RotaryScaling::Linear { factor: 2.0 },
        },
    ]
}

fn wirings() -> [Wiring; 4] {
    [
        Wiring::PreNorm,
        Wiring::PostNorm,
        Wiring::Parallel { shared_norm: true },
        Wiring::Parallel { shared_norm: false },
    ]
}

fn norms() -> [Norm; 4] {
    let epsilon = 1e-5;
    [
        Norm::Layer {
            bias: true,
            epsilon,
        },
        Norm::Layer {
            bias: false,
            epsilon,
        },
        Norm::Rms { epsilon },
        Norm::UnitRms { epsilon },
    ]
}
