//! Directories with int8 weights: round trips are bit-exact, directories of `compressed-tensors` are readable, and
//! damaged directories and other quantizations are rejected.

use std::fs;
use std::path::Path;

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_model::hugging_face::{HuggingFaceModel, export};
use emberlm_model::weights::Element;
use emberlm_model::{Transformer, WeightFormat};
use half::bf16;
use safetensors::Dtype;
use serde_json::{Value, json};

use super::{Copied, Stored, bits, fields_of, fixture, fixtures, load, options, stored};

fn logits(decoder: &Transformer<Flex>) -> Vec<u32> {
    let vocab_size = decoder.config().vocab_size() as i64;
    let count = decoder.config().seq_len().min(7);
    let ids = (0..count as i64).map(|id| (3 * id + 1) % vocab_size);
    let ids = TensorData::new(ids.collect::<Vec<_>>(), [1, count]);
    let ids = Tensor::<Flex, 2, Int>::from_data(ids, &Default::default());
    let logits = decoder.forward(ids).into_data();
    logits.iter::<f32>().map(f32::to_bits).collect()
}

/// The tiny model, exported in int8.
pub fn tiny_int8() -> Copied {
    let copied = Copied::tiny();
    let packed = load(copied.0.path())
        .with_weights(WeightFormat::INT8)
        .unwrap();
    export(&packed, copied.0.path(), &options(Element::F32)).unwrap();
    copied
}

#[test]
fn packed_weights_round_trip() {
    for name in fixtures() {
        let packed = load(&fixture(&name))
            .with_weights(WeightFormat::INT8)
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        export(&packed, folder.path(), &options(Element::F32)).unwrap();
        let model = HuggingFaceModel::open(folder.path()).unwrap();
        assert_eq!(model.weight_format(), WeightFormat::INT8, "{name}");
        assert_eq!(model.element().unwrap(), Element::F32, "{name}");
        let again = load(folder.path());
        assert_eq!(again.weight_format(), WeightFormat::INT8, "{name}");
        assert_eq!(logits(&again), logits(&packed), "{name}");
        assert_eq!(bits(&again), bits(&packed), "{name}");
        assert!(!again.config().head().tied, "{name}");

        let twice = tempfile::tempdir().unwrap();
        export(&again, twice.path(), &options(Element::F32)).unwrap();
        assert!(stored(twice.path()) == stored(folder.path()), "{name}");
        assert_eq!(fields_of(twice.path()), fields_of(folder.path()), "{name}");
    }
}

/// Unpacked weights are the products of values and scales. Exporting them gives a floating-point directory.
#[test]
fn packed_weights_can_be_unpacked() {
    for name in ["llama-gqa", "gpt_neox-odd", "gpt2-tied"] {
        let folder = tempfile::tempdir().unwrap();
        let packed = load(&fixture(name))
            .with_weights(WeightFormat::INT8)
            .unwrap();
        export(&packed, folder.path(), &options(Element::F32)).unwrap();
        let model = HuggingFaceModel::open(folder.path()).unwrap();
        let device = Default::default();
        let floats = model
            .decoder_in::<Flex>(WeightFormat::F32, &device)
            .unwrap();
        assert_eq!(floats.weight_format(), WeightFormat::F32, "{name}");
        for (float, packed) in floats.stack.blocks.iter().zip(&packed.stack.blocks) {
            let [float_feed, packed_feed] =
                [float, packed].map(|block| block.feed_forward.dense().unwrap());
            for (float, packed) in [
                (&float.attention.qkv, &packed.attention.qkv),
                (&float_feed.down, &packed_feed.down),
            ] {
                let [float, packed] = [float, packed].map(|linear| linear.weight.val().into_data());
                assert_eq!(float.shape, packed.shape, "{name}");
                let same = float.iter::<f32>().zip(packed.iter::<f32>());
                assert!(same.into_iter().all(|(a, b)| a == b), "{name}");
            }
        }
        let plain = tempfile::tempdir().unwrap();
        export(&floats, plain.path(), &options(Element::F32)).unwrap();
        assert!(!fields_of(plain.path()).contains_key("quantization_config"));
        assert_eq!(bits(&load(plain.path())), bits(&floats), "{name}");
    }
}

#[test]
fn configuration_matches_compressed_tensors() {
    let copied = tiny_int8();
    let fields = fields_of(copied.0.path());
    let quantization = &fields["quantization_config"];
    assert_eq!(quantization["quant_method"], "compressed-tensors");
    assert_eq!(quantization["format"], "pack-quantized");
    let weights = &quantization["config_groups"]["group_0"]["weights"];
    assert_eq!(weights["num_bits"], 8);
    assert_eq!(weights["strategy"], "channel");
    let tensors = stored(copied.0.path());
    let up = "model.layers.0.mlp.up_proj.weight";
    assert_eq!(tensors[&format!("{up}_packed")].shape, [3, 1]);
    assert_eq!(tensors[&format!("{up}_packed")].dtype, Dtype::I32);
    assert_eq!(tensors[&format!("{up}_scale")].shape, [3, 1]);
    assert_eq!(tensors[&format!("{up}_shape")].dtype, Dtype::I64);

    // No other program reads packed weights of GPT-2's `Conv1D`: without a method, `transformers` and vLLM reject them.
    let folder = tempfile::tempdir().unwrap();
    let packed = load(&fixture("gpt2-untied"))
        .with_weights(WeightFormat::INT8)
        .unwrap();
    export(&packed, folder.path(), &options(Element::F32)).unwrap();
    let expected = json!({"format": "emberlm-int8", "ignore": []});
    assert_eq!(fields_of(folder.path())["quantization_config"], expected);
}

/// Compares a directory written by `compressed-tensors` (`fixtures/make_quantized.py`) with the logits of
/// `transformers`.
#[test]
fn directory_of_compressed_tensors_is_readable() {
    let folder = fixture("").join("../quantized");
    let decoder = load(&folder);
    assert!(matches!(
        decoder.weight_format(),
        WeightFormat::PackedLayers(_)
    ));
    check_expected(&decoder, &folder, 2e-5);
}

/// Compares a decoder with the logits in a directory, within a tolerance.
pub(super) fn check_expected(decoder: &Transformer<Flex>, folder: &Path, tolerance: f32) {
    let tensors = safetensors_of(&folder.join("expected.safetensors"));
    let ids = tensors.tensor("ids").unwrap();
    let (ids, _) = ids.data().as_chunks::<8>();
    let ids: Vec<i64> = ids.iter().map(|&id| i64::from_le_bytes(id)).collect();
    let shape = [1, ids.len()];
    let ids = Tensor::<Flex, 2, Int>::from_data(TensorData::new(ids, shape), &Default::default());
    let found = decoder.forward(ids).into_data();
    let expected = tensors.tensor("logits").unwrap();
    let (expected, _) = expected.data().as_chunks::<4>();
    assert_eq!(found.num_elements(), expected.len());
    for (found, expected) in found.iter::<f32>().zip(expected) {
        let expected = f32::from_le_bytes(*expected);
        assert!((found - expected).abs() < tolerance, "{found} {expected}");
    }
}

fn safetensors_of(file: &Path) -> safetensors::SafeTensors<'static> {
    let bytes = fs::read(file).unwrap().leak();
    safetensors::SafeTensors::deserialize(bytes).unwrap()
}

/// The tiny model as other programs write it: matrices in bytes, scales in bf16, and an unquantized head.
fn in_bytes() -> Copied {
    let copied = tiny_int8();
    // The head of the tiny model is tied.
    let head = stored(copied.0.path())["model.embed_tokens.weight"].clone();
    copied.edit("config.json", |fields| {
        fields["quantization_config"]["format"] = json!("int-quantized");
        fields["quantization_config"]["ignore"] = json!(["lm_head"]);
    });
    copied.rewrite(|tensors| {
        let words: Vec<String> = tensors
            .keys()
            .filter_map(|name| Some(name.strip_suffix("_packed")?.to_owned()))
            .collect();
        for name in words {
            let values = tensors.remove(&format!("{name}_packed")).unwrap();
            let shape = tensors.remove(&format!("{name}_shape")).unwrap();
            let scales = tensors.get_mut(&format!("{name}_scale")).unwrap();
            if name == "lm_head.weight" {
                tensors.remove("lm_head.weight_scale");
                tensors.insert(name, head.clone());
                continue;
            }
            let numbers = shape.bytes.chunks(8).map(|size| usize::from(size[0]));
            let shape: Vec<usize> = numbers.collect();
            let rows = values.bytes.chunks(4 * shape[1].div_ceil(4));
            let bytes = rows.flat_map(|row| row[..shape[1]].iter().map(|byte| byte ^ 0x80));
            let bytes = bytes.collect();
            let dtype = Dtype::I8;
            let stored = Stored {
                dtype,
                shape,
                bytes,
            };
            let (narrow, _) = scales.bytes.as_chunks::<4>();
            let narrow = narrow
                .iter()
                .map(|&s| bf16::from_f32(f32::from_le_bytes(s)));
            scales.bytes = narrow.flat_map(bf16::to_le_bytes).collect();
            scales.dtype = Dtype::BF16;
            tensors.insert(name, stored);
        }
    });
    copied
}

#[test]
fn int_quantized_directory_is_readable() {
    let copied = in_bytes();
    let decoder = copied.load().unwrap();
    let words = tiny_int8().load().unwrap();
    assert!(matches!(
        decoder.weight_format(),
        WeightFormat::PackedLayers(_)
    ));
    let head = decoder.lm_head.head.as_ref().unwrap().joined();
    assert_eq!(
        head.into_data(),
        decoder.embeddings.tokens.joined().into_data()
    );
    let up = |decoder: &Transformer<Flex>| {
        let feed_forward = decoder.stack.blocks[0].feed_forward.dense().unwrap();
        let up = feed_forward.up.weight.val();
        up.into_data().iter::<f32>().collect::<Vec<_>>()
    };
    for (found, expected) in up(&decoder).into_iter().zip(up(&words)) {
        assert!((found - expected).abs() <= expected.abs() / 128.0);
    }
    // On request, the head is packed, too.
    let model = HuggingFaceModel::open(copied.0.path()).unwrap();
    let all = model.decoder_in::<Flex>(WeightFormat::INT8, &Default::default());
    assert_eq!(all.unwrap().weight_format(), WeightFormat::INT8);
    // An export keeps it packed.
    let folder = tempfile::tempdir().unwrap();
    export(&decoder, folder.path(), &options(Element::F32)).unwrap();
    assert_eq!(logits(&load(folder.path())), logits(&decoder));
    let ignored = &fields_of(folder.path())["quantization_config"]["ignore"];
    assert_eq!(*ignored, json!(["lm_head"]));
}

#[test]
fn weights_must_match_the_quantization() {
    // Floating-point weights with an int8 configuration, and the reverse.
    let copied = Copied::tiny();
    let quantization: Value = fields_of(tiny_int8().0.path())["quantization_config"].clone();
    copied.edit("config.json", |fields| {
        fields["quantization_config"] = quantization
    });
    let missing = "tensor `model.layers.0.self_attn.q_proj.weight_packed` is missing";
    let head = "tensor `lm_head.weight_packed` is missing";
    assert!(
        [missing, head]
            .iter()
            .any(|missing| copied.error() == format!("DIR: {missing}"))
    );
    let copied = tiny_int8();
    copied.edit("config.json", |fields| {
        fields
            .as_object_mut()
            .unwrap()
            .remove("quantization_config");
    });
    assert!(copied.error().ends_with("is missing"), "{}", copied.error());
}
