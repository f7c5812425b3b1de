//! Requests for several adapters of one model share passes, and have the results of each adapter by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use emberlm_generate::{
    Drafting, EmbeddingRequest, Engine, EngineConfig, EventKind, Request, embed,
};
use emberlm_model::config::Experts;
use emberlm_model::nn::FeedForwardLayer;
use emberlm_model::{LoraConfig, Transformer, TransformerConfig, WeightFormat};
use emberlm_system::random::SplitMix64;

use super::deterministic::{Bits, step};
use super::{EventLog, drain, greedy, plain, raw, run};

const PROMPT: [u32; 9] = [3, 14, 1, 5, 9, 2, 6, 5, 3];
const CAPACITY: usize = 64;
const MODELS: [&str; 5] = [
    "pocket-tales",
    "char-nano",
    "linear attention",
    "8 bits",
    "experts",
];

/// A base model and adapters of it: of queries and values, of all layers, and with magnitudes (DoRA).
fn models(name: &str) -> (Transformer<Flex>, Vec<Arc<Transformer<Flex>>>) {
    let mut raw = raw(match name {
        "experts" => "pocket-tales",
        name => name,
    });
    // Wide enough for products to use different kernels for one, some and many rows.
    (raw.d_model, raw.heads, raw.kv_heads, raw.seq_len) = (128, 4, None, CAPACITY);
    if name == "experts" {
        raw.experts = Some(Experts {
            count: 4,
            normalize: true,
            shared_width: Some(32),
            ..Experts::default()
        });
    }
    let config = TransformerConfig::try_from(raw).unwrap();
    let weights = match name {
        "8 bits" => WeightFormat::INT8,
        _ => WeightFormat::F32,
    };
    let base = config.init::<Flex>(9, &Default::default());
    let base = base.with_weights(weights).unwrap();
    let all = vec!["all-linear".to_owned()];
    let settings = [
        (2, Vec::new(), false),
        (3, all.clone(), false),
        (2, all, true),
    ];
    let adapted = settings.map(|(rank, targets, dora)| {
        let config = LoraConfig {
            rank,
            targets,
            dora,
            ..LoraConfig::default()
        };
        Arc::new(trained(base.clone().with_adapter(&config, 5).unwrap()))
    });
    (base, adapted.into())
}

/// Sets the factors B, which are zero at first, to other values, the same in every run: with some values two tokens are
/// equally probable up to rounding, and either can be chosen.
fn trained(mut decoder: Transformer<Flex>) -> Transformer<Flex> {
    let mut random = SplitMix64::new(3);
    for block in &mut decoder.stack.blocks {
        let mut linears = vec![&mut block.attention.qkv, &mut block.attention.out];
        let layers = match &mut block.feed_forward {
            FeedForwardLayer::Dense(layer) => vec![layer],
            FeedForwardLayer::Experts(mixture) => {
                let shared = mixture.shared.iter_mut().map(|shared| &mut shared.expert);
                mixture.experts.iter_mut().chain(shared).collect()
            }
        };
        for layer in layers {
            linears.extend(&mut layer.gate);
            linears.extend([&mut layer.up, &mut layer.down]);
        }
        let adapters = linears
            .into_iter()
            .filter_map(|linear| linear.adapter.as_mut());
        for adapter in adapters {
            for part in &mut adapter.parts {
                let [rows, columns] = part.b.val().dims();
                let uniform = |_| random.below(1 << 20) as f32 / (1 << 20) as f32;
                let values = (0..rows * columns).map(uniform);
                let values: Vec<f32> = values.map(|u| 1.4 * (u - 0.5)).collect();
                let values = TensorData::new(values, [rows, columns]);
                part.b = Param::from_tensor(Tensor::from_data(values, &Default::default()));
            }
        }
    }
    decoder
}

/// An engine for the model and its adapters, whose numbers are 0, 1 and 2.
fn engine(
    base: &Transformer<Flex>,
    adapted: &[Arc<Transformer<Flex>>],
    deterministic: bool,
) -> Engine<Flex> {
    let mut bank = base.clone();
    for (number, adapted) in adapted.iter().enumerate() {
        assert_eq!(bank.add_to_bank(adapted).unwrap(), number);
    }
    single(Arc::new(bank), deterministic)
}

fn single(decoder: Arc<Transformer<Flex>>, deterministic: bool) -> Engine<Flex> {
    let config = EngineConfig {
        slots: 5,
        capacity: CAPACITY,
        prefill_tokens: 16,
        deterministic,
        drafting: Drafting::Never,
    };
    Engine::new(decoder, config).unwrap()
}

fn with(adapter: Option<usize>, request: Request) -> Request {
    Request { adapter, ..request }
}

/// The model by itself: the base, or one of the adapters.
fn separate(
    base: &Transformer<Flex>,
    adapted: &[Arc<Transformer<Flex>>],
    adapter: Option<usize>,
) -> Arc<Transformer<Flex>> {
    adapter.map_or_else(
        || Arc::new(base.clone()),
        |number| Arc::clone(&adapted[number]),
    )
}

#[test]
fn adapters_come_and_go_while_requests_run() {
    let (base, adapted) = models(MODELS[0]);
    let expected = |adapter| {
        let separate = separate(&base, &adapted, adapter);
        plain(&separate, &greedy(&PROMPT, 12), 0).tokens
    };
    let mut engine = single(Arc::new(base.clone()), false);
    let mut events = EventLog::default();
    let submit = |engine: &mut Engine<Flex>, adapter| {
        let request = with(adapter, greedy(&PROMPT, 12));
        engine.submit(request)
    };
    let on_base = submit(&mut engine, None).unwrap();
    super::step(&mut engine, &mut events);
    let mut bank = base.clone();
    bank.add_to_bank(&adapted[0]).unwrap();
    engine.replace_bank(Arc::new(bank.clone())).unwrap();
    let first = submit(&mut engine, Some(0)).unwrap();
    super::step(&mut engine, &mut events);
    bank.add_to_bank(&adapted[1]).unwrap();
    engine.replace_bank(Arc::new(bank.clone())).unwrap();
    let second = submit(&mut engine, Some(1)).unwrap();
    drain(&mut engine, &mut events);
    for (id, adapter) in [(on_base, None), (first, Some(0)), (second, Some(1))] {
        assert_eq!(events.of(id, 0).tokens, expected(adapter), "{adapter:?}");
    }
    bank.clear_in_bank(0);
    engine.replace_bank(Arc::new(bank)).unwrap();
    let second = submit(&mut engine, Some(1)).unwrap();
    drain(&mut engine, &mut events);
    let recorded = events.of(second, 0);
    assert_eq!(recorded.tokens, expected(Some(1)));
    assert_ne!(recorded.ended().reused_prompt, 0, "the caches are kept");
    let (other, _) = models(MODELS[1]);
    assert!(engine.replace_bank(Arc::new(other)).is_err());
}

#[test]
fn requests_for_different_adapters_share_passes() {
    for name in MODELS {
        let (base, adapted) = models(name);
        let mut engine = engine(&base, &adapted, false);
        let mut events = EventLog::default();
        let all = [Some(1), None, Some(0), Some(2), Some(0)];
        let ids = all.map(|adapter| {
            let request = with(adapter, greedy(&PROMPT, 12));
            engine.submit(request).unwrap()
        });
        drain(&mut engine, &mut events);
        let mut distinct = BTreeMap::new();
        for (adapter, id) in all.into_iter().zip(ids) {
            let separate = separate(&base, &adapted, adapter);
            let expected = plain(&separate, &greedy(&PROMPT, 12), 0).tokens;
            assert_eq!(events.of(id, 0).tokens, expected, "{name}: {adapter:?}");
            distinct.insert(expected, adapter);
        }
        assert_eq!(
            distinct.len(),
            4,
            "{name}: every adapter has its own answer"
        );
        // 45 prompt tokens in chunks of 16, of which the first also finish the first prompt; then a pass for each token.
        let passes = engine.counts().passes;
        assert!(passes <= 3 + 12, "{name}: {passes} passes");
    }
}

#[test]
fn deterministic_answers_have_the_bits_of_one_adapter_by_itself() {
    for name in MODELS {
        let (base, adapted) = models(name);
        let bits = |engine: &mut Engine<Flex>, requests: &[Request]| {
            let ids: Vec<_> = requests
                .iter()
                .map(|request| engine.submit(request.clone()).unwrap())
                .collect();
            let mut bits = Bits::new();
            while !engine.is_idle() {
                step(engine, &mut bits);
            }
            ids.into_iter()
                .map(|id| bits[&(id, 0)].clone())
                .collect::<Vec<_>>()
        };
        let request = |len: usize| {
            let prompt: Vec<u32> = PROMPT.iter().copied().cycle().take(len).collect();
            let mut request = greedy(&prompt, 8);
            request.chooser.top_logprobs = Some(0);
            request
        };
        let all = [
            (None, 5),
            (Some(1), 21),
            (Some(2), 9),
            (Some(0), 21),
            (Some(1), 9),
            (Some(2), 30),
        ];
        let requests: Vec<_> = all.map(|(adapter, len)| with(adapter, request(len))).into();
        let together = bits(&mut engine(&base, &adapted, true), &requests);
        for ((adapter, len), together) in all.into_iter().zip(together) {
            let mut engine = single(separate(&base, &adapted, adapter), true);
            let expected = bits(&mut engine, &[request(len)]);
            assert_eq!(vec![together], expected, "{name}: {adapter:?}");
        }
    }
}

#[test]
fn a_prefix_is_reused_only_with_the_same_adapter() {
    let (base, adapted) = models("pocket-tales");
    let mut engine = engine(&base, &adapted, false);
    for (adapter, reused) in [
        (Some(0), 0),
        (Some(1), 0),
        (None, 0),
        (Some(1), PROMPT.len() - 1),
        (None, PROMPT.len() - 1),
        (Some(0), PROMPT.len() - 1),
    ] {
        let made = run(&mut engine, &with(adapter, greedy(&PROMPT, 6)));
        assert_eq!(made.ended().reused_prompt, reused, "{adapter:?}");
        let separate = separate(&base, &adapted, adapter);
        assert_eq!(made.tokens, plain(&separate, &greedy(&PROMPT, 6), 0).tokens);
    }
}

#[test]
fn samples_of_one_request_have_its_adapter() {
    let (base, adapted) = models("pocket-tales");
    let mut engine = engine(&base, &adapted, false);
    let mut request = greedy(&PROMPT, 10);
    (request.samples, request.chooser.sampler.temperature) = (8, 1.0);
    let mut events = EventLog::default();
    let id = engine.submit(with(Some(1), request.clone())).unwrap();
    let other = engine.submit(greedy(&PROMPT, 10)).unwrap();
    drain(&mut engine, &mut events);
    for sample in 0..8 {
        let expected = plain(&adapted[1], &request, sample).tokens;
        assert_eq!(events.of(id, sample).tokens, expected, "{sample}");
    }
    let expected = plain(&base, &greedy(&PROMPT, 10), 0).tokens;
    assert_eq!(events.of(other, 0).tokens, expected);
}

#[test]
fn texts_are_embedded_with_their_adapters() {
    let (base, adapted) = models("char-nano");
    let mut engine = engine(&base, &adapted, false);
    let mut means = BTreeMap::new();
    let ids = [None, Some(0), Some(1), Some(2)].map(|adapter| {
        let texts = vec![PROMPT.to_vec()];
        let request = EmbeddingRequest { texts, adapter };
        (adapter, engine.submit_embedding(request).unwrap())
    });
    while !engine.is_idle() {
        engine.step(&mut |event| {
            if let EventKind::Embedded(mean) = event.kind {
                means.insert(event.request, mean);
            }
        });
    }
    for (adapter, id) in ids {
        let expected = embed(&separate(&base, &adapted, adapter), &PROMPT).unwrap();
        let pairs = means[&id].iter().zip(&expected);
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-4, "{adapter:?}: {error}");
    }
}

#[test]
fn an_adapter_that_the_model_does_not_have_is_refused() {
    let (base, adapted) = models("pocket-tales");
    let mut engine = engine(&base, &adapted, false);
    let message = "adapter = 3: must be below 3, the number of adapters of the model";
    let error = engine
        .submit(with(Some(3), greedy(&PROMPT, 2)))
        .unwrap_err();
    assert_eq!(error.to_string(), message);
    let texts = EmbeddingRequest {
        texts: vec![PROMPT.to_vec()],
        adapter: Some(3),
    };
    assert_eq!(
        engine.submit_embedding(texts).unwrap_err().to_string(),
        message
    );
    assert!(engine.is_idle());
    let (mut other, _) = models("char-nano");
    let error = other.add_to_bank(&adapted[0]).unwrap_err().to_string();
    assert_eq!(error, "the adapter is for a model of another configuration");
    assert_eq!(
        other.add_to_bank(&base).unwrap_err().to_string(),
        "the model has no adapter"
    );
}
