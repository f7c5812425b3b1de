//! Speculative decoding preserves the output: the same tokens at temperature 0, the same distribution
//! otherwise.

use std::ops::ControlFlow;

use crate::beam;
use crate::support::{DRAWS, assert_drawn_from, softmax};
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_generate::{
    ChooserConfig, Constraint, DraftAcceptance, Finish, GenerateOptions, Generation, Generator,
    Grammar, Penalties, SamplerConfig, Vocabulary, generate,
};
use emberlm_model::config::{AttentionKind, Init, ModelConfig, Window};
use emberlm_model::{Transformer, TransformerConfig, families};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SEQ_LEN: usize = 20;
const VOCAB_SIZE: usize = 11;

fn raw(preset: &str, d_model: usize, seq_len: usize) -> ModelConfig {
    let mut raw = families::preset(preset).unwrap().config;
    (raw.vocab_size, raw.seq_len) = (Some(VOCAB_SIZE), seq_len);
    (raw.d_model, raw.n_layers) = (d_model, 1);
    // Initial weights are large enough for the next token to depend on the whole context.
    raw.init = Init::Normal {
        std: 0.4,
        scale_residual: false,
    };
    raw
}

fn made(raw: ModelConfig, seed: u64) -> Transformer<Flex> {
    let config = TransformerConfig::try_from(raw).unwrap();
    config.init(seed, &Default::default())
}

fn target() -> Transformer<Flex> {
    made(raw("pocket-tales", 24, SEQ_LEN), 9)
}

/// Draft models of high and low accuracy, of another family, and with a shorter context.
fn drafts() -> Vec<Transformer<Flex>> {
    vec![
        target(),
        made(raw("pocket-tales", 24, SEQ_LEN), 2),
        made(raw("char-nano", 24, 30), 3),
        made(raw("pocket-tales", 24, 7), 4),
    ]
}

fn options(chooser: impl Into<ChooserConfig>, max_new_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_new_tokens,
        chooser: chooser.into(),
        ..GenerateOptions::default()
    }
}

fn plain(target: &Transformer<Flex>, prompt: &[u32], options: &GenerateOptions) -> Generation {
    generate(target, prompt, options, |_| ControlFlow::Continue(())).unwrap()
}

/// The tokens, the outcome, and the acceptance of draft tokens.
fn guessed(
    target: &Transformer<Flex>,
    draft: &Transformer<Flex>,
    ahead: usize,
    prompt: &[u32],
    options: &GenerateOptions,
) -> (Vec<u32>, Finish, DraftAcceptance) {
    let mut generator = Generator::with_draft(target, draft, ahead, prompt, options).unwrap();
    let tokens = generator.by_ref().map(Result::unwrap).collect();
    (
        tokens,
        generator.finish().unwrap(),
        generator.acceptance().unwrap(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120,
        // If two logits differ only by rounding, a pass over more rows may choose the other token.
        rng_seed: RngSeed::Fixed(3),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn greedy_tokens_match_plain_generation(
        draft in 0..4usize,
        ahead in 1..9usize,
        prompt in prop::collection::vec(0..VOCAB_SIZE as u32, 1..30),
        max_new_tokens in 0..50usize,
        stop in prop::option::of(0..VOCAB_SIZE as u32),
        repetition in prop_oneof![Just(1.0), Just(1.4)],
    ) {
        let target = target();
        let penalties = Penalties { repetition, ..Penalties::default() };
        let chooser = ChooserConfig {
            sampler: SamplerConfig::greedy(),
            penalties,
            ..ChooserConfig::default()
        };
        let mut options = options(chooser, max_new_tokens);
        options.stop_tokens.extend(stop);
        let expected = plain(&target, &prompt, &options);
        let (tokens, finish, guesses) = guessed(&target, &drafts()[draft], ahead, &prompt, &options);
        prop_assert_eq!(&tokens, &expected.tokens);
        prop_assert_eq!(finish, expected.finish);
        prop_assert!(guesses.taken <= guesses.made);
        prop_assert!(tokens.len() as u64 <= guesses.taken + guesses.passes);
        if draft == 0 && repetition == 1.0 && prompt.len() + max_new_tokens <= SEQ_LEN && stop.is_none() {
            // The draft model is the target: all draft tokens are accepted, in the minimum number of passes.
            prop_assert_eq!(guesses.taken, guesses.made);
            prop_assert_eq!(guesses.passes, max_new_tokens.div_ceil(ahead + 1) as u64);
        }
    }
}

/// The logits after `tokens`.
fn logits(target: &Transformer<Flex>, tokens: &[u32]) -> Vec<f64> {
    let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
    let ids = TensorData::new(ids, [1, tokens.len()]);
    let ids = Tensor::<Flex, 2, Int>::from_data(ids, &Default::default());
    let all: Vec<f32> = target.forward(ids).into_data().iter::<f32>().collect();
    let last = all[all.len() - VOCAB_SIZE..].iter();
    last.map(|&logit| f64::from(logit)).collect()
}

/// The probabilities of the next token, with the temperature and top-k of `sampler`.
fn probabilities(target: &Transformer<Flex>, tokens: &[u32], sampler: &SamplerConfig) -> Vec<f64> {
    let mut logits = logits(target, tokens);
    let mut sorted = logits.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    if let Some(least) = sorted.get(sampler.top_k.wrapping_sub(1)).copied() {
        for logit in logits.iter_mut().filter(|logit| **logit < least) {
            *logit = f64::NEG_INFINITY;
        }
    }
    softmax(&logits, sampler.temperature)
}

#[test]
fn pairs_of_tokens_follow_the_target_distribution() {
    let (target, prompt) = (target(), [3, 7]);
    let settings = [(1.0, 0), (0.6, 0), (1.3, 4)];
    for (draft, (temperature, top_k)) in drafts().iter().skip(1).zip(settings) {
        let sampler = |seed| SamplerConfig {
            temperature,
            top_k,
            seed,
            ..SamplerConfig::default()
        };
        let mut counts = vec![0; VOCAB_SIZE * VOCAB_SIZE];
        for seed in 0..DRAWS as u64 {
            let options = options(sampler(seed), 2);
            let (tokens, ..) = guessed(&target, draft, 3, &prompt, &options);
            counts[tokens[0] as usize * VOCAB_SIZE + tokens[1] as usize] += 1;
        }
        let first = probabilities(&target, &prompt, &sampler(0));
        let both = (0..VOCAB_SIZE as u32).flat_map(|id| {
            let before = first[id as usize];
            let second = probabilities(&target, &[3, 7, id], &sampler(0));
            second.into_iter().map(move |after| before * after)
        });
        assert_drawn_from(&counts, &both.collect::<Vec<_>>());
    }
}

#[test]
fn the_target_as_draft_is_always_accepted() {
    let target = target();
    let sampler = SamplerConfig {
        seed: 5,
        ..SamplerConfig::default()
    };
    let (tokens, _, guesses) = guessed(&target, &target, 4, &[1, 2], &options(sampler, 15));
    assert_eq!(tokens.len(), 15);
    assert_eq!((guesses.made, guesses.taken, guesses.passes), (12, 12, 3));
    assert_eq!(guesses.rate(), Some(1.0));
}

/// A sliding-window cache drops keys while draft tokens can still be rejected.
#[test]
fn text_longer_than_the_window_matches_plain_generation() {
    let windowed = |seed| {
        let mut raw = raw("pocket-tales", 24, 1400);
        raw.attention = AttentionKind::windowed(Window::new(9));
        made(raw, seed)
    };
    let (target, draft) = (windowed(9), windowed(2));
    let prompt: Vec<u32> = (0..700u32).map(|i| i * i % 11).collect();
    let options = options(SamplerConfig::greedy(), 500);
    let (tokens, ..) = guessed(&target, &draft, 7, &prompt, &options);
    assert_eq!(tokens, plain(&target, &prompt, &options).tokens);
    let text = [&prompt[..], &tokens[..499]].concat();
    // Without a cache.
    let next = probabilities(&target, &text, &SamplerConfig::default());
    let likeliest = next.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    assert_eq!(likeliest.map(|(id, _)| id as u32), tokens.last().copied());
}

#[test]
fn an_inaccurate_draft_has_a_low_acceptance_rate() {
    let target = target();
    let sampler = SamplerConfig::greedy();
    let (tokens, _, guesses) = guessed(&target, &drafts()[1], 4, &[1, 2], &options(sampler, 15));
    assert!(guesses.rate().unwrap() < 0.9);
    assert_eq!(tokens.len() as u64, guesses.taken + guesses.passes);
}

#[test]
fn speculation_honours_every_constraint() {
    let target = target();
    let texts = (0..VOCAB_SIZE as u8).map(|id| vec![b'a' + id]).collect();
    let vocabulary = Vocabulary::new(texts, &[]).unwrap();
    let pattern = Grammar::Regex("ab(c|dd)[e-g]{4}".to_owned());
    for temperature in [0.0, 1.0] {
        let chooser = ChooserConfig {
            sampler: SamplerConfig {
                temperature,
                ..SamplerConfig::default()
            },
            constraint: Some(Constraint::new(&vocabulary, pattern.clone()).unwrap()),
            top_logprobs: Some(2),
            ..ChooserConfig::default()
        };
        let options = options(chooser, 15);
        for draft in &drafts() {
            let mut generator = Generator::with_draft(&target, draft, 3, &[1], &options).unwrap();
            let mut tokens = vec![1];
            while let Some(id) = generator.next() {
                let id = id.unwrap();
                let expected = softmax(&logits(&target, &tokens), 1.0)[id as usize].ln();
                let found = f64::from(generator.chosen().logprob.unwrap());
                assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
                assert_eq!(generator.chosen().alternatives.len(), 2);
                tokens.push(id);
            }
            assert_eq!(generator.finish(), Some(Finish::Complete));
            let letters = tokens[1..].iter().map(|&id| char::from(b'a' + id as u8));
            let text: String = letters.collect();
            let rest = text.strip_prefix("abc").or(text.strip_prefix("abdd"));
            let rest = rest.unwrap_or_else(|| panic!("{text}"));
            assert!(rest.len() == 4 && rest.chars().all(|c| ('e'..='g').contains(&c)));
            if temperature == 0.0 {
                assert_eq!(tokens[1..], plain(&target, &[1], &options).tokens);
            }
        }
    }
}

/// Target and draft model read the source, each with its own encoder.
#[test]
fn targets_of_encoder_decoders_can_be_drafted() {
    for name in beam::MODELS {
        let (model, expected) = beam::model(name);
        let tokens = expected.tokens("greedy");
        let options = options(SamplerConfig::greedy(), tokens.len());
        let (drafted, finish, acceptance) =
            guessed(&model, &model, 3, &expected.source(), &options);
        assert_eq!(drafted, tokens, "{name}");
        assert_eq!(finish, Finish::Length);
        assert!(acceptance.taken > 0, "{name}: {acceptance:?}");
    }
}

#[test]
fn incompatible_models_are_rejected() {
    let target = target();
    let options = options(SamplerConfig::greedy(), 5);
    let refused = |draft: &Transformer<Flex>, ahead, prompt: &[u32]| {
        let refused = Generator::with_draft(&target, draft, ahead, prompt, &options);
        refused.unwrap_err().to_string()
    };
    let good = &drafts()[1];
    let mut other = raw("char-nano", 24, 30);
    other.vocab_size = Some(12);
    let mut linear = raw("char-nano", 24, 30);
    linear.attention = AttentionKind::Linear {
        features: Some(24),
        seed: 1,
    };
    for (found, expected) in [
        (
            refused(&made(other, 1), 3, &[1]),
            "vocab_size = 12: the draft's must be the model's 11",
        ),
        (
            refused(&made(linear, 1), 3, &[1]),
            "attention = linear: the draft must support removing tokens from the cache, as softmax attention does",
        ),
        (
            refused(good, 0, &[1]),
            "draft_tokens = 0: must be between 1 and 64",
        ),
        (
            refused(good, 65, &[1]),
            "draft_tokens = 65: must be between 1 and 64",
        ),
        (
            refused(good, 3, &[]),
            "no tokens given: the model needs at least one",
        ),
        (
            refused(good, 3, &[11]),
            "token 11 at position 0 is outside of the vocabulary of 11",
        ),
    ] {
        assert_eq!(found, expected);
    }
}
