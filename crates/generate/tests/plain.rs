//! Plain generation: with and without the cache, beyond the context, and rejected input.

use std::ops::ControlFlow;

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_generate::{
    Finish, GenerateOptions, Generation, Generator, PROMPT_CHUNK, SamplerConfig, generate,
};
use emberlm_model::config::Init;
use emberlm_model::{Transformer, TransformerConfig, WeightFormat, families};

const SEQ_LEN: usize = 16;
const VOCAB_SIZE: usize = 23;
const PROMPT: [u32; 3] = [3, 14, 1];

fn decoder(preset: &str) -> Transformer<Flex> {
    decoder_of(preset, SEQ_LEN)
}

fn decoder_of(preset: &str, seq_len: usize) -> Transformer<Flex> {
    let mut raw = families::preset(preset).unwrap().config;
    raw.vocab_size = Some(VOCAB_SIZE);
    raw.seq_len = seq_len;
    raw.d_model = 24;
    raw.n_layers = 2;
    // Initial weights are large enough for the next token to depend on the whole context.
    raw.init = Init::Normal {
        std: 0.4,
        scale_residual: false,
    };
    TransformerConfig::try_from(raw)
        .unwrap()
        .init(9, &Default::default())
}

fn greedy(max_new_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_new_tokens,
        stop_tokens: Vec::new(),
        chooser: SamplerConfig::greedy().into(),
        sample: 0,
    }
}

fn drawn(max_new_tokens: usize, seed: u64) -> GenerateOptions {
    GenerateOptions {
        chooser: SamplerConfig {
            seed,
            ..SamplerConfig::default()
        }
        .into(),
        ..greedy(max_new_tokens)
    }
}

fn run(decoder: &Transformer<Flex>, prompt: &[u32], options: &GenerateOptions) -> Generation {
    generate(decoder, prompt, options, |_| ControlFlow::Continue(())).unwrap()
}

/// The most probable token after `context`, by a full pass without a cache.
fn likeliest(decoder: &Transformer<Flex>, context: &[u32]) -> u32 {
    let ids: Vec<i64> = context.iter().map(|&id| i64::from(id)).collect();
    let data = TensorData::new(ids, [1, context.len()]);
    let tokens = Tensor::<Flex, 2, Int>::from_data(data, &Default::default());
    let logits = decoder.forward(tokens).narrow(1, context.len() - 1, 1);
    let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// A long prompt is read in chunks, each of which attends to those before it.
#[test]
fn prompts_of_several_chunks_continue_as_by_a_full_pass() {
    for preset in ["pocket-tales", "char-nano"] {
        for len in [PROMPT_CHUNK, PROMPT_CHUNK + 1, 2 * PROMPT_CHUNK + 3] {
            let decoder = decoder_of(preset, len + 2);
            let prompt: Vec<u32> = (0..len as u32).map(|at| at * at % 23).collect();
            let made = run(&decoder, &prompt, &greedy(2)).tokens;
            let first = likeliest(&decoder, &prompt);
            let context: Vec<u32> = prompt.iter().copied().chain([first]).collect();
            assert_eq!(
                made,
                [first, likeliest(&decoder, &context)],
                "{preset}: {len}"
            );
        }
    }
}

/// Greedy generation as documented, with a full pass per token. A full context is cut to its last half.
fn by_full_passes(decoder: &Transformer<Flex>, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut context = prompt[prompt.len().saturating_sub(SEQ_LEN)..].to_vec();
    let mut made = Vec::new();
    for _ in 0..count {
        if context.len() > SEQ_LEN {
            context.drain(..context.len() - SEQ_LEN / 2);
        }
        made.push(likeliest(decoder, &context));
        context.extend(made.last());
    }
    made
}

#[test]
fn greedy_with_cache_equals_full_passes() {
    for preset in ["pocket-tales", "char-nano"] {
        let decoder = decoder(preset);
        let count = SEQ_LEN - PROMPT.len();
        let made = run(&decoder, &PROMPT, &greedy(count));
        assert_eq!(
            made.tokens,
            by_full_passes(&decoder, &PROMPT, count),
            "{preset}"
        );
        assert_eq!((made.finish, made.slides), (Finish::Length, 0));
        assert!(
            made.tokens.iter().any(|id| *id != made.tokens[0]),
            "a model that says one thing"
        );
    }
}

#[test]
fn generation_slides_beyond_the_context() {
    for preset in ["pocket-tales", "char-nano"] {
        let decoder = decoder(preset);
        let made = run(&decoder, &PROMPT, &greedy(50));
        assert_eq!(
            made.tokens,
            by_full_passes(&decoder, &PROMPT, 50),
            "{preset}"
        );
        // After 16 tokens of context, each slide makes room for 8: at 17, 26, 35, … tokens.
        assert_eq!(made.slides, 4);
        assert_eq!(made.truncated_prompt, 0);
    }
}

#[test]
fn a_long_prompt_keeps_its_newest_tokens() {
    let decoder = decoder("pocket-tales");
    let prompt: Vec<u32> = (0..40).map(|i| (i * 7 % VOCAB_SIZE) as u32).collect();
    for length in [SEQ_LEN - 1, SEQ_LEN, SEQ_LEN + 1, 40] {
        let made = run(&decoder, &prompt[..length], &greedy(12));
        assert_eq!(made.truncated_prompt, length.saturating_sub(SEQ_LEN));
        assert_eq!(
            made.tokens,
            by_full_passes(&decoder, &prompt[..length], 12),
            "{length}"
        );
    }
}

#[test]
fn a_context_of_one_token_works() {
    let mut raw = decoder("pocket-tales").config().raw();
    raw.seq_len = 1;
    let decoder = TransformerConfig::try_from(raw)
        .unwrap()
        .init::<Flex>(9, &Default::default());
    let made = run(&decoder, &PROMPT, &greedy(5));
    assert_eq!(
        (made.tokens.len(), made.truncated_prompt, made.slides),
        (5, 2, 4)
    );
}

#[test]
fn the_seed_determines_samples_and_top_k_1_is_greedy() {
    let decoder = decoder("pocket-tales");
    let tokens = |options: &GenerateOptions| run(&decoder, &PROMPT, options).tokens;
    assert_eq!(tokens(&drawn(30, 1)), tokens(&drawn(30, 1)));
    assert_ne!(tokens(&drawn(30, 1)), tokens(&drawn(30, 2)));
    let mut one = drawn(30, 1);
    one.chooser.sampler.top_k = 1;
    assert_eq!(tokens(&one), tokens(&greedy(30)));
}

#[test]
fn int8_weights_generate_deterministically() {
    for preset in ["pocket-tales", "char-nano"] {
        let held = decoder(preset).with_weights(WeightFormat::INT8).unwrap();
        for options in [greedy(50), drawn(50, 1)] {
            let made =
                || generate(&held, &PROMPT, &options, |_| ControlFlow::Continue(())).unwrap();
            let first = made();
            assert_eq!((first.tokens.len(), first.slides), (50, 4), "{preset}");
            assert_eq!(first, made(), "{preset}");
        }
    }
}

#[test]
fn a_stop_token_ends_generation_and_is_omitted() {
    let decoder = decoder("pocket-tales");
    let all = run(&decoder, &PROMPT, &greedy(20)).tokens;
    let stop = all[6];
    let first = all.iter().position(|id| *id == stop).unwrap();
    let mut options = greedy(20);
    options.stop_tokens = vec![stop];
    let made = run(&decoder, &PROMPT, &options);
    assert_eq!(made.tokens, all[..first]);
    assert_eq!(made.finish, Finish::Stop(stop));
}

#[test]
fn the_caller_sees_each_token_and_can_break() {
    let decoder = decoder("pocket-tales");
    let all = run(&decoder, &PROMPT, &greedy(20)).tokens;
    let mut seen = Vec::new();
    let made = generate(&decoder, &PROMPT, &greedy(20), |id| {
        seen.push(id);
        if seen.len() == 5 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let made = made.unwrap();
    assert_eq!((&made.tokens, made.finish), (&seen, Finish::Caller));
    assert_eq!(seen, all[..5]);

    let generator = Generator::new(&decoder, &PROMPT, &greedy(20)).unwrap();
    let lazily: Vec<u32> = generator.take(7).map(Result::unwrap).collect();
    assert_eq!(lazily, all[..7]);
}

#[test]
fn zero_tokens_can_be_requested() {
    let made = run(&decoder("char-nano"), &PROMPT, &greedy(0));
    assert_eq!((made.tokens.len(), made.finish), (0, Finish::Length));
}

#[test]
fn invalid_input_is_rejected_by_name() {
    let decoder = decoder("char-nano");
    let error = |prompt: &[u32], options: GenerateOptions| {
        let made = generate(&decoder, prompt, &options, |_| ControlFlow::Continue(()));
        made.unwrap_err().to_string()
    };
    assert_eq!(
        error(&[], greedy(1)),
        "no tokens given: the model needs at least one"
    );
    let long = [&[0; 30][..], &[23]].concat();
    let expected = "token 23 at position 30 is outside of the vocabulary of 23";
    assert_eq!(error(&long, greedy(1)), expected);
    let mut options = greedy(1);
    options.stop_tokens = vec![5, 99];
    let expected = "stop_tokens = 99: must be below the vocabulary's size of 23";
    assert_eq!(error(&PROMPT, options), expected);
    let mut options = greedy(1);
    options.chooser.sampler.temperature = f64::NAN;
    assert!(error(&PROMPT, options).starts_with("temperature = NaN: "));
}

#[test]
fn a_diverged_model_is_an_error() {
    let mut decoder = decoder("char-nano");
    decoder.embeddings.tokens = decoder.embeddings.tokens.mapped(|tokens| tokens * f32::NAN);
    let mut generator = Generator::new(&decoder, &PROMPT, &greedy(5)).unwrap();
    let error = generator.next().unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("the model's logit of token 0 is NaN"),
        "{error}"
    );
    assert!(generator.next().is_none());

    let feed_forward = &mut decoder.stack.blocks[0].feed_forward;
    let up = &mut feed_forward.dense_mut().unwrap().up;
    up.weight = up.weight.clone().mapped(|weight| weight * f32::NAN);
    decoder.embeddings.tokens = decoder
        .embeddings
        .tokens
        .mapped(|tokens| tokens.ones_like());
    let held = decoder.with_weights(WeightFormat::INT8).unwrap();
    let mut generator = Generator::new(&held, &PROMPT, &greedy(5)).unwrap();
    assert!(generator.next().unwrap().is_err());
}
