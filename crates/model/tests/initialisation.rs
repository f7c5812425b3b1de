//! Compares means and standard deviations of initial weights with the table in `init.rs`, for every family and
//! initialization, and tests seeds and backends. Expected values are derived from the table and the cited papers.

mod schemes;

use burn::backend::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::config::{
    Biases, FeedForward, FullLayers, Head, Init, ModelConfig, Norm, Position, ValueEmbeddings,
    ZeroInit,
};
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::weights::{HostTensor, named_tensors};
use emberlm_model::{Activation, Family, Parameters, TransformerConfig};

use self::schemes::{
    InitialDistribution, ParameterKind, Scheme, fan_in, gpt2, le_cun, normal, small, starcoder2,
    truncated_xavier,
};

const VOCAB: f64 = 300.0;
const SEQ_LEN: f64 = 128.0;
const D: f64 = 96.0;
/// Total width of all query heads; it differs from `d_model`.
const HEADS_WIDTH: f64 = 120.0;
const WIDTH: f64 = 200.0;
const EXPERTS: f64 = 3.0;
const RANK: f64 = 40.0;
const LAYERS: f64 = 3.0;

/// Standard deviation of a standard normal distribution truncated at ±3: √(1 - 6φ(3) / (2Φ(3) - 1)).
const TRUNCATED_STD: f64 = 0.98658;

/// A family's components at small sizes.
fn config(family: Family) -> TransformerConfig {
    let mut raw = family.presets().swap_remove(0).config;
    raw.vocab_size = Some(VOCAB as usize);
    raw.seq_len = SEQ_LEN as usize;
    raw.d_model = D as usize;
    raw.n_layers = LAYERS as usize;
    raw.kv_heads = raw.kv_heads.map(|_| 2);
    raw.heads = 6;
    raw.head_dim = Some(HEADS_WIDTH as usize / 6);
    if let Position::Rotary { dims, .. } = &mut raw.position {
        *dims = dims.map(|dims| dims.min(4));
    }
    if let Some(latent) = &mut raw.latent_attention {
        latent.rank = RANK as usize;
        latent.query_rank = latent.query_rank.map(|_| RANK as usize);
        (latent.rope_dim, latent.value_dim) = (None, None);
        if let Position::Rotary { dims, .. } = &mut raw.position {
            *dims = None;
        }
    }
    raw.feed_forward.width = Some(WIDTH as usize);
    if let Some(experts) = &mut raw.experts {
        (experts.count, experts.active) = (EXPERTS as usize, 2);
        experts.width = None;
        experts.groups = None;
        experts.shared_width = experts.shared_width.map(|_| WIDTH as usize);
    }
    if let Some(nets) = &mut raw.delta_nets {
        nets.full_layers = FullLayers::Every { every: 2 };
    }
    TransformerConfig::try_from(raw).unwrap()
}

/// A model with every kind of parameter.
fn with_every_kind(init: Init) -> TransformerConfig {
    let raw = ModelConfig {
        init,
        bias: Biases::all(true),
        qk_norm: true,
        norm: Norm::Layer {
            bias: true,
            epsilon: 1e-5,
        },
        position: Position::Learned,
        feed_forward: FeedForward::gated(Activation::Silu).with_width(WIDTH as usize),
        head: Head {
            tied: false,
            bias: true,
            ..config(Family::Gpt2).head()
        },
        ..config(Family::Gpt2).raw()
    };
    TransformerConfig::try_from(raw).unwrap()
}

fn weights<B: Backend>(config: &TransformerConfig, seed: u64) -> Vec<(String, HostTensor)> {
    named_tensors::<B, _>(&config.init::<B>(seed, &Default::default()))
}

fn kind_of(path: &str, config: &TransformerConfig) -> ParameterKind {
    let kv_heads = config.kv_heads() as f64;
    let sizes = match path.trim_end_matches(".weight").trim_end_matches(".bias") {
        _ if path.contains(".delta.norm.") || path.ends_with(".delta.step_bias") => {
            return ParameterKind::Gain;
        }
        _ if path.ends_with(".delta.decay") => return ParameterKind::Decay,
        layer if layer.ends_with(".delta.convolution") => (4.0, D, false),
        layer if layer.ends_with(".delta.rates") => (D, HEADS_WIDTH, false),
        layer if layer.ends_with(".attention.gate") => (D, HEADS_WIDTH, false),
        // The gain is 1 + w.
        _ if path.ends_with("gain") && matches!(config.norm(), Norm::OffsetRms { .. }) => {
            return ParameterKind::NormBias;
        }
        _ if path.ends_with("gain") => return ParameterKind::Gain,
        _ if path.contains("norm") => return ParameterKind::NormBias,
        "tokens" => return ParameterKind::Embedding { rows: VOCAB },
        "positions" => return ParameterKind::Embedding { rows: SEQ_LEN },
        "head" | "head_bias" => (D, VOCAB, false),
        sinks if sinks.ends_with("attention.sinks") => return ParameterKind::NormBias,
        bias if bias.ends_with("choice_bias") => return ParameterKind::NormBias,
        layer if layer.ends_with("latent.q_up") => (RANK, HEADS_WIDTH, false),
        // Half of a head is not rotated.
        layer if layer.ends_with("latent.up") => (RANK, 1.5 * HEADS_WIDTH, false),
        layer if layer.ends_with("attention.qkv") && config.latent_attention().is_some() => {
            let latent = config.latent_attention().unwrap();
            let queries = latent.query_rank.map_or(HEADS_WIDTH, |_| RANK);
            (D, queries + RANK + 10.0, false)
        }
        layer if layer.ends_with("attention.qkv") => {
            (D, HEADS_WIDTH + 2.0 * kv_heads * 20.0, false)
        }
        layer if layer.ends_with("attention.out") => (HEADS_WIDTH, D, true),
        layer if layer.ends_with(".router") => (D, EXPERTS, false),
        layer if layer.ends_with("shared.gate") => (D, 1.0, false),
        layer if layer.contains("feed_forward") && layer.ends_with(".down") => (WIDTH, D, true),
        layer if layer.contains("feed_forward") && layer.ends_with(".up") => (D, WIDTH, false),
        layer if layer.contains("feed_forward") && layer.ends_with(".gate") => (D, WIDTH, false),
        other => panic!("{other} is in no row of the table"),
    };
    let (fan_in, out, residual) = sizes;
    match path.ends_with("bias") {
        true => ParameterKind::Bias { fan_in },
        false => ParameterKind::Linear {
            fan_in,
            out,
            residual,
        },
    }
}

/// Initialization of a family, and the number of parameters of a model with three layers.
fn expected(family: Family) -> (Scheme, usize) {
    match family {
        Family::Pocket => (fan_in, 14),
        Family::Vanilla => (fan_in, 41),
        Family::Prenorm => (fan_in, 41),
        Family::Cs336 => (truncated_xavier, 24),
        Family::Gpt2 => (gpt2, 40),
        Family::Gptj => (normal, 29),
        Family::GptNeox => (small, 40),
        Family::Llama => (normal, 24),
        Family::Mistral => (normal, 24),
        Family::Mixtral => (normal, 45),
        Family::Qwen2 => (normal, 26),
        Family::Qwen2Moe => (normal, 60),
        Family::Qwen3 => (normal, 29),
        Family::Qwen3Moe => (normal, 51),
        Family::Olmoe => (normal, 51),
        Family::Gemma2 => (normal, 29),
        Family::Olmo2 | Family::Olmo3 => (normal, 30),
        Family::Smollm3 | Family::Granite => (normal, 23),
        Family::Phi3 => (normal, 24),
        Family::GptOss => (normal, 84),
        Family::Qwen3Next => (normal, 72),
        Family::Qwen3_5Text => (normal, 39),
        Family::DeepseekV2 => (normal, 50),
        Family::DeepseekV3 => (normal, 36),
        Family::Glm4Moe => (normal, 49),
        Family::Glm4MoeLite => (normal, 58),
        Family::Gemma3Text => (normal, 35),
        Family::Starcoder2 => (starcoder2, 39),
        Family::Cohere => (normal, 20),
        Family::Glm4 => (normal, 33),
        Family::Bloom => (normal, 41),
        Family::Falcon => (normal, 21),
        Family::Palm => (le_cun, 20),
        other => unreachable!("{other:?} has no presets"),
    }
}

#[test]
fn every_family_is_initialized_as_published() {
    for family in Family::decoders() {
        let (scheme, parameters) = expected(family);
        check(family.name(), &config(family), parameters, scheme);
    }
}

#[test]
fn every_scheme_initializes_every_kind() {
    let of = |scale_residual| Init::Normal {
        std: 0.02,
        scale_residual,
    };
    let schemes: [(Init, Scheme); 6] = [
        (of(true), gpt2),
        (of(false), normal),
        (Init::FanIn, fan_in),
        (Init::LeCun, le_cun),
        (Init::TruncatedXavier, truncated_xavier),
        (Init::Small, small),
    ];
    for (init, scheme) in schemes {
        // Tokens, positions, head, head bias and two of the final norm; per block, five linear layers and four norms,
        // all with biases.
        check(
            &format!("{init:?}"),
            &with_every_kind(init),
            6 + 3 * 18,
            scheme,
        );
    }
}

/// Uses all tables, because a single one is too small to distinguish a truncated distribution from a normal one.
#[test]
fn truncated_normals_are_narrower() {
    let config = config(Family::Cs336);
    let mut scaled = Vec::new();
    for (path, tensor) in weights::<Flex>(&config, 1) {
        if let InitialDistribution::Truncated(std) = truncated_xavier(kind_of(&path, &config)) {
            scaled.extend(tensor.values.iter().map(|&x| f64::from(x) / std));
        }
    }
    let count = scaled.len() as f64;
    assert!(count > 300_000.0);
    let std = (scaled.iter().map(|x| x * x).sum::<f64>() / count).sqrt();
    assert!(
        (std - TRUNCATED_STD).abs() < 0.005,
        "{std:.5}, not {TRUNCATED_STD}"
    );
    let greatest = scaled.iter().fold(0f64, |max, x| max.max(x.abs()));
    assert!((2.99..=3.0 + 1e-6).contains(&greatest), "{greatest}");
}

#[test]
fn weights_depend_only_on_seed_on_every_backend() {
    for family in Family::decoders() {
        let config = config(family);
        let first = weights::<Flex>(&config, 1);
        assert_eq!(first, weights::<Flex>(&config, 1));
        assert_eq!(first, weights::<NdArray>(&config, 1));
        for ((path, one), (_, other)) in first.iter().zip(weights::<Flex>(&config, 2)) {
            let drawn = expected(family).0(kind_of(path, &config));
            let constant = matches!(drawn, InitialDistribution::Constant(_));
            let name = family.name();
            assert_eq!(one == &other, constant, "{name}: {path} of another seed");
        }
    }
}

#[test]
fn parameters_have_different_streams() {
    let weights = weights::<Flex>(&config(Family::Pocket), 1);
    for (i, (name, tensor)) in weights.iter().enumerate() {
        for (other_name, other) in &weights[..i] {
            // Two parameters from the same stream would be proportional and have the same ranks.
            let ratio = tensor.values[0] / other.values[0];
            let same = |n: usize| (tensor.values[n] / other.values[n] - ratio).abs() < 1e-4;
            assert!(!(same(1) && same(2)), "{name} and {other_name}");
        }
    }
}

fn check(name: &str, config: &TransformerConfig, parameters: usize, expected: Scheme) {
    let weights = weights::<Flex>(config, 1);
    assert_eq!(weights.len(), parameters, "{name}");
    for (path, tensor) in &weights {
        let (what, values) = (format!("{name}: {path}"), &tensor.values);
        let greatest = values
            .iter()
            .fold(0f64, |max, &x| max.max(f64::from(x.abs())));
        let many = values.len() > 10_000;
        match expected(kind_of(path, config)) {
            InitialDistribution::Constant(value) => {
                assert!(values.iter().all(|&x| x == value), "{what}")
            }
            InitialDistribution::Normal(std) => {
                check_moments(&what, values, std, 3.0);
                let share = greatest / std;
                assert!(!many || share > 3.1, "{what} ends at {share} deviations");
            }
            InitialDistribution::Truncated(std) => {
                check_moments(&what, values, TRUNCATED_STD * std, 2.83);
                let share = greatest / std;
                assert!(share <= 3.0 + 1e-6, "{what}: {share} deviations");
            }
            InitialDistribution::Uniform(bound) => {
                check_moments(&what, values, bound / 3f64.sqrt(), 1.8);
                let share = greatest / bound;
                assert!(share <= 1.0 + 1e-6, "{what}: {share} of the bound");
                assert!(!many || share > 0.99, "{what} ends at {share} of the bound");
            }
            InitialDistribution::Logarithm(largest) => {
                let numbers = values.iter().map(|&x| x.exp() - largest as f32 / 2.0);
                let numbers: Vec<f32> = numbers.collect();
                check_moments(&what, &numbers, largest / 12f64.sqrt(), 1.8);
                let most = values.iter().fold(f32::MIN, |most, &x| most.max(x));
                assert!(f64::from(most) < largest.ln() + 1e-6, "{what}: {most}");
            }
        }
    }
}

/// Checks the mean and standard deviation within five standard errors. `kurtosis` of the distribution determines the
/// standard error of the standard deviation.
fn check_moments(what: &str, values: &[f32], std: f64, kurtosis: f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let squares = values.iter().map(|&x| (f64::from(x) - mean).powi(2));
    let found = (squares.sum::<f64>() / count).sqrt();
    let mean_limit = 5.0 * std / count.sqrt();
    assert!(
        mean.abs() < mean_limit,
        "{what}: mean {mean:.2e}, limit {mean_limit:.2e}"
    );
    let error = (found / std - 1.0).abs();
    let limit = 5.0 * ((kurtosis - 1.0) / (4.0 * count)).sqrt();
    assert!(
        error < limit,
        "{what}: deviation {found:.5}, not {std:.5} within {limit:.3}"
    );
}

/// The head, the layers that write to the residual stream, and gates are zero; all other weights are as without the setting.
#[test]
fn chosen_layers_start_with_zeros() {
    let mut raw = config(Family::Pocket).raw();
    raw.value_embeddings = Some(ValueEmbeddings::default());
    let usual = weights::<Flex>(&TransformerConfig::try_from(raw.clone()).unwrap(), 1);
    raw.zero_init = vec![ZeroInit::Head, ZeroInit::Residual];
    let config = TransformerConfig::try_from(raw).unwrap();
    let mut zeros = Vec::new();
    for ((path, found), (_, usual)) in weights::<Flex>(&config, 1).into_iter().zip(usual) {
        if found.values.iter().all(|&x| x == 0.0) {
            zeros.push(path);
        } else {
            assert_eq!(found.values, usual.values, "{path}");
        }
    }
    let expected = [
        "blocks.0.attention.out.weight",
        "blocks.0.feed_forward.down.weight",
        "blocks.1.attention.out.weight",
        "blocks.1.attention.values.gate",
        "blocks.1.feed_forward.down.weight",
        "blocks.2.attention.out.weight",
        "blocks.2.feed_forward.down.weight",
        "head",
    ];
    zeros.sort();
    assert_eq!(zeros, expected);
}

/// A weight that is the result of an operation, as one that is scaled after its initialization, would have no gradient.
#[test]
fn every_parameter_of_a_new_model_is_trained() {
    type Training = Autodiff<Flex>;
    fn check(name: &str, parameters: &Parameters) {
        for parameter in parameters.iter() {
            // It is not trained by gradients.
            let is_bias = parameter.path.ends_with("choice_bias");
            assert_ne!(parameter.trainable, is_bias, "{name}: {}", parameter.path);
        }
    }
    let device = Default::default();
    for family in Family::decoders() {
        let decoder = config(family).init::<Training>(1, &device);
        check(family.name(), &decoder.parameters());
    }
    let encoder = TransformerConfig::try_from(EncoderSettings::nano(30)).unwrap();
    check(
        "encoder",
        &encoder.init::<Training>(1, &device).parameters(),
    );
    for init_factor in [1.0, 0.5] {
        let settings = EncoderDecoderSettings {
            init_factor,
            ..EncoderDecoderSettings::nano(30)
        };
        let model = TransformerConfig::try_from(settings).unwrap();
        let parameters = model.init::<Training>(1, &device).parameters();
        check("encoder-decoder", &parameters);
    }
}
