//! Choosing tokens with penalties, bias and log-probabilities: compared with values computed by hand or in
//! f64 from the published formulas, and with sampled frequencies.

use crate::support::{DRAWS, assert_drawn_from, softmax};
use emberlm_generate::{
    Chooser, ChooserConfig, LogitsError, Sampler, SamplerConfig, SamplingDefaults, SettingError,
};

const LOGITS: [f32; 5] = [2.0, -1.0, 0.5, 0.0, 1.0];

fn penalties(repetition: f64, presence: f64, frequency: f64) -> ChooserConfig {
    let penalties = SamplingDefaults {
        repetition_penalty: Some(repetition),
        presence_penalty: Some(presence),
        frequency_penalty: Some(frequency),
        ..SamplingDefaults::default()
    };
    penalties.chooser(0)
}

fn chooser(config: &ChooserConfig, prompt: &[u32], stream: u64) -> Chooser {
    Chooser::new(config, prompt, LOGITS.len(), stream).unwrap()
}

/// Counts of each token sampled from `LOGITS` after `prompt` and `made`, each draw from its own stream.
fn counts(config: &ChooserConfig, prompt: &[u32], made: &[u32]) -> Vec<usize> {
    let mut counts = vec![0; LOGITS.len()];
    for stream in 0..DRAWS as u64 {
        let mut chooser = chooser(config, prompt, stream);
        for &id in made {
            // All other tokens have probability 0.
            let mut logits = [0.0; LOGITS.len()];
            logits[id as usize] = 1e6;
            assert_eq!(chooser.choose(&logits).unwrap().id, id);
        }
        counts[chooser.choose(&LOGITS).unwrap().id as usize] += 1;
    }
    counts
}

/// Keskar et al. 2019, equation 1, with negative logits multiplied as in their code: 2 / 1.5, -1 · 1.5, 0 ·
/// 1.5. OpenAI:
/// `mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence`.
#[test]
fn penalties_match_the_published_formulas() {
    let prompt = [0, 3];
    let made = [1, 4, 1];
    for (config, expected) in [
        (penalties(1.0, 0.0, 0.0), [2.0, -1.0, 0.5, 0.0, 1.0]),
        (
            penalties(1.5, 0.0, 0.0),
            [2.0 / 1.5, -1.5, 0.5, 0.0, 1.0 / 1.5],
        ),
        (penalties(0.5, 0.0, 0.0), [4.0, -0.5, 0.5, 0.0, 2.0]),
        (penalties(1.0, 0.75, 0.0), [2.0, -1.75, 0.5, 0.0, 0.25]),
        (penalties(1.0, 0.0, 0.5), [2.0, -2.0, 0.5, 0.0, 0.5]),
        (penalties(1.0, -1.0, -0.25), [2.0, 0.5, 0.5, 0.0, 2.25]),
        // The repetition penalty applies first: 1 / 2 - 0.5 - 0.25, not (1 - 0.75) / 2.
        (penalties(2.0, 0.25, 0.5), [1.0, -3.25, 0.5, 0.0, -0.25]),
    ] {
        let found = counts(&config, &prompt, &made);
        assert_drawn_from(&found, &softmax(&expected, 1.0));
    }
}

#[test]
fn bias_is_added_before_penalties() {
    let mut config = penalties(2.0, 0.0, 0.0);
    config.logit_bias = vec![(1, 3.0), (4, -100.0), (2, -1.5)];
    // -1 + 3 is positive, so the penalty divides it.
    let expected = [1.0, 1.0, -1.0, 0.0, -99.0 * 2.0];
    let found = counts(&config, &[0, 1, 4], &[]);
    let mut expected = softmax(&expected, 1.0);
    assert!(expected[4] < 1e-40);
    expected[4] = 0.0;
    assert_drawn_from(&found, &expected);
}

/// With log-probabilities of the model's own distribution.
#[test]
fn delayed_tokens_follow_the_others() {
    let config = ChooserConfig {
        sampler: SamplerConfig::greedy(),
        delayed: vec![(0, 2), (4, 1), (1, usize::MAX), (9, usize::MAX)],
        top_logprobs: Some(1),
        ..ChooserConfig::default()
    };
    let mut chooser = chooser(&config, &[0], 0);
    let made = [0; 4].map(|_| chooser.choose(&LOGITS).unwrap());
    // The most probable token is 0, then 4, then 2.
    assert_eq!(made.each_ref().map(|chosen| chosen.id), [2, 4, 0, 0]);
    assert_eq!(made[0].alternatives[0].0, 0);
    // The rest is sampled from the distribution of the others.
    let config = ChooserConfig {
        delayed: vec![(0, 2), (4, 1)],
        ..ChooserConfig::default()
    };
    let mut expected = LOGITS.map(f64::from);
    (expected[0], expected[4]) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    assert_drawn_from(&counts(&config, &[], &[]), &softmax(&expected, 1.0));
    expected[4] = LOGITS[4].into();
    assert_drawn_from(&counts(&config, &[], &[2]), &softmax(&expected, 1.0));
    // Without others, a delayed token is chosen.
    let all = ChooserConfig {
        sampler: SamplerConfig::greedy(),
        delayed: (0..5).chain(0..5).map(|id| (id, 3)).collect(),
        ..ChooserConfig::default()
    };
    let mut chooser = Chooser::new(&all, &[], LOGITS.len(), 0).unwrap();
    assert_eq!(chooser.choose(&LOGITS).unwrap().id, 0);
}

/// All steps combined, computed in f64: bias, penalties, temperature, top-k, top-p and min-p.
#[test]
fn settings_apply_in_the_documented_order() {
    let settings = SamplingDefaults {
        temperature: Some(0.7),
        top_k: Some(4),
        top_p: Some(0.85),
        min_p: Some(0.2),
        ..SamplingDefaults::default()
    };
    let config = ChooserConfig {
        sampler: settings.chooser(5).sampler,
        logit_bias: vec![(3, 1.0)],
        ..penalties(1.25, 0.1, 0.2)
    };
    // 2 / 1.25; -1 · 1.25 - 0.3; 0.5; (0 + 1) / 1.25 - 0.3; 1.
    let changed = [1.6, -1.55, 0.5, 0.5, 1.0];
    // At temperature 0.7, relative to the most probable token: 1, 0.011, 0.208, 0.208, 0.424. Of the four
    // that top-k keeps, two hold 0.774 and three 0.887; ties go to the lower id. 0.208 exceeds min-p's 0.2.
    let mut kept = changed;
    kept[1] = f64::NEG_INFINITY;
    kept[3] = f64::NEG_INFINITY;
    let made = counts(&config, &[0], &[3, 1]);
    assert_drawn_from(&made, &softmax(&kept, 0.7));
    let mut narrower = config;
    narrower.sampler.min_p = 0.25;
    kept[2] = f64::NEG_INFINITY;
    let made = counts(&narrower, &[0], &[3, 1]);
    assert_drawn_from(&made, &softmax(&kept, 0.7));
}

#[test]
fn greedy_respects_penalties_and_bias() {
    let greedy = |config: ChooserConfig| ChooserConfig {
        sampler: SamplerConfig::greedy(),
        ..config
    };
    let ids = |config: ChooserConfig, prompt: &[u32]| -> Vec<u32> {
        let mut chooser = chooser(&greedy(config), prompt, 0);
        let made = (0..5).map(|_| chooser.choose(&LOGITS).unwrap().id);
        made.collect()
    };
    assert_eq!(ids(ChooserConfig::default(), &[0]), [0; 5]);
    // The logits of the first, fifth and third token after each draw: 2, 1, ½; 1¼, 1, ½; ½, 1, ½; ½, ¼, ½;
    // -¼, ¼, ½.
    assert_eq!(ids(penalties(1.0, 0.0, 0.75), &[0]), [0, 0, 4, 0, 2]);
    assert_eq!(ids(penalties(3.0, 0.0, 0.0), &[0]), [4, 0, 0, 0, 0]);
    let biased = ChooserConfig {
        logit_bias: vec![(0, -100.0)],
        ..ChooserConfig::default()
    };
    assert_eq!(ids(biased, &[0]), [4; 5]);
}

#[test]
fn default_chooser_equals_the_sampler() {
    let sampler = SamplerConfig {
        temperature: 1.3,
        top_p: 0.9,
        seed: 3,
        ..SamplerConfig::default()
    };
    for stream in [0, 4] {
        let mut plain = Sampler::with_stream(sampler, stream).unwrap();
        let mut chooser = chooser(&sampler.into(), &[1, 2], stream);
        for _ in 0..50 {
            let chosen = chooser.choose(&LOGITS).unwrap();
            assert_eq!(Ok(chosen.id), plain.sample(&LOGITS));
            assert_eq!((chosen.logprob, chosen.alternatives.len()), (None, 0));
        }
    }
}

/// Compared with the definition in f64: the log-softmax of the model's raw logits.
#[test]
fn log_probabilities_use_raw_logits() {
    let logits: Vec<f32> = (0..300)
        .map(|i| ((i * 37) % 301) as f32 / 20.0 - 4.0)
        .collect();
    let wide: Vec<f64> = logits.iter().map(|&x| x.into()).collect();
    let expected: Vec<f64> = softmax(&wide, 1.0).iter().map(|p| p.ln()).collect();
    let config = ChooserConfig {
        sampler: SamplerConfig {
            temperature: 0.3,
            top_k: 250,
            ..SamplerConfig::default()
        },
        logit_bias: vec![(7, 50.0)],
        top_logprobs: Some(4),
        ..penalties(1.5, 0.5, 0.5)
    };
    let mut chooser = Chooser::new(&config, &[1, 2], 300, 0).unwrap();
    let mut order: Vec<u32> = (0..300).collect();
    order.sort_by(|&a, &b| wide[b as usize].total_cmp(&wide[a as usize]));
    for _ in 0..20 {
        let chosen = chooser.choose(&logits).unwrap();
        let close = |id: u32, logprob: f32| {
            let wanted = expected[id as usize];
            assert!(
                (f64::from(logprob) - wanted).abs() < 2e-6,
                "{id}: {logprob}, not {wanted}"
            );
        };
        close(chosen.id, chosen.logprob.unwrap());
        let ids: Vec<u32> = chosen.alternatives.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, order[..4]);
        chosen
            .alternatives
            .iter()
            .for_each(|&(id, logprob)| close(id, logprob));
    }
}

#[test]
fn alternatives_break_ties_by_id_and_stop_at_the_vocabulary() {
    let told = |top_logprobs, logits: &[f32]| {
        let config = ChooserConfig {
            sampler: SamplerConfig::greedy(),
            top_logprobs: Some(top_logprobs),
            ..ChooserConfig::default()
        };
        let mut chooser = Chooser::new(&config, &[], logits.len(), 0).unwrap();
        chooser.choose(logits).unwrap()
    };
    let quarter = -4.0_f32.ln();
    let chosen = told(2, &[-7.5; 4]);
    assert_eq!(chosen.alternatives, [(0, quarter), (1, quarter)]);
    assert_eq!(chosen.logprob, Some(quarter));
    assert_eq!(told(1000, &[-7.5; 4]).alternatives.len(), 4);
    let none = told(0, &[-7.5; 4]);
    assert_eq!((none.logprob, none.alternatives.len()), (Some(quarter), 0));
    // The largest possible differences.
    let chosen = told(3, &[f32::MAX, f32::MIN, 0.0]);
    assert_eq!(chosen.logprob, Some(0.0));
    let ids: Vec<u32> = chosen.alternatives.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [0, 2, 1]);
    assert!(
        !chosen
            .alternatives
            .iter()
            .any(|(_, logprob)| logprob.is_nan())
    );
}

#[test]
fn settings_out_of_range_are_rejected_by_name() {
    let error = |config: &ChooserConfig| -> String {
        let refused: Result<_, SettingError> = Chooser::new(config, &[0], LOGITS.len(), 0);
        refused.unwrap_err().to_string()
    };
    let rule = "must be above 0 and finite";
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let expected = format!("repetition_penalty = {value}: {rule}");
        assert_eq!(error(&penalties(value, 0.0, 0.0)), expected);
    }
    let rule = "must be from -2 to 2";
    for value in [2.1, -2.1, f64::NAN, f64::INFINITY] {
        let expected = format!("presence_penalty = {value}: {rule}");
        assert_eq!(error(&penalties(1.0, value, 0.0)), expected);
        let expected = format!("frequency_penalty = {value}: {rule}");
        assert_eq!(error(&penalties(1.0, 0.0, value)), expected);
    }
    let biased = |logit_bias: &[(u32, f32)]| {
        error(&ChooserConfig {
            logit_bias: logit_bias.to_vec(),
            ..ChooserConfig::default()
        })
    };
    assert_eq!(
        biased(&[(0, 1.0), (5, 2.5)]),
        "logit_bias = 5=2.5: the id must be below the vocabulary's size of 5"
    );
    for value in [100.5, -100.5, f32::NAN] {
        let expected = format!("logit_bias = 1={value}: the value must be from -100 to 100");
        assert_eq!(biased(&[(1, value)]), expected);
    }
    assert_eq!(
        biased(&[(1, 1.0), (2, 1.0), (1, 2.0)]),
        "logit_bias = 1=2: the id must be given once"
    );
    let sampler = SamplerConfig {
        min_p: 2.0,
        ..SamplerConfig::default()
    };
    assert!(error(&sampler.into()).starts_with("min_p = 2: "));
}

#[test]
fn non_finite_logits_are_rejected_and_extreme_ones_accepted() {
    let config = ChooserConfig {
        logit_bias: vec![(0, 100.0)],
        ..penalties(1e-30, 2.0, 2.0)
    };
    let mut chooser = chooser(&config, &[0, 1, 2], 0);
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = chooser.choose(&[0.0, value, 0.0, 0.0, 0.0]).unwrap_err();
        let value = value.to_string();
        assert_eq!(error, LogitsError::NotFinite { id: 1, value });
    }
    assert_eq!(chooser.choose(&[]), Err(LogitsError::Empty));
    for _ in 0..10 {
        let chosen = chooser.choose(&[f32::MAX, f32::MIN, f32::MAX, f32::MIN, 0.0]);
        assert!([0, 2].contains(&chosen.unwrap().id));
    }
}
