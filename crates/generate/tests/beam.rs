//! Beam search of decoders and encoder–decoders against `transformers`, and against the search of all sequences; greedy
//! targets. The fixtures are the model's.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use burn_flex::Flex;
use emberlm_generate::beam::search;
use emberlm_generate::{
    Beam, BeamModel, BeamOptions, Finish, GenerateError, GenerateOptions, Generator, LogitsError,
    SamplerConfig, beam_search,
};
use emberlm_model::Transformer;
use emberlm_model::hugging_face::HuggingFaceModel;
use serde_json::Value;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures")
}

/// Whole numbers of an `expected.safetensors`, by name, and its metadata.
pub struct Expected {
    bytes: Vec<u8>,
    header: Value,
    data: usize,
}

impl Expected {
    fn read(folder: &str) -> Self {
        let bytes = fs::read(fixtures().join(folder).join("expected.safetensors")).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        Self {
            bytes,
            header,
            data: 8 + length,
        }
    }

    fn ids(&self, name: &str) -> Vec<i64> {
        let offset = |end: usize| self.header[name]["data_offsets"][end].as_u64().unwrap() as usize;
        let bytes = &self.bytes[self.data + offset(0)..self.data + offset(1)];
        let numbers = bytes.as_chunks::<8>().0.iter();
        numbers.map(|bytes| i64::from_le_bytes(*bytes)).collect()
    }

    pub fn tokens(&self, name: &str) -> Vec<u32> {
        self.ids(name).into_iter().map(|id| id as u32).collect()
    }

    fn searches(&self) -> Vec<Value> {
        let text = self.header["__metadata__"]["beams"].as_str().unwrap();
        serde_json::from_str(text).unwrap()
    }

    /// The first source without its padding.
    pub fn source(&self) -> Vec<u32> {
        let (source, mask) = (self.tokens("source"), self.ids("mask"));
        let len = mask.len() / 2;
        let kept = source.iter().zip(&mask).take(len);
        kept.filter(|(_, kept)| **kept == 1)
            .map(|(id, _)| *id)
            .collect()
    }
}

pub const MODELS: [&str; 5] = ["t5-relu", "t5-early", "t5-untied", "t5-silu", "mt5-untied"];

pub fn model(name: &str) -> (Transformer<Flex>, Expected) {
    let folder = format!("encoder_decoder/{name}");
    let directory = HuggingFaceModel::open(&fixtures().join(&folder)).unwrap();
    let model = directory.decoder(&Default::default()).unwrap();
    (model, Expected::read(&folder))
}

fn options(search: &Value, stop: u32) -> BeamOptions {
    let size = |name: &str| search[name].as_u64().unwrap() as usize;
    BeamOptions {
        beams: size("beams"),
        length_penalty: search["length_penalty"].as_f64().unwrap(),
        max_new_tokens: size("max_new_tokens"),
        stop_tokens: vec![stop],
    }
}

fn check(name: &str, found: &[Beam], mut tokens: Vec<u32>, search: &Value, stop: u32) {
    let finish = match tokens.last() {
        Some(&last) if last == stop => {
            tokens.pop();
            Finish::Stop(stop)
        }
        _ => Finish::Length,
    };
    let best = &found[0];
    assert_eq!(best.tokens, tokens, "{name} {search}");
    assert_eq!(best.finish, finish, "{name} {search}");
    let score = search["score"].as_f64().unwrap();
    let error = (best.score / score - 1.0).abs();
    assert!(error < 2e-6, "{name} {search}: {}", best.score);
    assert!(found.is_sorted_by(|a, b| a.score >= b.score));
}

#[test]
fn searches_of_encoder_decoders_are_those_of_transformers() {
    for name in MODELS {
        let (model, expected) = model(name);
        for (number, search) in expected.searches().iter().enumerate() {
            let options = options(search, 1);
            let found = beam_search(&model, &expected.source(), &options).unwrap();
            let tokens = expected.tokens(&format!("beams.{number}"));
            check(name, &found, tokens, search, 1);
        }
    }
}

#[test]
fn searches_of_decoders_are_those_of_transformers() {
    let text = fs::read(fixtures().join("encoder_decoder/decoder_beams.json")).unwrap();
    let all: HashMap<String, Vec<Value>> = serde_json::from_slice(&text).unwrap();
    assert_eq!(all.len(), 4);
    for (name, searches) in all {
        let folder = format!("families/{name}");
        let directory = HuggingFaceModel::open(&fixtures().join(&folder)).unwrap();
        let decoder = directory.decoder::<Flex>(&Default::default()).unwrap();
        let prompt = Expected::read(&folder).tokens("prompt");
        for search in &searches {
            let options = options(search, 2);
            let found = beam_search(&decoder, &prompt, &options).unwrap();
            let tokens = search["tokens"].as_array().unwrap().iter();
            let tokens = tokens.map(|id| id.as_u64().unwrap() as u32).collect();
            check(&name, &found, tokens, search, 2);
        }
    }
}

#[test]
fn greedy_targets_are_those_of_transformers() {
    for name in MODELS {
        let (model, expected) = model(name);
        let tokens = expected.tokens("greedy");
        let sampler = SamplerConfig {
            temperature: 0.0,
            ..SamplerConfig::default()
        };
        let options = GenerateOptions {
            max_new_tokens: tokens.len(),
            chooser: sampler.into(),
            ..GenerateOptions::default()
        };
        let mut generator = Generator::new(&model, &expected.source(), &options).unwrap();
        let found: Vec<u32> = generator.by_ref().map(Result::unwrap).collect();
        assert_eq!(found, tokens, "{name}");
        assert_eq!(generator.finish(), Some(Finish::Length));
        // One beam is greedy.
        let options = BeamOptions {
            beams: 1,
            max_new_tokens: tokens.len(),
            ..BeamOptions::default()
        };
        let found = beam_search(&model, &expected.source(), &options).unwrap();
        assert_eq!(found[0].tokens, tokens, "{name}");
    }
}

/// Logits that follow from the tokens so far, by a hash.
#[derive(Default)]
struct Table {
    vocab_size: usize,
    sequences: Vec<Vec<u32>>,
}

impl Table {
    fn row(&self, tokens: &[u32]) -> Vec<f32> {
        let row = |id: u32| {
            let all = tokens.iter().chain([&id]);
            let hash = all.fold(7u64, |hash, &token| {
                (hash ^ u64::from(token + 1))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(23)
            });
            (hash % 1000) as f32 / 250.0
        };
        (0..self.vocab_size as u32).map(row).collect()
    }
}

impl BeamModel for Table {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn begin(&mut self) -> Result<Vec<f32>, LogitsError> {
        self.sequences = vec![Vec::new()];
        Ok(self.row(&[]))
    }

    fn extend(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<f32> {
        let next = parents.iter().zip(tokens).map(|(&parent, &token)| {
            let mut tokens = self.sequences[parent].clone();
            tokens.extend([token]);
            tokens
        });
        self.sequences = next.collect();
        self.sequences
            .iter()
            .flat_map(|tokens| self.row(tokens))
            .collect()
    }
}

/// With as many beams as there are sequences, the search finds the best of all.
#[test]
fn a_wide_search_finds_the_best_sequence_of_all() {
    let table = Table {
        vocab_size: 50,
        ..Table::default()
    };
    // Two tokens: 50 sequences of one, and 2500 of two; 25 beams hold the better half after the first.
    let logprobs = |tokens: &[u32]| -> Vec<f64> {
        let row = table.row(tokens);
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        row.iter().map(|&x| f64::from(x) - sum.ln()).collect()
    };
    let mut all = Vec::new();
    for (first, one) in logprobs(&[]).into_iter().enumerate() {
        if first == 3 {
            all.push((vec![], one));
            continue;
        }
        for (second, two) in logprobs(&[first as u32]).into_iter().enumerate() {
            let tokens = match second {
                3 => vec![first as u32],
                _ => vec![first as u32, second as u32],
            };
            all.push((tokens, (one + two) / 2.0));
        }
    }
    let best = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let options = BeamOptions {
        beams: 25,
        length_penalty: 1.0,
        max_new_tokens: 2,
        stop_tokens: vec![3],
    };
    let mut model = Table {
        vocab_size: 50,
        ..Table::default()
    };
    let found = search(&mut model, &options).unwrap();
    assert_eq!(found.len(), 25);
    assert_eq!(found[0].tokens, best.0);
    assert!((found[0].score - best.1).abs() < 1e-6);
}

#[test]
fn settings_out_of_range_are_refused() {
    let narrow = "must be between 1 and 5 with this vocabulary";
    for (change, expected) in [
        (
            (|of| of.beams = 0) as fn(&mut BeamOptions),
            format!("beams = 0: {narrow}"),
        ),
        (|of| of.beams = 6, format!("beams = 6: {narrow}")),
        (
            |of| (of.beams, of.stop_tokens) = (4, vec![1, 2]),
            "beams = 4: must be between 1 and 3 with this vocabulary".to_owned(),
        ),
        (
            |of| of.length_penalty = f64::NAN,
            "length_penalty = NaN: must be a finite number".to_owned(),
        ),
        (
            |of| of.max_new_tokens = 0,
            "max_new_tokens = 0: must be at least 1".to_owned(),
        ),
        (
            |of| of.stop_tokens = vec![10],
            "stop_tokens = 10: must be below the vocabulary's size of 10".to_owned(),
        ),
    ] {
        let (mut options, mut model) = (BeamOptions::default(), Table::default());
        model.vocab_size = 10;
        change(&mut options);
        let error = search(&mut model, &options).unwrap_err();
        assert!(matches!(error, GenerateError::Setting(_)), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
}
