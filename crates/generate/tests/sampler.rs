//! The sampler: allowed tokens, their frequencies, and rejected settings.

use crate::support::{DRAWS, assert_drawn_from};
use emberlm_generate::{LogitsError, Sampler, SamplerConfig};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LOGITS: [f32; 6] = [1.0, -0.5, 2.0, 0.3, 2.0, -3.0];

fn config(temperature: f64, top_k: usize, top_p: f64) -> SamplerConfig {
    SamplerConfig {
        temperature,
        top_k,
        top_p,
        seed: 11,
        ..SamplerConfig::default()
    }
}

fn counts(config: SamplerConfig, logits: &[f32]) -> Vec<usize> {
    let mut sampler = Sampler::new(config).unwrap();
    let mut counts = vec![0; logits.len()];
    for _ in 0..DRAWS {
        counts[sampler.sample(logits).unwrap() as usize] += 1;
    }
    counts
}

/// Softmax at a temperature over a subset of the logits.
fn probabilities(kept: &[usize], temperature: f64) -> Vec<f64> {
    let weight = |id: usize| (f64::from(LOGITS[id]) / temperature).exp();
    let total: f64 = kept.iter().map(|&id| weight(id)).sum();
    let probability = |id| {
        if kept.contains(&id) {
            weight(id) / total
        } else {
            0.0
        }
    };
    (0..LOGITS.len()).map(probability).collect()
}

#[test]
fn frequencies_match_the_distribution() {
    for temperature in [0.5, 1.0, 1.7] {
        let found = counts(config(temperature, 0, 1.0), &LOGITS);
        assert_drawn_from(&found, &probabilities(&[0, 1, 2, 3, 4, 5], temperature));
    }
}

#[test]
fn top_k_keeps_the_most_probable_tokens() {
    let found = counts(config(0.8, 3, 1.0), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[0, 2, 4], 0.8));
    // Ties at the cutoff go to the lower id.
    let found = counts(config(1.0, 2, 1.0), &[0.0, 1.0, 1.0, 1.0]);
    assert_eq!((found[0], found[3]), (0, 0));
    // A larger k keeps all tokens.
    let found = counts(config(1.0, 100, 1.0), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[0, 1, 2, 3, 4, 5], 1.0));
}

// By hand, at temperature 1: e²/z = 0.3691 twice, then 0.1358, 0.0674, 0.0303, 0.0025.
#[test]
fn top_p_keeps_the_smallest_sufficient_set() {
    for (top_p, kept) in [
        (0.01, &[2][..]),
        (0.5, &[2, 4]),
        (0.73, &[2, 4]),
        (0.8, &[2, 4, 0]),
        (0.9, &[2, 4, 0, 3]),
        (0.99, &[2, 4, 0, 3, 1]),
    ] {
        let found = counts(config(1.0, 0, top_p), &LOGITS);
        assert_drawn_from(&found, &probabilities(kept, 1.0));
    }
}

fn with_min_p(settings: SamplerConfig, min_p: f64) -> SamplerConfig {
    SamplerConfig { min_p, ..settings }
}

// By hand, relative to e² of the most probable: 1 twice, then e⁻¹ = 0.3679, e^-1.7 = 0.1827, e^-2.5 = 0.0821,
// e⁻⁵ = 0.0067.
#[test]
fn min_p_keeps_tokens_near_the_most_probable() {
    for (min_p, kept) in [
        (1.0, &[2, 4][..]),
        (0.37, &[2, 4]),
        (0.36, &[2, 4, 0]),
        (0.1, &[2, 4, 0, 3]),
        (0.0821, &[2, 4, 0, 3]),
        (0.082, &[2, 4, 0, 3, 1]),
        (0.0, &[2, 4, 0, 3, 1, 5]),
    ] {
        let found = counts(with_min_p(config(1.0, 0, 1.0), min_p), &LOGITS);
        assert_drawn_from(&found, &probabilities(kept, 1.0));
    }
    // Applied after temperature: at 2, the third has e^-0.5 = 0.607 of the highest probability.
    let found = counts(with_min_p(config(2.0, 0, 1.0), 0.6), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4, 0], 2.0));
    // Applied after top-p: of all tokens, two hold 0.738 and three 0.874, so 0.84 keeps three. Of the three
    // that min-p would keep, two hold 0.845.
    let found = counts(with_min_p(config(1.0, 0, 0.84), 0.3), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4, 0], 1.0));
    // Combined with top-k.
    let found = counts(with_min_p(config(1.0, 4, 1.0), 0.3), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4, 0], 1.0));
}

// Temperature applies first: at 0.5 the two most probable tokens hold 0.87, at 1 only 0.74.
#[test]
fn filters_apply_in_the_documented_order() {
    let found = counts(config(0.5, 0, 0.8), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4], 0.5));
    // Top-k applies before top-p: of the three kept, two hold 0.845, but of all tokens only 0.738.
    let found = counts(config(1.0, 3, 0.8), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4], 1.0));
}

#[test]
fn greedy_breaks_ties_by_the_lowest_id() {
    let mut sampler = Sampler::new(SamplerConfig::greedy()).unwrap();
    assert_eq!(sampler.sample(&LOGITS), Ok(2));
    assert_eq!(sampler.sample(&[0.0, 0.0]), Ok(0));
    assert_eq!(sampler.sample(&[-0.0, 0.0]), Ok(0));
    let mut sampler = Sampler::new(config(1.3, 1, 1.0)).unwrap();
    assert_eq!(sampler.sample(&LOGITS), Ok(2));
}

#[test]
fn extreme_settings_and_logits_are_accepted() {
    let wide = [f32::MAX, f32::MIN, 0.0];
    for temperature in [f64::MIN_POSITIVE, 1e-300, 1e-3, 1e3, f64::MAX] {
        let mut sampler = Sampler::new(config(temperature, 2, 0.9)).unwrap();
        assert!(sampler.sample(&wide).unwrap() < 3);
        assert!(sampler.sample(&[5.0]).unwrap() == 0);
    }
    let mut sampler = Sampler::new(config(1.0, 0, f64::MIN_POSITIVE)).unwrap();
    assert_eq!(sampler.sample(&LOGITS), Ok(2));
}

#[test]
fn the_seed_determines_samples() {
    let draw = |seed| {
        let settings = SamplerConfig {
            seed,
            ..SamplerConfig::default()
        };
        let mut sampler = Sampler::new(settings).unwrap();
        let tokens = (0..50).map(|_| sampler.sample(&LOGITS).unwrap());
        tokens.collect::<Vec<_>>()
    };
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}

/// Of four equal logits, the token whose quarter contains the generator's number.
#[test]
fn a_stream_follows_its_generator() {
    for stream in [0, 1, 7, u64::MAX] {
        let mut generator = ChaCha8Rng::seed_from_u64(11);
        generator.set_stream(stream);
        let mut sampler = Sampler::with_stream(config(1.0, 0, 1.0), stream).unwrap();
        for _ in 0..100 {
            let expected = (generator.random::<f64>() * 4.0) as u32;
            assert_eq!(sampler.sample(&[0.5; 4]), Ok(expected));
        }
    }
    // By default, the first stream.
    let mut first = Sampler::with_stream(config(1.0, 0, 1.0), 0).unwrap();
    let mut plain = Sampler::new(config(1.0, 0, 1.0)).unwrap();
    for _ in 0..100 {
        assert_eq!(plain.sample(&LOGITS), first.sample(&LOGITS));
    }
}

#[test]
fn streams_are_independent() {
    let logits = [0.0, 1.0, -0.5];
    let one = crate::support::softmax(&[0.0, 1.0, -0.5], 1.0);
    let pairs: Vec<f64> = one
        .iter()
        .flat_map(|a| one.iter().map(move |b| a * b))
        .collect();
    let mut streams = [0, 1].map(|n| Sampler::with_stream(config(1.0, 0, 1.0), n).unwrap());
    let mut found = vec![0; 9];
    for _ in 0..DRAWS {
        let [a, b] = streams
            .each_mut()
            .map(|s| s.sample(&logits).unwrap() as usize);
        found[a * 3 + b] += 1;
    }
    assert_drawn_from(&found, &pairs);
}

#[test]
fn settings_out_of_range_are_rejected_by_name() {
    let temperature = "must be at least 0 and finite";
    let top_p = "must be above 0 and at most 1";
    let min_p = "must be from 0 to 1";
    let all = config(1.0, 0, 1.0);
    for (bad, expected) in [
        (
            config(-0.5, 0, 1.0),
            format!("temperature = -0.5: {temperature}"),
        ),
        (
            config(f64::NAN, 0, 1.0),
            format!("temperature = NaN: {temperature}"),
        ),
        (
            config(f64::INFINITY, 0, 1.0),
            format!("temperature = inf: {temperature}"),
        ),
        (config(1.0, 0, 0.0), format!("top_p = 0: {top_p}")),
        (config(1.0, 0, 1.5), format!("top_p = 1.5: {top_p}")),
        (config(1.0, 0, f64::NAN), format!("top_p = NaN: {top_p}")),
        (with_min_p(all, -0.1), format!("min_p = -0.1: {min_p}")),
        (with_min_p(all, 1.1), format!("min_p = 1.1: {min_p}")),
        (with_min_p(all, f64::NAN), format!("min_p = NaN: {min_p}")),
    ] {
        assert_eq!(Sampler::new(bad).unwrap_err().to_string(), expected);
    }
}

#[test]
fn non_finite_logits_are_rejected() {
    for settings in [SamplerConfig::greedy(), config(1.0, 2, 0.9)] {
        let mut sampler = Sampler::new(settings).unwrap();
        assert_eq!(sampler.sample(&[]), Err(LogitsError::Empty));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = sampler.sample(&[0.0, value, 1.0]).unwrap_err();
            let value = value.to_string();
            assert_eq!(error, LogitsError::NotFinite { id: 1, value });
        }
    }
}
