//! The initial weights against the table in `init.rs`: means and deviations of each part, for every family and every
//! scheme, seeds and backends. What is expected is computed here, by hand from the table and the papers that it names.

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::config::{Biases, FeedForward, Head, Init, ModelConfig, Norm, Position};
use emberlm_model::weights::{HostTensor, named_tensors};
use emberlm_model::{Activation, DecoderConfig, Family};

const VOCAB: f64 = 300.0;
const SEQ_LEN: f64 = 128.0;
const D: f64 = 96.0;
/// Of all query heads together: not the width of the model.
const MIXED: f64 = 120.0;
const WIDTH: f64 = 200.0;
const LAYERS: f64 = 3.0;

/// The standard deviation of a normal distribution that is cut at three standard deviations: √(1 - 6φ(3) / (2Φ(3) - 1)).
const CUT: f64 = 0.98658;

/// A family's parts at small sizes.
fn config(family: Family) -> DecoderConfig {
    let mut raw = family.presets().swap_remove(0).config;
    raw.vocab_size = Some(VOCAB as usize);
    raw.seq_len = SEQ_LEN as usize;
    raw.d_model = D as usize;
    raw.n_layers = LAYERS as usize;
    raw.kv_heads = raw.kv_heads.map(|_| 2);
    raw.heads = 6;
    raw.head_dim = Some(MIXED as usize / 6);
    if let Position::Rotary { dims, .. } = &mut raw.position {
        *dims = dims.map(|dims| dims.min(4));
    }
    raw.feed_forward.width = Some(WIDTH as usize);
    DecoderConfig::try_from(raw).unwrap()
}

/// A model with a parameter of every kind.
fn with_every_part(init: Init) -> DecoderConfig {
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
    DecoderConfig::try_from(raw).unwrap()
}

fn weights<B: Backend>(config: &DecoderConfig, seed: u64) -> Vec<(String, HostTensor)> {
    named_tensors::<B, _>(&config.init::<B>(seed, &Default::default()))
}

/// The kind of a parameter, by its path.
enum Part {
    Embedding {
        rows: f64,
    },
    Map {
        fan_in: f64,
        out: f64,
        residual: bool,
    },
    Bias {
        fan_in: f64,
    },
    Gain,
    NormBias,
}

fn part(path: &str, config: &DecoderConfig) -> Part {
    let kv_heads = config.kv_heads() as f64;
    let map = match path.trim_end_matches(".weight").trim_end_matches(".bias") {
        // Its gain is 1 + w.
        _ if path.ends_with("gain") && matches!(config.norm(), Norm::OffsetRms { .. }) => {
            return Part::NormBias;
        }
        _ if path.ends_with("gain") => return Part::Gain,
        _ if path.contains("norm") => return Part::NormBias,
        "tokens" => return Part::Embedding { rows: VOCAB },
        "positions" => return Part::Embedding { rows: SEQ_LEN },
        "head" | "head_bias" => (D, VOCAB, false),
        map if map.ends_with("attention.qkv") => (D, MIXED + 2.0 * kv_heads * 20.0, false),
        map if map.ends_with("attention.out") => (MIXED, D, true),
        map if map.ends_with("feed_forward.down") => (WIDTH, D, true),
        map if map.ends_with("feed_forward.up") => (D, WIDTH, false),
        map if map.ends_with("feed_forward.gate") => (D, WIDTH, false),
        other => panic!("{other} is in no row of the table"),
    };
    let (fan_in, out, residual) = map;
    match path.ends_with("bias") {
        true => Part::Bias { fan_in },
        false => Part::Map {
            fan_in,
            out,
            residual,
        },
    }
}

/// The distribution of a parameter, by its standard deviation or its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Drawn {
    Constant(f32),
    Normal(f64),
    /// Cut at three of these.
    Truncated(f64),
    Uniform(f64),
}

/// A column of the table.
type Scheme = fn(Part) -> Drawn;

/// Radford et al. 2019: 0.02, and 1/√N of it in the N = 2 · layers maps into the residual stream.
fn gpt2(part: Part) -> Drawn {
    match part {
        Part::Map { residual: true, .. } => Drawn::Normal(0.02 / 6f64.sqrt()),
        other => normal(other),
    }
}

fn normal(part: Part) -> Drawn {
    match part {
        Part::Embedding { .. } | Part::Map { .. } => Drawn::Normal(0.02),
        Part::Bias { .. } | Part::NormBias => Drawn::Constant(0.0),
        Part::Gain => Drawn::Constant(1.0),
    }
}

/// Lozhkov et al. 2024: the `initializer_range` of the published models.
fn starcoder2(part: Part) -> Drawn {
    match normal(part) {
        Drawn::Normal(_) => Drawn::Normal(0.018042),
        other => other,
    }
}

/// PyTorch's `Embedding` and `Linear`.
fn fan_in(part: Part) -> Drawn {
    match part {
        Part::Embedding { .. } => Drawn::Normal(1.0),
        Part::Map { fan_in, .. } | Part::Bias { fan_in } => Drawn::Uniform(1.0 / fan_in.sqrt()),
        other => normal(other),
    }
}

/// Chowdhery et al. 2022, section 5.
fn le_cun(part: Part) -> Drawn {
    match part {
        Part::Embedding { .. } => Drawn::Normal(1.0),
        Part::Map { fan_in, .. } => Drawn::Normal((1.0 / fan_in).sqrt()),
        other => normal(other),
    }
}

/// Glorot and Bengio 2010, cut.
fn truncated_xavier(part: Part) -> Drawn {
    match part {
        Part::Embedding { rows } => Drawn::Truncated((2.0 / (rows + D)).sqrt()),
        Part::Map { fan_in, out, .. } => Drawn::Truncated((2.0 / (fan_in + out)).sqrt()),
        other => normal(other),
    }
}

/// Nguyen and Salazar 2019; into the residual stream Wang and Komatsuzaki 2021.
fn small(part: Part) -> Drawn {
    match part {
        Part::Map { residual: true, .. } => Drawn::Normal(2.0 / (LAYERS * D.sqrt())),
        Part::Embedding { .. } | Part::Map { .. } => Drawn::Normal((2.0 / (5.0 * D)).sqrt()),
        other => normal(other),
    }
}

/// Each family's scheme, and how many parameters three of its layers have.
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
        Family::Qwen2 => (normal, 26),
        Family::Qwen3 => (normal, 29),
        Family::Gemma2 => (normal, 29),
        Family::Olmo2 | Family::Olmo3 => (normal, 30),
        Family::Smollm3 | Family::Granite => (normal, 23),
        Family::Phi3 => (normal, 24),
        Family::Gemma3Text => (normal, 35),
        Family::Starcoder2 => (starcoder2, 39),
        Family::Cohere => (normal, 20),
        Family::Glm4 => (normal, 33),
        Family::Bloom => (normal, 41),
        Family::Falcon => (normal, 21),
        Family::Palm => (le_cun, 20),
    }
}

#[test]
fn every_family_starts_as_its_paper_says() {
    for family in Family::ALL {
        let (scheme, parameters) = expected(family);
        check(family.name(), &config(family), parameters, scheme);
    }
}

#[test]
fn every_scheme_draws_every_part() {
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
        // Tokens, positions, head, its bias and the last norm's two; of a block five maps and four norms, all with
        // biases.
        check(
            &format!("{init:?}"),
            &with_every_part(init),
            6 + 3 * 18,
            scheme,
        );
    }
}

/// Of all tables together: a single one is too small to distinguish the cut distribution from the whole one.
#[test]
fn cut_normals_are_narrower() {
    let config = config(Family::Cs336);
    let mut scaled = Vec::new();
    for (path, tensor) in weights::<Flex>(&config, 1) {
        if let Drawn::Truncated(std) = truncated_xavier(part(&path, &config)) {
            scaled.extend(tensor.values.iter().map(|&x| f64::from(x) / std));
        }
    }
    let count = scaled.len() as f64;
    assert!(count > 300_000.0);
    let std = (scaled.iter().map(|x| x * x).sum::<f64>() / count).sqrt();
    assert!((std - CUT).abs() < 0.005, "{std:.5}, not {CUT}");
    let greatest = scaled.iter().fold(0f64, |max, x| max.max(x.abs()));
    assert!((2.99..=3.0 + 1e-6).contains(&greatest), "{greatest}");
}

#[test]
fn the_seed_alone_decides_on_every_backend() {
    for family in Family::ALL {
        let config = config(family);
        let first = weights::<Flex>(&config, 1);
        assert_eq!(first, weights::<Flex>(&config, 1));
        assert_eq!(first, weights::<NdArray>(&config, 1));
        for ((path, one), (_, other)) in first.iter().zip(weights::<Flex>(&config, 2)) {
            let drawn = expected(family).0(part(path, &config));
            let constant = matches!(drawn, Drawn::Constant(_));
            let name = family.name();
            assert_eq!(one == &other, constant, "{name}: {path} of another seed");
        }
    }
}

#[test]
fn no_two_parameters_are_drawn_alike() {
    let weights = weights::<Flex>(&config(Family::Pocket), 1);
    for (i, (name, tensor)) in weights.iter().enumerate() {
        for (other_name, other) in &weights[..i] {
            // The scale aside, the same stream would give the same order of sizes.
            let ratio = tensor.values[0] / other.values[0];
            let same = |n: usize| (tensor.values[n] / other.values[n] - ratio).abs() < 1e-4;
            assert!(!(same(1) && same(2)), "{name} and {other_name}");
        }
    }
}

fn check(name: &str, config: &DecoderConfig, parameters: usize, expected: Scheme) {
    let weights = weights::<Flex>(config, 1);
    assert_eq!(weights.len(), parameters, "{name}");
    for (path, tensor) in &weights {
        let (what, values) = (format!("{name}: {path}"), &tensor.values);
        let greatest = values
            .iter()
            .fold(0f64, |max, &x| max.max(f64::from(x.abs())));
        let many = values.len() > 10_000;
        match expected(part(path, config)) {
            Drawn::Constant(value) => assert!(values.iter().all(|&x| x == value), "{what}"),
            Drawn::Normal(std) => {
                check_moments(&what, values, std, 3.0);
                let share = greatest / std;
                assert!(!many || share > 3.1, "{what} ends at {share} deviations");
            }
            Drawn::Truncated(std) => {
                check_moments(&what, values, CUT * std, 2.83);
                let share = greatest / std;
                assert!(share <= 3.0 + 1e-6, "{what}: {share} deviations");
            }
            Drawn::Uniform(bound) => {
                check_moments(&what, values, bound / 3f64.sqrt(), 1.8);
                let share = greatest / bound;
                assert!(share <= 1.0 + 1e-6, "{what}: {share} of the bound");
                assert!(!many || share > 0.99, "{what} ends at {share} of the bound");
            }
        }
    }
}

/// Mean and deviation within five standard errors; `kurtosis` is the distribution's, for the deviation's own error.
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
