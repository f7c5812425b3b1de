//! Experts in MXFP4 as gpt-oss' checkpoints store them (`fixtures/make_quantized.py`), and in the file that llama.cpp's conversion
//! makes of them (`fixtures/make_gguf.py`).

use std::path::{Path, PathBuf};

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use emberlm_gguf::{GgufFile, TensorType};
use emberlm_model::gguf::FileType;
use emberlm_model::gguf_export::{GgufOptions, export};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::weights::named_tensors;
use emberlm_model::{PackedFormat, Transformer, WeightFormat};
use serde_json::json;

use super::quantized::check_expected;
use super::{Copied, fixture};

fn folder() -> PathBuf {
    fixture("").join("../mxfp4")
}

fn copied() -> Copied {
    Copied::of("../mxfp4")
}

fn loaded(path: &Path, format: Option<WeightFormat>) -> Transformer<Flex> {
    let model = HuggingFaceModel::open(path).unwrap_or_else(|error| panic!("{error}"));
    let format = format.unwrap_or_else(|| model.weight_format());
    let decoder = model.decoder_in(format, &Default::default());
    decoder.unwrap_or_else(|error| panic!("{error}"))
}

fn logits(decoder: &Transformer<Flex>) -> Vec<f32> {
    let tokens = [[5, 1, 50, 33, 2, 9, 9, 41, 17, 3]];
    let tokens = Tensor::<Flex, 2, Int>::from_data(tokens, &Default::default());
    decoder.forward(tokens).into_data().iter().collect()
}

#[test]
fn experts_have_the_logits_of_transformers() {
    let floats = loaded(&folder(), Some(WeightFormat::F32));
    check_expected(&floats, &folder(), 2e-5);
}

#[test]
fn experts_stay_in_the_blocks_that_are_stored() {
    let decoder = loaded(&folder(), None);
    assert_eq!(decoder.weight_format().layers(), Some(PackedFormat::Mxfp4));
    // Packed weights are not parameters.
    let paths = named_tensors(&decoder).into_iter().map(|(path, _)| path);
    let weights: Vec<String> = paths.filter(|path| path.ends_with(".weight")).collect();
    let has = |part: &str| weights.iter().any(|path| path.contains(part));
    assert!(
        has(".attention.qkv.") && has(".router.") && !has(".experts."),
        "{weights:?}"
    );
    // Products with blocks round their inputs to 8 bits.
    let [found, wanted] = [&decoder, &loaded(&folder(), Some(WeightFormat::F32))].map(logits);
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
    let difference = norm(&mut found.iter().zip(&wanted).map(|(a, b)| a - b));
    assert!(difference < 0.05 * norm(&mut wanted.iter().copied()));
}

#[test]
fn files_of_llama_cpp_have_the_same_blocks() {
    let file = folder().join("model.gguf");
    assert_eq!(
        logits(&loaded(&file, None)),
        logits(&loaded(&folder(), None))
    );
    let [one, other] = [&file, &folder()].map(|path| loaded(path, Some(WeightFormat::F32)));
    assert_eq!(logits(&one), logits(&other));
}

#[test]
fn exported_experts_have_the_same_values() {
    let (temporary, name) = (tempfile::tempdir().unwrap(), "blk.1.ffn_up_exps.weight");
    let path = temporary.path().join("m.gguf");
    let options = GgufOptions {
        file_type: FileType::Mxfp4Moe,
        name: "m".to_owned(),
        metadata: Vec::new(),
        importance: None,
        products: None,
    };
    export(&loaded(&folder(), Some(WeightFormat::F32)), &path, &options).unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.tensor(name).unwrap().tensor_type, TensorType::Mxfp4);
    let other = file.tensor("blk.1.attn_q.weight").unwrap();
    assert_eq!(other.tensor_type, TensorType::Q8_0);
    assert_eq!(
        file.metadata().count("general.file_type").unwrap(),
        Some(38)
    );
    let values = |path: &Path| {
        let model = HuggingFaceModel::open(path).unwrap();
        let store = model.tensors().unwrap();
        let mut values = Vec::new();
        let rows = store.shape(name).unwrap()[0];
        store
            .read_rows(name, 0..rows, &mut |_, run| values.extend_from_slice(run))
            .unwrap();
        values
    };
    assert_eq!(values(&path), values(&folder().join("model.gguf")));
}

#[test]
fn damaged_blocks_are_refused() {
    let scales = "model.layers.1.mlp.experts.down_proj_scales";
    let damaged = copied();
    damaged.rewrite(|tensors| {
        tensors.remove(scales).unwrap();
    });
    assert_eq!(
        damaged.error(),
        format!("DIR: tensor `{scales}` is missing")
    );
    let damaged = copied();
    damaged.rewrite(|tensors| {
        // Expert 1, output 3.
        tensors.get_mut(scales).unwrap().bytes[64 + 3] = u8::MAX;
    });
    let rule = format!("DIR: tensor `{scales}` has the scale NaN in row 67: must be finite");
    assert_eq!(damaged.error(), rule);
    let damaged = copied();
    damaged.rewrite(|tensors| {
        let stored = tensors.get_mut(scales).unwrap();
        stored.shape = vec![3, 1, 64];
    });
    let error = damaged.error();
    assert!(
        error.contains(scales) && error.contains("[3, 64, 1]"),
        "{error}"
    );
}

#[test]
fn only_stacked_experts_have_this_method() {
    let quantization = json!({"quantization_config": {"quant_method": "mxfp4"}});
    let copied = Copied::of("mixtral-top2");
    copied.edit("config.json", |fields| {
        fields["quantization_config"] = quantization["quantization_config"].clone();
    });
    let error = copied.error();
    assert!(
        error.contains("quant_method") && error.contains("compressed-tensors"),
        "{error}"
    );
}
