//! Encoders: directories of BERT, RoBERTa, DistilBERT and ModernBERT against `transformers`, padding, texts packed without padding,
//! export, training, and directories that are refused. `fixtures/make_encoders.py` made the directories.

mod directories;
mod parity;
mod scores;
mod training;

use std::path::PathBuf;

use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::ModelInput;
use emberlm_model::hugging_face::HuggingFaceModel;

use crate::parity::fixture::Fixture;

const MODELS: [&str; 14] = [
    "bert-bare",
    "bert-early",
    "bert-masked",
    "bert-sequence",
    "distilbert-masked",
    "distilbert-sequence",
    "modernbert-bare",
    "modernbert-masked",
    "modernbert-sequence",
    "modernbert-token",
    "roberta-masked",
    "roberta-sequence",
    "roberta-token",
    "xlm-bare",
];

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/encoders");
    folder.join(name)
}

fn open(name: &str) -> (HuggingFaceModel, Fixture) {
    let folder = folder(name);
    let fixture = Fixture::read(folder.join("expected.safetensors"));
    (HuggingFaceModel::open(&folder).unwrap(), fixture)
}

fn ids<B: Backend>(fixture: &Fixture, name: &str, device: &Device<B>) -> Tensor<B, 2, Int> {
    let (ids, shape) = fixture.ids(name);
    Tensor::from_data(TensorData::new(ids, shape), device)
}

/// The fixture's batch with its padding.
fn batch<B: Backend>(fixture: &Fixture, device: &Device<B>) -> ModelInput<B> {
    ModelInput {
        segments: (!fixture.names("segments").is_empty()).then(|| ids(fixture, "segments", device)),
        padding: Some(ids::<B>(fixture, "mask", device).equal_elem(1)),
        ..ids(fixture, "ids", device).into()
    }
}

/// The tokens and segments of each text without its padding.
fn texts(fixture: &Fixture) -> Vec<(Vec<u32>, Vec<u32>)> {
    let (all, [_, len]) = fixture.ids("ids");
    let (mask, _) = fixture.ids("mask");
    let segments = match fixture.names("segments").is_empty() {
        true => vec![0; all.len()],
        false => fixture.ids("segments").0,
    };
    let rows = mask.chunks(len).enumerate();
    let texts = rows.map(|(row, mask)| {
        let kept = mask.iter().filter(|&&kept| kept == 1).count();
        let of = |values: &[i64]| {
            let values = &values[row * len..][..kept];
            values.iter().map(|&value| value as u32).collect()
        };
        (of(&all), of(&segments))
    });
    texts.collect()
}
