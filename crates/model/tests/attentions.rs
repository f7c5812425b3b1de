//! Attention weights of encoders and encoder–decoders against `transformers` with `output_attentions=True`, and passes over
//! several targets. `fixtures/make_attentions.py` made the weights.

use std::path::PathBuf;

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::{RequestedOutput, SequenceChunk};

use crate::parity::checks::{host, relative, within};
use crate::parity::fixture::Fixture;

const ENCODERS: [&str; 4] = [
    "bert-masked",
    "bert-sequence",
    "distilbert-sequence",
    "roberta-token",
];
const ENCODER_DECODERS: [&str; 5] = ["t5-relu", "t5-early", "t5-untied", "t5-silu", "mt5-untied"];

/// `transformers` takes the softmax and some norms in float32.
const WEIGHTS: f64 = 3e-6;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn expected(name: &str) -> Fixture {
    Fixture::read(fixtures().join(format!("attentions/{name}.safetensors")))
}

fn row(fixture: &Fixture, name: &str) -> Tensor<Flex, 2, Int> {
    let (ids, shape) = fixture.ids(name);
    Tensor::from_data(TensorData::new(ids, shape), &Default::default())
}

/// Compares the weights of every layer, `[1, heads, queries, keys]` each.
fn check(model: &str, kind: &str, found: Vec<Tensor<Flex, 4>>, fixture: &Fixture) {
    let prefix = format!("{kind}.");
    assert_eq!(found.len(), fixture.names(&prefix).len(), "{model} {kind}");
    for (layer, found) in found.into_iter().enumerate() {
        let name = format!("{prefix}{layer}");
        let error = relative(&host(found), &fixture.floats(&name));
        within(&format!("{model} {name}"), error, WEIGHTS);
    }
}

#[test]
fn weights_of_encoders_are_those_of_transformers() {
    for name in ENCODERS {
        let fixture = expected(name);
        let directory = HuggingFaceModel::open(&fixtures().join("encoders").join(name)).unwrap();
        let encoder = directory.decoder::<Flex>(&Default::default()).unwrap();
        let found = encoder.text_attention_weights(row(&fixture, "ids"));
        check(name, "layer", found, &fixture);
    }
}

#[test]
fn weights_of_encoder_decoders_are_those_of_transformers() {
    for name in ENCODER_DECODERS {
        let fixture = expected(name);
        let folder = fixtures().join("encoder_decoder").join(name);
        let directory = HuggingFaceModel::open(&folder).unwrap();
        let model = directory.decoder::<Flex>(&Default::default()).unwrap();
        let (source, target) = (row(&fixture, "source"), row(&fixture, "target"));
        let found = model.encoder_attention_weights(source.clone(), None);
        check(name, "encoder", found, &fixture);
        let source = model.encode_source(source, None);
        let found = model.decoder_attention_weights(target.clone(), &source);
        check(name, "decoder", found, &fixture);
        let found = model.cross_attention_weights(target.clone(), &source);
        check(name, "cross", found, &fixture);
        let logits = host(model.decode(target, &source));
        let error = relative(&logits, &fixture.floats("logits"));
        within(&format!("{name} logits"), error, WEIGHTS);
    }
}

/// Three targets in one pass, each with a separate source and in chunks of other lengths.
#[test]
fn a_pass_over_several_targets_has_the_logits_of_each() {
    for name in ENCODER_DECODERS {
        let fixture = expected(name);
        let folder = fixtures().join("encoder_decoder").join(name);
        let directory = HuggingFaceModel::open(&folder).unwrap();
        let model = directory.decoder::<Flex>(&Default::default()).unwrap();
        let (ids, [_, len]) = fixture.ids("source");
        let target: Vec<u32> = fixture.list("target").iter().map(|&id| id as u32).collect();
        // The second is the fixture's source.
        let sources = [2, len, 5].map(|kept| {
            let ids = TensorData::new(ids[..kept].to_vec(), [1, kept]);
            model.encode_source(Tensor::from_data(ids, &Default::default()), None)
        });
        let mut caches = [(); 3].map(|()| model.cache(1, target.len()));
        let steps: [[usize; 3]; 3] = [[1, 3, 0], [4, 1, 2], [2, 3, 5]];
        let mut logits: [Vec<f32>; 3] = Default::default();
        for lengths in steps {
            let mut chunks: Vec<_> = caches
                .iter_mut()
                .zip(lengths)
                .zip(&sources)
                .map(|((cache, len), source)| SequenceChunk {
                    tokens: &target[cache.len()..cache.len() + len],
                    cache,
                    output: RequestedOutput::All,
                    source: Some(source),
                    adapter: None,
                })
                .collect();
            let output = host(model.ragged(&mut chunks).logits.unwrap());
            let width = output.len() / lengths.iter().sum::<usize>();
            let mut first = 0;
            for (logits, len) in logits.iter_mut().zip(lengths) {
                logits.extend(&output[first * width..(first + len) * width]);
                first += len;
            }
        }
        let error = relative(&logits[1], &fixture.floats("logits"));
        within(&format!("{name} ragged"), error, WEIGHTS);
        for (source, found) in sources.iter().zip(&logits) {
            let expected = host(model.decode(row(&fixture, "target"), source));
            within(name, relative(found, &expected), WEIGHTS);
        }
    }
}
