//! Engines of encoder–decoders: targets equal those of `transformers` and of `Generator`, under any load.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_flex::Flex;
use emberlm_generate::{
    Drafting, Engine, EngineConfig, EventKind, Finish, GenerateError, GenerateOptions, Generator,
    Overflow, Request, RequestId, SamplerConfig,
};
use emberlm_model::Transformer;
use emberlm_model::TransformerConfig;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;

use crate::beam;

const VOCAB_SIZE: usize = 40;

/// A model whose next token depends on source and target, wide enough for products of different kernels.
fn model() -> Arc<Transformer<Flex>> {
    let settings = EncoderDecoderSettings {
        vocab_size: VOCAB_SIZE,
        encoder_layers: 2,
        decoder_layers: 2,
        init_factor: 2.0,
        ..EncoderDecoderSettings::new(128, 4)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    Arc::new(config.init(3, &Default::default()))
}

fn engine(model: &Arc<Transformer<Flex>>, slots: usize, deterministic: bool) -> Engine<Flex> {
    let config = EngineConfig {
        slots,
        capacity: 48,
        prefill_tokens: 16,
        deterministic,
        drafting: Drafting::Never,
    };
    Engine::new(Arc::clone(model), config).unwrap()
}

fn source(number: u32) -> Vec<u32> {
    (0..3 + number * 4 % 29)
        .map(|i| (i * 7 + number * 5) % VOCAB_SIZE as u32)
        .collect()
}

fn request(number: u32) -> Request {
    let mut request = Request {
        prompt: source(number),
        samples: 1 + number as usize % 3,
        max_new_tokens: 5 + number as usize * 3,
        stop_tokens: vec![1],
        ..Request::default()
    };
    request.chooser.top_logprobs = Some(1);
    request.chooser.sampler.seed = u64::from(number);
    request
}

/// The ids and log-probabilities of each sample, and why it ended.
type Samples = BTreeMap<(RequestId, usize), (Vec<(u32, f32)>, Option<Finish>)>;

fn run(engine: &mut Engine<Flex>, samples: &mut Samples) -> bool {
    engine.step(&mut |event| {
        let sample = samples.entry((event.request, event.sample)).or_default();
        match event.kind {
            EventKind::Token(chosen) => sample.0.push((chosen.id, chosen.logprob.unwrap())),
            EventKind::Finished(ended) => sample.1 = Some(ended.finish),
            EventKind::Started => {}
            EventKind::Prompt(_) | EventKind::Embedded(_) | EventKind::Failed(_) => {
                panic!("{event:?}")
            }
        }
    })
}

fn plain(
    model: &Transformer<Flex>,
    request: &Request,
    sample: usize,
) -> (Vec<(u32, f32)>, Option<Finish>) {
    let options = GenerateOptions {
        max_new_tokens: request.max_new_tokens,
        stop_tokens: request.stop_tokens.clone(),
        chooser: request.chooser.clone(),
        sample,
    };
    let mut generator = Generator::new(model, &request.prompt, &options).unwrap();
    let mut tokens = Vec::new();
    while generator.next().transpose().unwrap().is_some() {
        let chosen = generator.chosen();
        tokens.push((chosen.id, chosen.logprob.unwrap()));
    }
    (tokens, generator.finish())
}

/// Runs twelve requests that arrive while others run.
fn together(engine: &mut Engine<Flex>) -> (Vec<RequestId>, Samples) {
    let (mut ids, mut samples) = (Vec::new(), Samples::new());
    for number in 0..12 {
        ids.push(engine.submit(request(number)).unwrap());
        for _ in 0..number % 4 {
            run(engine, &mut samples);
        }
    }
    while run(engine, &mut samples) {}
    assert!(engine.is_idle());
    (ids, samples)
}

#[test]
fn concurrent_targets_equal_those_of_the_generator() {
    let model = model();
    let (ids, samples) = together(&mut engine(&model, 5, false));
    let mut ends = Vec::new();
    for (number, id) in ids.into_iter().enumerate() {
        let request = request(number as u32);
        for sample in 0..request.samples {
            let (expected, finish) = plain(&model, &request, sample);
            let (found, ended) = &samples[&(id, sample)];
            let tokens =
                |chosen: &[(u32, f32)]| -> Vec<u32> { chosen.iter().map(|(id, _)| *id).collect() };
            assert_eq!(tokens(found), tokens(&expected), "{number}, {sample}");
            assert_eq!(*ended, finish);
            for ((_, found), (_, expected)) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
            }
            ends.push(finish.unwrap());
        }
    }
    assert!(ends.contains(&Finish::Length) && ends.contains(&Finish::Stop(1)));
}

#[test]
fn deterministic_targets_have_the_bits_of_the_generator() {
    let model = model();
    let (ids, samples) = together(&mut engine(&model, 5, true));
    for (number, id) in ids.into_iter().enumerate() {
        let request = request(number as u32);
        for sample in 0..request.samples {
            let expected = plain(&model, &request, sample);
            assert_eq!(samples[&(id, sample)], expected, "{number}, {sample}");
        }
    }
}

#[test]
fn targets_are_those_of_transformers() {
    for name in beam::MODELS {
        let (model, expected) = beam::model(name);
        let tokens = expected.tokens("greedy");
        let mut engine = engine(&Arc::new(model), 3, false);
        let request = |prompt| {
            let mut request = Request {
                prompt,
                max_new_tokens: tokens.len(),
                chooser: SamplerConfig::greedy().into(),
                ..Request::default()
            };
            request.chooser.top_logprobs = Some(0);
            request
        };
        // Another source in the same passes.
        engine.submit(request(vec![5; 4])).unwrap();
        let id = engine.submit(request(expected.source())).unwrap();
        let mut samples = Samples::new();
        while run(&mut engine, &mut samples) {}
        let (found, finish) = &samples[&(id, 0)];
        let found: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
        assert_eq!(found, tokens, "{name}");
        assert_eq!(*finish, Some(Finish::Length));
    }
}

#[test]
fn a_cancelled_sample_leaves_the_source_to_the_others() {
    let model = model();
    let mut engine = engine(&model, 3, false);
    let mut request = request(2);
    request.max_new_tokens = 12;
    assert_eq!(request.samples, 3);
    let id = engine.submit(request.clone()).unwrap();
    let mut samples = Samples::new();
    run(&mut engine, &mut samples);
    assert!(engine.cancel_sample(id, 0));
    while run(&mut engine, &mut samples) {}
    for sample in [1, 2] {
        let expected = plain(&model, &request, sample);
        let found = &samples[&(id, sample)];
        assert_eq!(found.1, expected.1);
        assert_eq!(found.0.len(), expected.0.len());
    }
    let other = engine.submit(request).unwrap();
    assert!(engine.cancel(other) && engine.is_idle());
}

#[test]
fn sources_are_encoded_as_the_step_allows() {
    let model = model();
    let mut engine = engine(&model, 4, false);
    for number in [6, 5, 4, 1] {
        // 27, 23, 19 and 7 tokens, with 16 per step.
        let request = Request {
            samples: 1,
            max_new_tokens: 20,
            stop_tokens: Vec::new(),
            ..request(number)
        };
        engine.submit(request).unwrap();
    }
    let mut read = Vec::new();
    for _ in 0..4 {
        engine.step(&mut |_| {});
        read.push(engine.counts().prefilled_tokens);
    }
    assert_eq!(read, [27, 50, 69, 76]);
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    let model = model();
    let mut engine = engine(&model, 2, false);
    let mut refused = |change: &dyn Fn(&mut Request)| {
        let mut request = request(1);
        change(&mut request);
        engine.submit(request).unwrap_err()
    };
    let overflow = refused(&|request| {
        request.prompt = vec![2; 49];
        request.overflow = Overflow::Slide;
    });
    assert!(matches!(
        overflow,
        GenerateError::Overflow {
            prompt: 49,
            max_new_tokens: 0,
            context: 48
        }
    ));
    let message = refused(&|request| request.max_new_tokens = 49).to_string();
    assert_eq!(
        message,
        "max_new_tokens = 49: must be at most 48, the context of a target"
    );
    assert_eq!(
        refused(&|request| request.prompt = vec![2, 40]).to_string(),
        "token 40 at position 1 is outside of the vocabulary of 40"
    );
    let message = refused(&|request| request.prompt_logprobs = Some(1)).to_string();
    assert!(
        message.starts_with("prompt_logprobs = 1: is not supported for an encoder–decoder"),
        "{message}"
    );
    refused(&|request| request.prompt.clear());
    let error = engine.submit_embedding(vec![vec![2]]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "model = an encoder–decoder: must be a decoder to embed texts"
    );
    assert!(engine.is_idle());
}
