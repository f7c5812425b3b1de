//! The sampler: what it may draw, how often, and what it refuses.

#![allow(clippy::unwrap_used, missing_docs)]

use emberlm_generate::{LogitsError, Sampler, SamplerConfig};

const LOGITS: [f32; 6] = [1.0, -0.5, 2.0, 0.3, 2.0, -3.0];
const DRAWS: usize = 20_000;

fn config(temperature: f64, top_k: usize, top_p: f64) -> SamplerConfig {
    SamplerConfig {
        temperature,
        top_k,
        top_p,
        seed: 11,
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

/// Softmax at a temperature over some of the logits.
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

/// Pearson's χ², which for five degrees of freedom exceeds 30 once in 70,000 samples; nothing impossible is drawn.
fn assert_drawn_from(counts: &[usize], probabilities: &[f64]) {
    let mut squared = 0.0;
    for (id, (&count, probability)) in counts.iter().zip(probabilities).enumerate() {
        let expected = probability * DRAWS as f64;
        if expected == 0.0 {
            assert_eq!(count, 0, "token {id} was dropped");
        } else {
            squared += (count as f64 - expected).powi(2) / expected;
        }
    }
    assert!(
        squared < 30.0,
        "χ² = {squared:.1}: {counts:?}, expected {probabilities:?}"
    );
}

#[test]
fn frequencies_match_the_distribution() {
    for temperature in [0.5, 1.0, 1.7] {
        let found = counts(config(temperature, 0, 1.0), &LOGITS);
        assert_drawn_from(&found, &probabilities(&[0, 1, 2, 3, 4, 5], temperature));
    }
}

#[test]
fn top_k_keeps_the_likeliest() {
    let found = counts(config(0.8, 3, 1.0), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[0, 2, 4], 0.8));
    // Of equals at the border, the lower id.
    let found = counts(config(1.0, 2, 1.0), &[0.0, 1.0, 1.0, 1.0]);
    assert_eq!((found[0], found[3]), (0, 0));
    // More than there are is all.
    let found = counts(config(1.0, 100, 1.0), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[0, 1, 2, 3, 4, 5], 1.0));
}

// By hand, at temperature 1: e²/z = 0.3691 twice, then 0.1358, 0.0674, 0.0303, 0.0025.
#[test]
fn top_p_keeps_the_fewest_that_reach_it() {
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

// Temperature first: at 0.5 the two likeliest hold 0.87 of the whole, where at 1 they hold 0.74.
#[test]
fn the_order_is_temperature_then_top_k_then_top_p() {
    let found = counts(config(0.5, 0, 0.8), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4], 0.5));
    // Top-k first: of the three kept, two hold 0.845, though of all they hold 0.738.
    let found = counts(config(1.0, 3, 0.8), &LOGITS);
    assert_drawn_from(&found, &probabilities(&[2, 4], 1.0));
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut sampler = Sampler::new(SamplerConfig::greedy()).unwrap();
    assert_eq!(sampler.sample(&LOGITS), Ok(2));
    assert_eq!(sampler.sample(&[0.0, 0.0]), Ok(0));
    assert_eq!(sampler.sample(&[-0.0, 0.0]), Ok(0));
    let mut sampler = Sampler::new(config(1.3, 1, 1.0)).unwrap();
    assert_eq!(sampler.sample(&LOGITS), Ok(2));
}

#[test]
fn extreme_settings_and_logits_are_no_trouble() {
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
fn the_seed_decides() {
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

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let temperature = "must be 0 (greedy) or above, and finite";
    let top_p = "must be above 0 and at most 1 (all tokens)";
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
    ] {
        assert_eq!(Sampler::new(bad).unwrap_err().to_string(), expected);
    }
}

#[test]
fn logits_that_are_no_numbers_are_refused() {
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
