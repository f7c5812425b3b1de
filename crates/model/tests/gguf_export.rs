//! Models exported as GGUF files, compared with the files that llama.cpp's conversion wrote of the same models.

mod delta_nets;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use emberlm_gguf::{GgufFile, TensorType, Value};
use emberlm_model::config::{Head, Window};
use emberlm_model::gguf::FileType;
use emberlm_model::gguf_export::{GgufOptions, check_exportable, export};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::{
    Family, HuggingFaceError, InputImportance, InputProducts, Transformer, TransformerConfig,
};

const TOKENS: [i32; 12] = [5, 1, 60, 33, 2, 9, 9, 41, 17, 64, 3, 50];

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The directory that a file was converted from.
fn directory_of(file: &Path) -> PathBuf {
    let own = file.with_extension("");
    match own.is_dir() {
        true => own,
        false => fixtures().join("families").join(file.file_stem().unwrap()),
    }
}

fn files() -> Vec<PathBuf> {
    let files = fs::read_dir(fixtures().join("gguf")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    files.sort();
    files
}

fn decoder(path: &Path) -> Transformer<Flex> {
    let model = HuggingFaceModel::open(path).unwrap_or_else(|error| panic!("{error}"));
    let device = Default::default();
    let decoder = model.decoder(&device);
    decoder.unwrap_or_else(|error| panic!("{error}"))
}

fn logits(decoder: &Transformer<Flex>) -> Vec<u32> {
    let tokens = Tensor::<Flex, 2, Int>::from_data([TOKENS], &decoder.device());
    let logits = decoder.forward(tokens).into_data();
    logits.iter::<f32>().map(f32::to_bits).collect()
}

fn options(file_type: FileType) -> GgufOptions<'static> {
    GgufOptions {
        file_type,
        name: "Test".to_owned(),
        metadata: Vec::new(),
        importance: None,
        products: None,
    }
}

fn exported(decoder: &Transformer<Flex>, path: &Path, file_type: FileType) -> GgufFile {
    export(decoder, path, &options(file_type)).unwrap_or_else(|error| panic!("{error}"));
    GgufFile::open(path).unwrap()
}

fn bytes(file: &GgufFile, name: &str) -> Vec<u8> {
    let tensor = file.tensor(name).unwrap();
    let mut found = Vec::new();
    file.read_rows(tensor, 0..tensor.rows(), usize::MAX, &mut |_, bytes| {
        found.extend(bytes);
    })
    .unwrap();
    found
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers
        .iter()
        .map(|&number| f32::from_le_bytes(number))
        .collect()
}

#[test]
fn tensors_are_those_of_the_conversion() {
    let folder = tempfile::tempdir().unwrap();
    for file in files() {
        let path = folder.path().join("m.gguf");
        let found = exported(&decoder(&directory_of(&file)), &path, FileType::F32);
        let expected = GgufFile::open(&file).unwrap();
        let shapes = |file: &GgufFile| -> BTreeMap<String, (Vec<usize>, TensorType)> {
            let tensors = file.tensors();
            tensors
                .map(|tensor| {
                    (
                        tensor.name.clone(),
                        (tensor.shape.clone(), tensor.tensor_type),
                    )
                })
                .collect()
        };
        let shown = file.display();
        assert_eq!(shapes(&found), shapes(&expected), "{shown}");
        for tensor in expected.tensors() {
            let name = tensor.name.as_str();
            let (found, expected) = (bytes(&found, name), bytes(&expected, name));
            if name == "rope_freqs.weight" {
                // The conversion computes them in single precision.
                for (found, expected) in floats(&found).into_iter().zip(floats(&expected)) {
                    assert!((found - expected).abs() < 1e-5 * expected, "{shown}");
                }
                continue;
            }
            if name.ends_with(".ssm_a") {
                // Here they are rounded once; the conversion's exponential function in single precision is not exact.
                let bits = |bytes: &[u8]| floats(bytes).into_iter().map(f32::to_bits);
                for (found, expected) in bits(&found).zip(bits(&expected)) {
                    assert!(found.abs_diff(expected) <= 1, "{shown}: {name}");
                }
                continue;
            }
            assert!(found == expected, "{shown}: {name}");
        }
    }
}

/// Keys that the conversion does not write for every model, with the value that llama.cpp assumes without them.
fn default_of(file: &GgufFile, key: &str) -> Option<f64> {
    let metadata = file.metadata();
    let architecture = metadata.text("general.architecture").unwrap().unwrap();
    let number = |name: &str| {
        let number = metadata.number(&format!("{architecture}.{name}"));
        number.unwrap()
    };
    let heads = number("attention.head_count").unwrap();
    let head = || number("attention.key_length").or(Some(number("embedding_length")? / heads));
    match key.strip_prefix(architecture)?.strip_prefix('.')? {
        "vocab_size" => Some(file.tensor("token_embd.weight")?.rows() as f64),
        "attention.head_count_kv" => Some(heads),
        "attention.key_length" | "attention.value_length" | "rope.dimension_count" => head(),
        "rope.freq_base" => Some(10_000.0),
        _ => None,
    }
}

#[test]
fn metadata_are_those_of_the_conversion() {
    let folder = tempfile::tempdir().unwrap();
    // Names of the file; and the original context without a scaling, which has no effect.
    let described =
        |key: &str| key.starts_with("general.") || key.ends_with("original_context_length");
    for file in files() {
        let path = folder.path().join("m.gguf");
        let found = exported(&decoder(&directory_of(&file)), &path, FileType::F32);
        let expected = GgufFile::open(&file).unwrap();
        let shown = file.display();
        for (key, value) in expected.metadata().iter() {
            let own = found.metadata().get(key);
            let is_none = *value == Value::String("none".to_owned());
            match own {
                None => assert!(is_none || described(key), "{shown}: {key} is missing"),
                Some(_) if key == "general.name" => {}
                Some(own) => assert_eq!(own, value, "{shown}: {key}"),
            }
        }
        for (key, value) in found.metadata().iter() {
            if expected.metadata().get(key).is_some() || described(key) {
                continue;
            }
            let default = default_of(&expected, key);
            assert_eq!(value.number(), default, "{shown}: {key}");
        }
    }
}

#[test]
fn exported_files_have_the_logits_of_their_models() {
    let folder = tempfile::tempdir().unwrap();
    for file in files() {
        let path = folder.path().join("m.gguf");
        let original = decoder(&directory_of(&file));
        exported(&original, &path, FileType::F32);
        assert!(
            logits(&decoder(&path)) == logits(&original),
            "{}",
            file.display()
        );
    }
}

#[test]
fn matrices_have_the_type_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let model = decoder(&fixtures().join("families/llama-gqa"));
    for (file_type, expected, number) in [
        (FileType::F16, TensorType::F16, 1),
        (FileType::Bf16, TensorType::Bf16, 32),
        (FileType::Q8_0, TensorType::Q8_0, 7),
    ] {
        let file = exported(&model, &path, file_type);
        let kind = |name: &str| file.tensor(name).unwrap().tensor_type;
        assert_eq!(kind("blk.1.attn_q.weight"), expected);
        assert_eq!(kind("output.weight"), expected);
        assert_eq!(kind("blk.1.attn_norm.weight"), TensorType::F32);
        let id = file.metadata().count("general.file_type").unwrap();
        assert_eq!(id, Some(number));
        // Rows of 44 elements are not made of blocks of 32.
        let down = kind("blk.1.ffn_down.weight");
        let rest = if expected == TensorType::Bf16 {
            expected
        } else {
            TensorType::F16
        };
        assert_eq!(down, rest);
        decoder(&path);
    }
}

/// Returns the error of the export of a model.
fn refused(config: TransformerConfig) -> String {
    let folder = tempfile::tempdir().unwrap();
    let decoder: Transformer<Flex> = config.init(1, &Default::default());
    let path = folder.path().join("m.gguf");
    let error = export(&decoder, &path, &options(FileType::F32)).unwrap_err();
    assert!(!path.exists(), "{error}");
    error.to_string()
}

fn small(
    family: Family,
    change: impl FnOnce(&mut emberlm_model::ModelConfig),
) -> TransformerConfig {
    let mut config = family.presets().remove(0).config;
    (config.vocab_size, config.seq_len, config.n_layers) = (Some(64), 32, 2);
    (config.d_model, config.heads, config.head_dim) = (32, 4, None);
    config.kv_heads = config.kv_heads.map(|_| 2);
    config.feed_forward.width = Some(48);
    change(&mut config);
    TransformerConfig::try_from(config).unwrap()
}

#[test]
fn models_that_files_cannot_describe_are_refused_by_the_setting() {
    let error = check_exportable(&small(Family::Palm, |_| {})).unwrap_err();
    assert!(matches!(
        error,
        HuggingFaceError::NoArchitecture { family: "palm" }
    ));
    let error = refused(small(Family::Mistral, |config| {
        config.attention = emberlm_model::config::AttentionKind::windowed(Window::new(8));
    }));
    assert!(
        error.starts_with("GGUF's architecture `llama` cannot express model.attention = "),
        "{error}"
    );
    let error = refused(small(Family::Llama, |config| {
        config.feed_forward.activation = emberlm_model::Activation::Gelu;
    }));
    assert!(error.contains("model.feed_forward"), "{error}");
    let error = refused(small(Family::Llama, |config| {
        config.head = Head {
            bias: true,
            ..config.head
        };
    }));
    assert!(error.contains("model.head"), "{error}");
}

#[test]
fn importance_is_the_mean_square_of_the_inputs() {
    let config = small(Family::Llama, |_| {});
    let decoder: Transformer<Flex> = config.init(3, &Default::default());
    let sequences = [vec![7, 3, 9], vec![1, 7]];
    let importance = InputImportance::over(&decoder, sequences.clone());
    let tokens = emberlm_model::weights::named_tensors(&decoder);
    let table = &tokens
        .iter()
        .find(|(path, _)| path == "tokens")
        .unwrap()
        .1
        .values;
    // The first layer's input is the embedding, divided by its root mean square; gains are 1 at the start.
    let mut expected = vec![0.0_f64; 32];
    for &token in sequences.iter().flatten() {
        let row: Vec<f64> = table[token as usize * 32..][..32]
            .iter()
            .map(|&x| x.into())
            .collect();
        let mean = row.iter().map(|x| x * x).sum::<f64>() / 32.0 + config.norm_epsilon();
        for (sum, x) in expected.iter_mut().zip(row) {
            *sum += x * x / mean / 5.0;
        }
    }
    let found = importance.of_layer("blocks.0.attention.qkv").unwrap();
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5 * expected.max(1e-3));
    }
    for path in ["blocks.1.attention.out", "blocks.1.feed_forward.down"] {
        assert!(
            importance.of_layer(path).unwrap().iter().all(|x| *x > 0.0),
            "{path}"
        );
    }
    assert_eq!(importance.of_layer("blocks.2.attention.out"), None);
}

#[test]
fn products_of_inputs_have_the_importance_on_their_diagonal() {
    let config = small(Family::Llama, |_| {});
    let decoder: Transformer<Flex> = config.init(3, &Default::default());
    let sequences = [vec![7, 3, 9], vec![1, 7]];
    let importance = InputImportance::over(&decoder, sequences.clone());
    let products = InputProducts::over(&decoder, sequences);
    for (path, columns) in [
        ("blocks.0.attention.qkv", 32),
        ("blocks.1.feed_forward.down", 48),
    ] {
        let found = products.of_layer(path).unwrap();
        assert_eq!(found.len(), columns * columns);
        for at in 0..columns * columns {
            let mirrored = found[at % columns * columns + at / columns];
            assert!((found[at] - mirrored).abs() < 1e-5, "{path}");
        }
        let expected = importance.of_layer(path).unwrap();
        let diagonal = products.importance();
        for (found, expected) in diagonal.of_layer(path).unwrap().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5 * expected, "{path}");
        }
    }
}
