//! Directories whose matrices are f16 or bf16: they are held in 16 bits for inference, with the logits of f32.

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_model::hugging_face::{HuggingFaceModel, export};
use emberlm_model::weights::{Element, named_tensors};
use emberlm_model::{KvCache, PackedFormat, Transformer, WeightFormat};

use super::{fixture, fixtures, load, options};

const LEN: usize = 7;

/// The logits of all tokens in one pass, and of a token at a time.
fn logits(decoder: &Transformer<Flex>) -> [Vec<f32>; 2] {
    let vocab_size = decoder.config().vocab_size();
    let ids: Vec<i64> = (0..LEN)
        .map(|id| ((3 * id + 1) % vocab_size) as i64)
        .collect();
    let tensor = |ids: &[i64]| {
        let data = TensorData::new(ids.to_vec(), [1, ids.len()]);
        Tensor::<Flex, 2, Int>::from_data(data, &Default::default())
    };
    let whole = decoder.forward(tensor(&ids)).into_data();
    let mut cache = KvCache::new(decoder.config(), 1, LEN, &Default::default());
    let step = |id: &i64| {
        let logits = decoder.next_logits(tensor(&[*id]), &mut cache).into_data();
        logits.iter::<f32>().collect::<Vec<f32>>()
    };
    [whole.iter().collect(), ids.iter().flat_map(step).collect()]
}

/// Compares the model in 16 bits with the model in f32.
fn check(model: &HuggingFaceModel, format: PackedFormat, name: &str) {
    let device = Default::default();
    let inference = model.inference_format().unwrap();
    assert_eq!(inference.layers(), Some(format), "{name}");
    let held: Transformer<Flex> = model.decoder_in(inference, &device).unwrap();
    let floats: Transformer<Flex> = model.decoder_in(WeightFormat::F32, &device).unwrap();
    assert_eq!(floats.weight_format(), WeightFormat::F32, "{name}");
    // Training takes the weights in f32.
    assert_eq!(model.weight_format(), WeightFormat::F32, "{name}");
    for (path, tensor) in named_tensors(&held) {
        let is_small = ["positions", "router", "delta", "latent.up"]
            .iter()
            .any(|of| path.contains(of));
        let is_gate = path.contains("gate") && path.contains("shared");
        let is_matrix = tensor.shape.len() > 1 && !is_small && !is_gate;
        assert!(!is_matrix, "{name}: {path} is in f32");
    }
    // The same products in f32, which kernels for other numbers of rows add up in another order.
    for (found, expected) in logits(&held).iter().zip(&logits(&floats)) {
        let largest = expected
            .iter()
            .fold(0.0f32, |largest, x| largest.max(x.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(
                error <= 1e-5 * largest,
                "{name}: {found} {expected} {largest}"
            );
        }
    }
}

#[test]
fn every_family_is_held_in_16_bits_with_the_logits_of_f32() {
    for name in fixtures() {
        let decoder = load(&fixture(&name));
        for (element, format) in [
            (Element::F16, PackedFormat::F16),
            (Element::Bf16, PackedFormat::Bf16),
        ] {
            let folder = tempfile::tempdir().unwrap();
            export(&decoder, folder.path(), &options(element)).unwrap();
            let model = HuggingFaceModel::open(folder.path()).unwrap();
            check(&model, format, &name);
        }
    }
}

/// Directories that `transformers` wrote.
#[test]
fn published_matrices_of_16_bits_are_held_as_they_are() {
    for name in [
        "gptj-whole",
        "llama-bias",
        "mixtral-window",
        "starcoder2-nobias",
    ] {
        let model = HuggingFaceModel::open(&fixture(name)).unwrap();
        check(&model, PackedFormat::Bf16, name);
    }
    for name in ["glm4-nobias", "gpt_neox-nobias"] {
        let model = HuggingFaceModel::open(&fixture(name)).unwrap();
        check(&model, PackedFormat::F16, name);
    }
}
