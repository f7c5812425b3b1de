//! Encoder–decoders: directories of T5 and mT5 against `transformers`, padding, caches, export, initial weights, training, and directories that
//! are refused. `fixtures/make_encoder_decoder.py` made the directories.

mod directories;
mod parity;
mod training;

use std::path::PathBuf;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::hugging_face::HuggingFaceModel;

use crate::parity::fixture::Fixture;

const MODELS: [&str; 5] = ["t5-relu", "t5-early", "t5-untied", "t5-silu", "mt5-untied"];

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/encoder_decoder");
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

fn padding<B: Backend>(fixture: &Fixture, device: &Device<B>) -> Tensor<B, 2, Bool> {
    ids::<B>(fixture, "mask", device).equal_elem(1)
}

/// The first source without its padding, `[1, source]`.
fn first_source<B: Backend>(fixture: &Fixture, device: &Device<B>) -> Tensor<B, 2, Int> {
    let (mask, [_, len]) = fixture.ids("mask");
    let kept = mask[..len].iter().filter(|&&kept| kept == 1).count();
    ids::<B>(fixture, "source", device)
        .narrow(0, 0, 1)
        .narrow(1, 0, kept)
}
