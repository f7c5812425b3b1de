//! GGUF files of models with delta nets.

use burn_flex::Flex;
use emberlm_gguf::{Array, GgufFile, GgufHeader, Value};
use emberlm_model::Transformer;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::weights::named_tensors;

use super::{edited, fixtures, logits, refused_of, same};

const DELTA_NETS: [&str; 2] = ["qwen3_next-listed", "qwen3_5_text-tiled"];

/// The forms of a delta net's tensors in a file are undone exactly, except for the gains of norms, which have 1 added.
#[test]
fn delta_nets_have_the_parameters_of_their_directories() {
    for name in DELTA_NETS {
        let directory = fixtures().join("gguf").join(name);
        let [found, expected] = [directory.with_extension("gguf"), directory].map(|path| {
            let model = HuggingFaceModel::open(&path).unwrap();
            let decoder: Transformer<Flex> = model.decoder(&Default::default()).unwrap();
            named_tensors(&decoder)
        });
        assert!(found.iter().any(|(path, _)| path.ends_with("delta.decay")));
        assert_eq!(found.len(), expected.len());
        for ((path, found), (_, expected)) in found.iter().zip(&expected) {
            let added = match path.ends_with(".gain") && !path.ends_with("delta.norm.gain") {
                true => 1.0,
                false => 0.0,
            };
            let bits = |values: &[f32]| -> Vec<u32> {
                values.iter().map(|x| (x + added).to_bits()).collect()
            };
            assert!(
                bits(&found.values) == bits(&expected.values),
                "{name}: {path}"
            );
        }
    }
}

#[test]
fn blocks_of_multi_token_prediction_are_not_read() {
    let folder = fixtures().join("gguf");
    let name = "qwen3_5_text-tiled.gguf";
    let path = folder.join("predictions").join(name);
    let file = GgufFile::open(&path).unwrap();
    assert!(file.tensor("blk.4.nextn.eh_proj.weight").is_some());
    assert!(logits(&path) == logits(&folder.join(name)));
}

/// Older files have no list of layers, or not even an interval, which is 4 by default.
#[test]
fn layers_without_a_list_follow_the_interval() {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("gguf/qwen3_5_text-tiled.gguf");
    let expected = logits(&source);
    let keys = ["attention.recurrent_layers", "full_attention_interval"];
    for count in 1..=keys.len() {
        let edit = |header: &mut GgufHeader| {
            for key in &keys[..count] {
                without(header, &format!("qwen35.{key}"));
            }
        };
        assert!(logits(&edited(&source, folder.path(), edit, same)) == expected);
    }
}

/// Removes a key.
fn without(header: &mut GgufHeader, key: &str) {
    let mut kept = GgufHeader::new();
    for (other, value) in header.metadata().iter().filter(|(other, _)| *other != key) {
        kept.insert(other, value.clone());
    }
    *header = kept;
}

#[test]
fn damaged_delta_nets_are_refused_by_the_key_or_tensor() {
    let flags = |flags: &[bool]| Value::Array(Array::Bool(flags.to_vec()));
    let tiled = |edit: &dyn Fn(&mut GgufHeader), expected: &str| {
        refused_of("qwen3_5_text-tiled", edit, same, expected);
    };
    for name in [
        "conv_kernel",
        "state_size",
        "group_count",
        "time_step_rank",
        "inner_size",
    ] {
        let key = format!("qwen35.ssm.{name}");
        let expected = format!("metadata `{key}` = missing: must be given");
        tiled(&|header| without(header, &key), &expected);
    }
    let set = |key: &str, value: Value, expected: &str| {
        let key = format!("qwen35.{key}");
        let expected = format!("`{key}` = {expected}");
        tiled(
            &|header| header.insert(key.as_str(), value.clone()),
            &expected,
        );
    };
    let size = Value::U32;
    set(
        "ssm.inner_size",
        size(96),
        "96: must be ssm.time_step_rank (6) times ssm.state_size (8)",
    );
    set("full_attention_interval", size(0), "0: must be at least 1");
    set(
        "attention.recurrent_layers",
        flags(&[true; 3]),
        "[true, true, true]: must have a flag for each of the 4 layers",
    );
    set(
        "attention.recurrent_layers",
        flags(&[true, false, true, false]),
        "[true, false, true, false]: block 1 would have an attention, but the file has `blk.1.ssm_a`",
    );
    set(
        "rope.dimension_sections",
        Value::Array(Array::I32(vec![11, 11, 0, 10])),
        "[11, 11, 0, 10]: must be four numbers that leave every pair of elements to the first three",
    );
    set(
        "rope.dimension_sections",
        size(11),
        "11: must be a list of whole numbers of at least 0",
    );
    set(
        "nextn_predict_layers",
        size(4),
        "4: must be less than the 4 blocks of the file",
    );
    let interval = |header: &mut GgufHeader| {
        without(header, "qwen35.attention.recurrent_layers");
        header.insert("qwen35.full_attention_interval", Value::U32(5));
    };
    tiled(
        &interval,
        "`qwen35.full_attention_interval` = 5: block 3 would have a delta net, but the file has `blk.3.attn_q.weight`",
    );
    tiled(
        &|header| header.insert("qwen35.ssm.group_count", Value::U32(4)),
        "`ssm.time_step_rank` = 6: must be a multiple of",
    );
    tiled(
        &|header| header.insert("qwen35.ssm.group_count", Value::U32(2)),
        "tensor `blk.0.attn_qkv.weight`",
    );
    for name in ["blk.1.ssm_a", "blk.2.ssm_dt.bias", "blk.0.ssm_beta.weight"] {
        refused_of(
            "qwen3_5_text-tiled",
            |_| {},
            |other| (other != name).then(|| other.to_owned()),
            &format!("tensor `{name}` is missing"),
        );
    }
    // The decays of a file are negative, its biases are not all.
    refused_of(
        "qwen3_5_text-tiled",
        |_| {},
        |name| {
            Some(match name {
                "blk.0.ssm_a" => "blk.0.ssm_dt.bias".to_owned(),
                "blk.0.ssm_dt.bias" => "blk.0.ssm_a".to_owned(),
                _ => name.to_owned(),
            })
        },
        "tensor `blk.0.ssm_a`: its values must be negative",
    );
    refused_of(
        "qwen3_next-listed",
        |header| without(header, "qwen3next.attention.recurrent_layers"),
        same,
        "`qwen3next.full_attention_interval` = 4: block 1 would have a delta net",
    );
}
