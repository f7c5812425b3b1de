//! The first weights against the table in `init.rs`: means and deviations of each part, seeds, backends.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::weights::{HostTensor, named_tensors};
use emberlm_model::{DecoderConfig, families};

const D_MODEL: usize = 96;
const WIDTH: usize = 384;
const LAYERS: usize = 3;

fn config(preset: &str) -> DecoderConfig {
    let mut raw = families::preset(preset).unwrap().config;
    raw.vocab_size = 300;
    raw.seq_len = 128;
    raw.d_model = D_MODEL;
    raw.n_layers = LAYERS;
    raw.kv_heads = if raw.kv_heads < raw.heads { 2 } else { 6 };
    raw.heads = 6;
    let mut config = DecoderConfig::try_from(raw).unwrap().raw().clone();
    if let emberlm_model::config::FeedForward::Dense { width, .. } = &mut config.feed_forward {
        *width = WIDTH;
    }
    DecoderConfig::try_from(config).unwrap()
}

fn weights<B: Backend>(config: &DecoderConfig, seed: u64) -> Vec<(String, HostTensor)> {
    named_tensors::<B, _>(&config.init::<B>(seed, &Default::default()))
}

/// What a parameter is drawn from.
enum Drawn {
    Constant(f32),
    Normal(f64),
    Uniform(f64),
}

fn gpt2(path: &str) -> Drawn {
    match path.rsplit_once('.').map_or(path, |(_, last)| last) {
        "gain" => Drawn::Constant(1.0),
        "bias" => Drawn::Constant(0.0),
        _ if path.ends_with("attention.out.weight") || path.ends_with("down.weight") => {
            Drawn::Normal(0.02 / (2.0 * LAYERS as f64).sqrt())
        }
        _ => Drawn::Normal(0.02),
    }
}

fn pocket(path: &str) -> Drawn {
    match path {
        "tokens" => Drawn::Normal(1.0),
        _ if path.ends_with("down.weight") => Drawn::Uniform(1.0 / (WIDTH as f64).sqrt()),
        _ => Drawn::Uniform(1.0 / (D_MODEL as f64).sqrt()),
    }
}

/// `fan_in` with biases on every map: a bias is drawn by its map's inputs.
fn fan_in(path: &str) -> Drawn {
    match path {
        _ if path.ends_with("gain") => Drawn::Constant(1.0),
        _ if path.contains("norm") => Drawn::Constant(0.0),
        "tokens" | "positions.weight" => Drawn::Normal(1.0),
        _ if path.contains("down") => Drawn::Uniform(1.0 / (WIDTH as f64).sqrt()),
        _ => Drawn::Uniform(1.0 / (D_MODEL as f64).sqrt()),
    }
}

#[test]
fn gpt2_is_normal_with_small_residual_maps() {
    check(&config("gpt2"), 40, gpt2);
}

#[test]
fn pocket_has_pytorchs_defaults() {
    check(&config("pocket"), 14, pocket);
}

#[test]
fn fan_in_draws_biases_too() {
    let mut raw = config("gpt2").raw().clone();
    raw.init = emberlm_model::config::Init::FanIn;
    check(&DecoderConfig::try_from(raw).unwrap(), 40, fan_in);
}

#[test]
fn the_seed_alone_decides_on_every_backend() {
    for preset in ["gpt2", "pocket"] {
        let config = config(preset);
        let first = weights::<Flex>(&config, 1);
        assert_eq!(first, weights::<Flex>(&config, 1));
        assert_eq!(first, weights::<NdArray>(&config, 1));
        for ((name, one), (_, other)) in first.iter().zip(weights::<Flex>(&config, 2)) {
            let constant = name.ends_with("gain") || name.ends_with("bias");
            assert_eq!(one == &other, constant, "{name} of another seed");
        }
    }
}

#[test]
fn no_two_parameters_are_drawn_alike() {
    let weights = weights::<Flex>(&config("pocket"), 1);
    for (i, (name, tensor)) in weights.iter().enumerate() {
        for (other_name, other) in &weights[..i] {
            // The scale aside, the same stream would give the same order of sizes.
            let ratio = tensor.values[0] / other.values[0];
            let same = |n: usize| (tensor.values[n] / other.values[n] - ratio).abs() < 1e-4;
            assert!(!(same(1) && same(2)), "{name} and {other_name}");
        }
    }
}

fn check(config: &DecoderConfig, parameters: usize, expected: fn(&str) -> Drawn) {
    let weights = weights::<Flex>(config, 1);
    assert_eq!(weights.len(), parameters);
    for (path, tensor) in &weights {
        let values = &tensor.values;
        match expected(path) {
            Drawn::Constant(value) => assert!(values.iter().all(|&x| x == value), "{path}"),
            Drawn::Normal(std) => check_moments(path, values, std, 3.0),
            Drawn::Uniform(bound) => {
                check_moments(path, values, bound / 3f64.sqrt(), 1.8);
                let greatest = values.iter().fold(0f32, |max, x| max.max(x.abs()));
                let share = f64::from(greatest) / bound;
                assert!(share <= 1.0 + 1e-6, "{path}: {share} of the bound");
            }
        }
    }
}

/// Mean and deviation within five standard errors; `kurtosis` is the distribution's, for the deviation's own error.
fn check_moments(path: &str, values: &[f32], std: f64, kurtosis: f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let squares = values.iter().map(|&x| (f64::from(x) - mean).powi(2));
    let found = (squares.sum::<f64>() / count).sqrt();
    let mean_limit = 5.0 * std / count.sqrt();
    assert!(
        mean.abs() < mean_limit,
        "{path}: mean {mean:.2e}, limit {mean_limit:.2e}"
    );
    let error = (found / std - 1.0).abs();
    let limit = 5.0 * ((kurtosis - 1.0) / (4.0 * count)).sqrt();
    assert!(
        error < limit,
        "{path}: deviation {found:.5}, not {std:.5} within {limit:.3}"
    );
}
