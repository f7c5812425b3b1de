//! Directories: export loaded back, initial weights, and what is refused.

use std::fs;
use std::path::Path;

use burn_flex::Flex;
use emberlm_model::ModelKind;
use emberlm_model::TransformerConfig;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::families::Family;
use emberlm_model::hugging_face::ExportOptions;
use emberlm_model::hugging_face::{HuggingFaceModel, export, kind_of};
use emberlm_model::weights::named_tensors;
use serde_json::{Value, json};

use super::{MODELS, folder, open};
use crate::set_fields;
use crate::tables::check_table;

#[test]
fn an_exported_model_is_read_back_bit_by_bit() {
    for name in MODELS {
        let (directory, _) = open(name);
        let device = Default::default();
        let model = directory.decoder::<Flex>(&device).unwrap();
        let out = tempfile::tempdir().unwrap();
        let options = ExportOptions {
            shard_bytes: 20_000,
            fields: directory.fields().clone(),
            ..ExportOptions::default()
        };
        let written = export(&model, out.path(), &options).unwrap();
        assert!(written.files.len() > 1);
        let again = HuggingFaceModel::open(out.path()).unwrap();
        assert_eq!(again.config(), directory.config());
        let again = again.decoder::<Flex>(&device).unwrap();
        assert!(named_tensors(&again) == named_tensors(&model), "{name}");
    }
}

#[test]
fn a_type_that_cannot_express_the_model_is_refused() {
    let device = Default::default();
    let model = TransformerConfig::try_from(EncoderDecoderSettings {
        vocab_size: 20,
        ..EncoderDecoderSettings::new(8, 2)
    });
    let model = model.unwrap().init::<Flex>(1, &device);
    let out = tempfile::tempdir().unwrap();
    let options = ExportOptions::default();
    let error = |family| {
        let options = ExportOptions {
            family: Some(family),
            ..ExportOptions::default()
        };
        let error = export(&model, out.path(), &options).unwrap_err();
        error.to_string()
    };
    let mt5 = error(Family::Mt5);
    assert!(mt5.contains("head") && mt5.contains("scaled"), "{mt5}");
    let gpt2 = error(Family::Gpt2);
    assert!(
        gpt2.contains("architecture") && gpt2.contains("encoder–decoder"),
        "{gpt2}"
    );
    export(&model, out.path(), &options).unwrap();
}

#[test]
fn initial_weights_depend_on_the_seed_and_differ_between_the_stacks() {
    let settings = EncoderDecoderSettings {
        vocab_size: 50,
        ..EncoderDecoderSettings::new(64, 4)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let device = Default::default();
    let [one, same, other] =
        [1, 1, 2].map(|seed| named_tensors(&config.init::<Flex>(seed, &device)));
    assert!(one == same);
    assert!(one != other);
    let parameters: usize = one.iter().map(|(_, tensor)| tensor.values.len()).sum();
    assert_eq!(parameters as u128, config.parameters());
    let of = |path: &str| &one.iter().find(|(name, _)| name == path).unwrap().1;
    assert_ne!(
        of("encoder.blocks.0.feed_forward.up.weight"),
        of("decoder.blocks.0.feed_forward.up.weight")
    );
    let deviation =
        |values: &[f32]| (values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32).sqrt();
    for (path, columns, expected) in [
        (
            "encoder.blocks.0.attention.qkv.weight",
            0..64,
            1.0 / (64.0f32 * 16.0).sqrt(),
        ),
        ("encoder.blocks.0.attention.qkv.weight", 64..192, 1.0 / 8.0),
        (
            "decoder.blocks.0.cross.attention.q.weight",
            0..64,
            1.0 / (64.0f32 * 16.0).sqrt(),
        ),
        (
            "decoder.blocks.0.feed_forward.down.weight",
            0..64,
            1.0 / 16.0,
        ),
        ("tokens", 0..64, 1.0),
    ] {
        let tensor = of(path);
        let rows = tensor.values.chunks(tensor.shape[1]);
        let values: Vec<f32> = rows.flat_map(|row| row[columns.clone()].to_vec()).collect();
        let found = deviation(&values);
        assert!(
            (found / expected - 1.0).abs() < 0.1,
            "{path}: {found} {expected}"
        );
    }
}

#[test]
fn settings_that_break_a_rule_are_refused_by_field() {
    let refuse = |change: fn(&mut EncoderDecoderSettings), expected: &str| {
        let mut settings = EncoderDecoderSettings::new(8, 2);
        change(&mut settings);
        let error = TransformerConfig::try_from(settings).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    refuse(|settings| settings.heads = 0, "model.heads = 0: ");
    let expected = "model.start_token = 32128: must be below";
    refuse(|settings| settings.start_token = 32_128, expected);
    refuse(|settings| settings.dropout = 1.0, "model.dropout = 1: ");
    let expected = "model.init_factor = 0: must be above 0";
    refuse(|settings| settings.init_factor = 0.0, expected);
    let expected = "model.relative_positions.buckets = 3: ";
    refuse(|settings| settings.relative_positions.buckets = 3, expected);
    let expected = "model.relative_positions.max_distance = 16: must be above buckets / 2 = 16";
    refuse(
        |settings| settings.relative_positions.max_distance = 16,
        expected,
    );
}

/// A copy of a fixture's directory.
fn copied(name: &str) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder(name).join(file), out.path().join(file)).unwrap();
    }
    out
}

fn edit(folder: &Path, change: impl FnOnce(&mut Value)) {
    let file = folder.join("config.json");
    let mut fields = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut fields);
    fs::write(file, fields.to_string()).unwrap();
}

fn error(folder: &Path) -> String {
    let opened = HuggingFaceModel::open(folder);
    let model = opened.and_then(|directory| directory.decoder::<Flex>(&Default::default()));
    model.unwrap_err().to_string()
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let folder = copied("t5-silu");
    let file = folder.path().join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    for end in (0..whole.len()).step_by(37) {
        fs::write(&file, &whole[..end]).unwrap();
        let error = error(folder.path());
        assert!(
            error.contains("is not a complete safetensors file"),
            "{end}: {error}"
        );
    }
}

#[test]
fn changed_directories_are_refused() {
    check_table("encoder_decoder/refused", |row| {
        let (name, changes) = row.split_once(' ').unwrap();
        let folder = copied(name);
        edit(folder.path(), |fields| set_fields(fields, changes));
        error(folder.path())
    });
}

#[test]
fn a_copy_of_the_embedding_that_differs_is_refused() {
    let folder = copied("t5-early");
    let file = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let offset = |name: &str| tensors[name]["data_offsets"][0].as_u64().unwrap() as usize;
    let at = 8 + header + offset("decoder.embed_tokens.weight");
    bytes[at] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let error = error(folder.path());
    assert!(error.contains("decoder.embed_tokens.weight"), "{error}");
    // A head that differs from the embedding is kept as a separate head.
    bytes[at] ^= 1;
    bytes[8 + header + offset("lm_head.weight")] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let directory = HuggingFaceModel::open(folder.path()).unwrap();
    assert!(!directory.config().head().tied);
    directory.decoder::<Flex>(&Default::default()).unwrap();
}

#[test]
fn the_kind_of_a_model_follows_from_its_type() {
    for (model_type, expected) in [
        ("t5", Some(ModelKind::EncoderDecoder)),
        ("mt5", Some(ModelKind::EncoderDecoder)),
        ("llama", Some(ModelKind::Decoder)),
        ("bert", Some(ModelKind::Encoder)),
        ("xlm-roberta", Some(ModelKind::Encoder)),
        ("xlm_roberta", None),
    ] {
        let fields = json!({"model_type": model_type});
        assert_eq!(kind_of(fields.as_object().unwrap()), expected);
    }
}
