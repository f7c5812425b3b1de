//! With `deterministic`, results are bit-identical regardless of concurrent requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_flex::Flex;
use emberlm_generate::{Drafting, Engine, EngineConfig, EventKind, Request, RequestId};
use emberlm_model::{Transformer, TransformerConfig, WeightFormat};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{MODELS, raw};

/// The id and the bits of the log-probability of each token.
pub type Bits = BTreeMap<(RequestId, usize), Vec<(u32, u32)>>;

fn decoder(name: &str) -> Arc<Transformer<Flex>> {
    let mut raw = raw(name);
    // Wide enough for products to use different kernels for one, some and many rows.
    (raw.d_model, raw.heads, raw.kv_heads, raw.seq_len) = (256, 4, None, 64);
    let config = TransformerConfig::try_from(raw).unwrap();
    let weights = match name {
        "8 bits" => WeightFormat::INT8,
        _ => WeightFormat::F32,
    };
    Arc::new(
        config
            .init(9, &Default::default())
            .with_weights(weights)
            .unwrap(),
    )
}

fn engine(
    decoder: &Arc<Transformer<Flex>>,
    deterministic: bool,
    drafting: Drafting,
) -> Engine<Flex> {
    let config = EngineConfig {
        slots: 5,
        capacity: 64,
        prefill_tokens: 8,
        deterministic,
        drafting,
    };
    Engine::new(Arc::clone(decoder), config).unwrap()
}

pub fn step(engine: &mut Engine<Flex>, bits: &mut Bits) {
    engine.step(&mut |event| {
        if let EventKind::Token(chosen) = event.kind {
            let logprob = chosen.logprob.unwrap().to_bits();
            let key = (event.request, event.sample);
            bits.entry(key).or_default().push((chosen.id, logprob));
        }
    });
}

fn request(rng: &mut ChaCha8Rng) -> Request {
    let len = rng.random_range(1..40);
    let mut request = Request {
        // Some prompts share a prefix, so caches are reused.
        prompt: (0..len)
            .map(|i| (i * 3 + i / 17 * rng.random_range(0..3)) % 23)
            .collect(),
        samples: rng.random_range(1..3),
        max_new_tokens: rng.random_range(1..20),
        ..Request::default()
    };
    request.chooser.top_logprobs = Some(0);
    request.chooser.sampler.seed = rng.random();
    request
}

/// Returns true if requests that arrive at random have the same bits as when run separately.
fn same_as_single(name: &str, deterministic: bool, drafting: Drafting) -> bool {
    let decoder = decoder(name);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let requests: Vec<Request> = (0..12).map(|_| request(&mut rng)).collect();
    let mut together = engine(&decoder, deterministic, drafting);
    let (mut bits, mut ids) = (Bits::new(), Vec::new());
    for request in &requests {
        ids.push(together.submit(request.clone()).unwrap());
        if rng.random_bool(0.3) {
            together.submit_embedding(vec![vec![3; 30]]).unwrap();
        }
        for _ in 0..rng.random_range(0..6) {
            step(&mut together, &mut bits);
        }
    }
    while !together.is_idle() {
        step(&mut together, &mut bits);
    }
    requests.iter().zip(ids).all(|(request, id)| {
        let (mut engine, mut alone) = (engine(&decoder, deterministic, drafting), Bits::new());
        let only = engine.submit(request.clone()).unwrap();
        while !engine.is_idle() {
            step(&mut engine, &mut alone);
        }
        (0..request.samples).all(|sample| bits[&(id, sample)] == alone[&(only, sample)])
    })
}

#[test]
fn deterministic_samples_are_bit_identical() {
    for name in MODELS {
        assert!(same_as_single(name, true, Drafting::Never), "{name}");
    }
    // Drafts would depend on the other requests.
    assert!(same_as_single("pocket-tales", true, Drafting::Always(4)));
    // Without the setting, bits do differ.
    assert!(!same_as_single("pocket-tales", false, Drafting::Never));
}
