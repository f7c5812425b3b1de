//! GGUF files that llama.cpp's conversion wrote, compared with the Hugging Face directories that they were made from.
//! `fixtures/make_gguf.py` generates them.

mod delta_nets;

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use emberlm_gguf::{GgufFile, GgufHeader, TensorType, Value};
use emberlm_kernels::cpu::matrix::Matrix;
use emberlm_kernels::cpu::packed::pack;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::{HuggingFaceError, KvCache, PackedFormat, Transformer, WeightFormat};

const TOKENS: [i32; 12] = [5, 1, 60, 33, 2, 9, 9, 41, 17, 64, 3, 50];

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn logits(path: &Path) -> Vec<u32> {
    let device = Default::default();
    let model = HuggingFaceModel::open(path).unwrap_or_else(|error| panic!("{error}"));
    let decoder: Transformer<Flex> = model
        .decoder(&device)
        .unwrap_or_else(|error| panic!("{error}"));
    let tokens = Tensor::<Flex, 2, Int>::from_data([TOKENS], &device);
    let logits = decoder.forward(tokens).into_data();
    logits.iter::<f32>().map(f32::to_bits).collect()
}

fn files() -> Vec<PathBuf> {
    let files = fs::read_dir(fixtures().join("gguf")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    files.sort();
    files
}

#[test]
fn files_have_the_logits_of_their_directories() {
    let files = files();
    assert!(files.len() >= 24, "{files:?}");
    for file in files {
        let name = file.file_stem().unwrap();
        let own = file.with_extension("");
        let directory = match own.is_dir() {
            true => own,
            false => fixtures().join("families").join(name),
        };
        assert!(logits(&file) == logits(&directory), "{}", file.display());
    }
}

/// Writes a copy of a file with its matrices in the types that `type_of` returns for their names, if their rows are whole
/// blocks.
fn repacked(
    source: &Path,
    folder: &Path,
    type_of: impl Fn(&str) -> (TensorType, PackedFormat),
) -> PathBuf {
    let file = GgufFile::open(source).unwrap();
    let mut header = GgufHeader::new();
    for (key, value) in file.metadata().iter() {
        header.insert(key, value.clone());
    }
    let mut data = Vec::new();
    for tensor in file.tensors() {
        let mut bytes = Vec::new();
        file.read_rows(tensor, 0..tensor.rows(), usize::MAX, &mut |_, read| {
            bytes.extend_from_slice(read);
        })
        .unwrap();
        let (mut kind, format) = type_of(&tensor.name);
        match *tensor.shape.as_slice() {
            [rows, columns] if format.check_columns(columns).is_ok() => {
                let (values, _) = bytes.as_chunks();
                let values: Vec<f32> = values.iter().map(|&v| f32::from_le_bytes(v)).collect();
                bytes = pack(format, Matrix::row_major(&values, rows, columns)).into_bytes();
            }
            _ => kind = TensorType::F32,
        }
        header
            .add_tensor(&tensor.name, &tensor.shape, kind)
            .unwrap();
        data.push(bytes);
    }
    let path = folder.join("repacked.gguf");
    let mut writer = header.write_to(fs::File::create(&path).unwrap()).unwrap();
    data.iter().for_each(|bytes| writer.write(bytes).unwrap());
    writer.finish().unwrap();
    path
}

#[test]
fn matrices_of_several_types_stay_packed_and_multiply_as_the_unpacked_ones() {
    let folder = tempfile::tempdir().unwrap();
    // The rows of a fused layer have different types, too.
    let type_of = |name: &str| match name {
        name if name.contains("attn_v") => (TensorType::Q8_0, PackedFormat::Q8_0),
        name if name.contains("attn") => (TensorType::Q5_1, PackedFormat::Q5_1),
        name if name.contains("ffn") => (TensorType::Q4_0, PackedFormat::Q4_0),
        _ => (TensorType::Q5_0, PackedFormat::Q5_0),
    };
    for name in ["llama-gqa", "qwen2-tied", "phi3-window"] {
        let source = fixtures().join("gguf").join(name).with_extension("gguf");
        let path = repacked(&source, folder.path(), type_of);
        let device = Default::default();
        let model = HuggingFaceModel::open(&path).unwrap();
        let stored = model.weight_format();
        let packed: Transformer<Flex> = model.decoder(&device).unwrap();
        assert_eq!(packed.weight_format().embedding(), stored.embedding());
        assert_eq!(stored.head(), Some(PackedFormat::Q5_0), "{name}");
        let unpacked: Transformer<Flex> = model.decoder_in(WeightFormat::F32, &device).unwrap();
        assert_eq!(unpacked.weight_format(), WeightFormat::F32);
        // One pass over all tokens, and one per token in integers. Both round the inputs of layers to 8 bits.
        let [whole, wanted] = [&packed, &unpacked].map(|decoder| {
            let tokens = Tensor::<Flex, 2, Int>::from_data([TOKENS], &device);
            let logits = decoder.forward(tokens).into_data();
            logits.iter::<f32>().collect::<Vec<f32>>()
        });
        let mut cache = KvCache::new(packed.config(), 1, TOKENS.len(), &device);
        let stepped: Vec<f32> = TOKENS
            .iter()
            .flat_map(|&token| {
                let token = Tensor::<Flex, 2, Int>::from_data([[token]], &device);
                let logits = packed.next_logits(token, &mut cache).into_data();
                logits.iter::<f32>().collect::<Vec<f32>>()
            })
            .collect();
        // The norm of the difference over the norm.
        let error = |found: &[f32], wanted: &[f32]| {
            let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
            squares(&mut found.iter().zip(wanted).map(|(a, b)| a - b))
                / squares(&mut wanted.iter().copied())
        };
        let (rounding, order) = (error(&whole, &wanted), error(&stepped, &whole));
        assert!(
            rounding < 0.05 && order < 0.01,
            "{name}: {rounding} {order}"
        );
    }
}

#[test]
fn matrices_of_16_bits_are_held_as_they_are_with_the_logits_of_f32() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, format) in [
        (TensorType::F16, PackedFormat::F16),
        (TensorType::Bf16, PackedFormat::Bf16),
    ] {
        // A mixture of experts has matrices of three dimensions.
        for name in ["llama-gqa", "qwen2-tied", "phi3-window", "qwen3_moe-mixed"] {
            let source = fixtures().join("gguf").join(name).with_extension("gguf");
            let path = repacked(&source, folder.path(), |_| (kind, format));
            let device = Default::default();
            let model = HuggingFaceModel::open(&path).unwrap();
            assert_eq!(model.weight_format(), WeightFormat::F32, "{name}");
            let inference = model.inference_format().unwrap();
            let held: Transformer<Flex> = model.decoder_in(inference, &device).unwrap();
            assert_eq!(held.weight_format().layers(), Some(format), "{name}");
            assert_eq!(held.weight_format().embedding(), Some(format), "{name}");
            let floats: Transformer<Flex> = model.decoder_in(WeightFormat::F32, &device).unwrap();
            let [found, expected] = [held, floats].map(|decoder| {
                let tokens = Tensor::<Flex, 2, Int>::from_data([TOKENS], &device);
                let logits = decoder.forward(tokens).into_data();
                logits.iter::<f32>().collect::<Vec<f32>>()
            });
            let largest = expected
                .iter()
                .fold(0.0f32, |largest, x| largest.max(x.abs()));
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error <= 1e-5 * largest, "{name}: {found} {expected}");
            }
        }
    }
}

/// Writes a copy of a file with other metadata and names.
fn edited(
    source: &Path,
    folder: &Path,
    edit: impl Fn(&mut GgufHeader),
    rename: impl Fn(&str) -> Option<String>,
) -> PathBuf {
    let file = GgufFile::open(source).unwrap();
    let mut header = GgufHeader::new();
    for (key, value) in file.metadata().iter() {
        header.insert(key, value.clone());
    }
    edit(&mut header);
    let mut data = Vec::new();
    for tensor in file.tensors() {
        let Some(name) = rename(&tensor.name) else {
            continue;
        };
        header
            .add_tensor(&name, &tensor.shape, tensor.tensor_type)
            .unwrap();
        file.read_rows(tensor, 0..tensor.rows(), usize::MAX, &mut |_, bytes| {
            data.push(bytes.to_vec());
        })
        .unwrap();
    }
    let path = folder.join("edited.gguf");
    let mut writer = header.write_to(fs::File::create(&path).unwrap()).unwrap();
    data.iter().for_each(|bytes| writer.write(bytes).unwrap());
    writer.finish().unwrap();
    path
}

fn same(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn error_of(path: &Path) -> HuggingFaceError {
    match HuggingFaceModel::open(path) {
        Err(error) => error,
        Ok(model) => match model.decoder::<Flex>(&Default::default()) {
            Err(error) => error,
            Ok(_) => panic!("{} was opened", path.display()),
        },
    }
}

/// Checks the error of an edited LLaMA.
fn refused(
    edit: impl Fn(&mut GgufHeader),
    rename: impl Fn(&str) -> Option<String>,
    expected: &str,
) {
    refused_of("llama-gqa", edit, rename, expected);
}

/// Checks the error of an edited file.
fn refused_of(
    name: &str,
    edit: impl Fn(&mut GgufHeader),
    rename: impl Fn(&str) -> Option<String>,
    expected: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("gguf").join(name).with_extension("gguf");
    let path = edited(&source, folder.path(), edit, rename);
    let error = error_of(&path).to_string();
    let start = path.display().to_string();
    assert!(
        error.starts_with(&start) && error.contains(expected),
        "{error}"
    );
}

#[test]
fn unsupported_files_are_refused_by_the_key_or_tensor() {
    let text = |text: &str| Value::String(text.to_owned());
    refused(
        |header| header.insert("general.architecture", text("rwkv7")),
        same,
        "metadata `general.architecture` = \"rwkv7\": must be one of llama, qwen2,",
    );
    refused(
        |header| header.insert("llama.attention.sliding_window", Value::U32(8)),
        same,
        "metadata `llama.attention.sliding_window` = 8: is not supported for this architecture",
    );
    refused(
        |header| header.insert("llama.block_count", text("3")),
        same,
        "metadata `llama.block_count` = \"3\": must be a whole number of at least 0",
    );
    refused(
        |header| header.insert("llama.rope.scaling.type", text("longrope")),
        same,
        "metadata `llama.rope.scaling.type` = \"longrope\": must be none, linear or yarn",
    );
    refused(
        |header| header.insert("llama.attention.head_count", Value::U32(0)),
        same,
        "metadata `llama.attention.head_count` = 0: must divide the width 32",
    );
    refused(
        |_| {},
        |name| (name != "blk.1.ffn_up.weight").then(|| name.to_owned()),
        "tensor `blk.1.ffn_up.weight` is missing",
    );
    refused(
        |_| {},
        |name| (name != "token_embd.weight").then(|| name.to_owned()),
        "tensor `token_embd.weight`: it is missing",
    );
    refused(
        |_| {},
        |name| Some(name.replace("blk.2.ffn_norm", "blk.2.new_norm")),
        "tensor `blk.2.ffn_norm.weight` is missing",
    );
}

#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let bytes = fs::read(fixtures().join("gguf/llama-gqa.gguf")).unwrap();
    for len in (0..bytes.len() - 64).step_by(311) {
        fs::write(&path, &bytes[..len]).unwrap();
        let error = error_of(&path).to_string();
        assert!(
            error.starts_with(&path.display().to_string()) && error.contains("not a complete GGUF"),
            "{error}"
        );
    }
}
