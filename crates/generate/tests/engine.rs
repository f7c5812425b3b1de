//! The engine: a request gets the tokens of plain generation regardless of concurrent requests. Slots are
//! shared, reused and freed.

mod adapters;
mod deterministic;
mod drafts;
mod embedded;
mod encoder_decoder;
mod mixes;
mod paused;
mod prompt_logprobs;
mod refused;
mod replaced;
mod reuse;
mod slots;
mod windowed;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use burn_flex::Flex;
use emberlm_generate::{
    Chosen, Drafting, Ended, Engine, EngineConfig, Event, EventKind, Finish, GenerateError,
    GenerateOptions, Generation, Request, RequestId, SamplerConfig, generate,
};
use emberlm_model::config::{AttentionKind, Init, ModelConfig, Window};
use emberlm_model::{CacheFormat, Transformer, TransformerConfig, WeightFormat, families};

pub const SEQ_LEN: usize = 20;
pub const VOCAB_SIZE: usize = 23;

/// Models that exercise different parts of the engine: position encodings, attention ranges, caches that can
/// or cannot be rewound, int8 weights, and caches in fewer bits.
pub const MODELS: [&str; 7] = [
    "pocket-tales",
    "char-nano",
    "with a window",
    "linear attention",
    "8 bits",
    "f16 cache",
    "q8 cache",
];

pub fn raw(name: &str) -> ModelConfig {
    let preset = match name {
        "8 bits" | "with a window" | "f16 cache" | "q8 cache" => "pocket-tales",
        "linear attention" => "char-nano",
        preset => preset,
    };
    let mut raw = families::preset(preset).unwrap().config;
    raw.vocab_size = Some(VOCAB_SIZE);
    raw.seq_len = SEQ_LEN;
    raw.d_model = 24;
    raw.n_layers = 2;
    // Initial weights are large enough for the next token to depend on the whole context.
    raw.init = Init::Normal {
        std: 0.4,
        scale_residual: false,
    };
    if name == "linear attention" {
        raw.attention = AttentionKind::Linear {
            features: Some(24),
            seed: 1,
        };
    }
    if name == "q8 cache" {
        // A block of q8.
        raw.head_dim = Some(32);
    }
    if name == "with a window" {
        raw.attention = AttentionKind::windowed(Window {
            global_tokens: 2,
            ..Window::new(5)
        });
    }
    raw
}

pub fn decoder(name: &str, seed: u64) -> Arc<Transformer<Flex>> {
    let config = TransformerConfig::try_from(raw(name)).unwrap();
    let weights = match name {
        "8 bits" => WeightFormat::INT8,
        _ => WeightFormat::F32,
    };
    let cache = match name {
        "f16 cache" => CacheFormat::F16,
        "q8 cache" => CacheFormat::Q8,
        _ => CacheFormat::F32,
    };
    let decoder = config.init(seed, &Default::default());
    let decoder = decoder.with_weights(weights).unwrap();
    Arc::new(decoder.with_cache_format(cache).unwrap())
}

pub fn engine(name: &str, slots: usize, prefill_tokens: usize) -> Engine<Flex> {
    drafting_engine(name, slots, prefill_tokens, Drafting::Never)
}

/// An engine whose sequences have drafts.
pub fn drafting_engine(
    name: &str,
    slots: usize,
    prefill_tokens: usize,
    drafting: Drafting,
) -> Engine<Flex> {
    let config = EngineConfig {
        slots,
        capacity: SEQ_LEN,
        prefill_tokens,
        deterministic: false,
        drafting,
    };
    Engine::new(decoder(name, 9), config).unwrap()
}

/// A greedy request that is rejected if the context may overflow.
pub fn greedy(prompt: &[u32], max_new_tokens: usize) -> Request {
    Request {
        prompt: prompt.to_vec(),
        max_new_tokens,
        chooser: SamplerConfig::greedy().into(),
        ..Request::default()
    }
}

/// A sample of the request by plain generation.
pub fn plain(decoder: &Transformer<Flex>, request: &Request, sample: usize) -> Generation {
    let options = GenerateOptions {
        max_new_tokens: request.max_new_tokens,
        stop_tokens: request.stop_tokens.clone(),
        chooser: request.chooser.clone(),
        sample,
    };
    generate(decoder, &request.prompt, &options, |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

/// The events of one sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleEvents {
    /// The prompt's tokens with their log-probabilities, if requested.
    pub prompt: Vec<Chosen>,
    pub tokens: Vec<u32>,
    pub end: Option<Result<Ended, GenerateError>>,
}

impl SampleEvents {
    pub fn ended(&self) -> Ended {
        self.end.clone().unwrap().unwrap()
    }

    pub fn finish(&self) -> Finish {
        self.ended().finish
    }
}

/// The events of all samples.
#[derive(Clone, Debug, Default)]
pub struct EventLog(pub BTreeMap<(RequestId, usize), SampleEvents>);

impl EventLog {
    pub fn record(&mut self, event: Event) {
        if event.kind == EventKind::Started {
            return;
        }
        let recorded = self.0.entry((event.request, event.sample)).or_default();
        assert!(recorded.end.is_none(), "an event after the end: {event:?}");
        match event.kind.clone() {
            EventKind::Token(chosen) => recorded.tokens.push(chosen.id),
            EventKind::Prompt(tokens) => {
                assert!(recorded.tokens.is_empty(), "late: {event:?}");
                recorded.prompt.extend(tokens.iter().cloned());
            }
            EventKind::Started | EventKind::Embedded(_) => panic!("not a generation's: {event:?}"),
            EventKind::Finished(ended) => recorded.end = Some(Ok(ended)),
            EventKind::Failed(error) => recorded.end = Some(Err(error)),
        }
    }

    pub fn of(&self, request: RequestId, sample: usize) -> SampleEvents {
        self.0.get(&(request, sample)).cloned().unwrap_or_default()
    }
}

pub fn step(engine: &mut Engine<Flex>, events: &mut EventLog) {
    engine.step(&mut |event| events.record(event));
}

/// Steps until all requests have ended, and checks that all slots are free.
pub fn drain(engine: &mut Engine<Flex>, events: &mut EventLog) {
    for _ in 0..10_000 {
        if engine.is_idle() {
            let counts = engine.counts();
            assert_eq!((counts.running, counts.waiting), (0, 0));
            assert_eq!(counts.free_slots, engine.config().slots);
            return;
        }
        step(engine, events);
    }
    panic!("the engine does not come to an end: {:?}", engine.counts());
}

/// Runs a single request.
pub fn run(engine: &mut Engine<Flex>, request: &Request) -> SampleEvents {
    let mut events = EventLog::default();
    let id = engine.submit(request.clone()).unwrap();
    drain(engine, &mut events);
    events.of(id, 0)
}
