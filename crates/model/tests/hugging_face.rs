//! Tests reading Hugging Face directories, the errors about invalid and unsupported ones, and that exports are
//! byte-identical to the original. `parity` compares the outputs of the models.

mod damaged;
mod flipped;
mod index;
mod mxfp4;
mod numbers;
mod quantized;
mod reading;
mod refused;
mod rounding;
mod sixteen_bits;
mod text_parts;
mod writing;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use emberlm_model::hugging_face::{ExportOptions, HuggingFaceModel, export, read_config};
use emberlm_model::weights::{Element, HostTensor, named_tensors};
use emberlm_model::{HuggingFaceError, Transformer, TransformerConfig, families};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// Directories written by `transformers`.
fn fixtures() -> Vec<String> {
    let entries = fs::read_dir(fixture("")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 19, "{names:?}");
    names
}

fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families");
    folder.join(name)
}

fn fields_of(folder: &Path) -> Map<String, Value> {
    serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap()
}

/// A fixture's `config.json` with some fields set.
fn changed(name: &str, changes: Value) -> Result<TransformerConfig, HuggingFaceError> {
    let mut fields = fields_of(&fixture(name));
    fields.extend(changes.as_object().unwrap().clone());
    read_config(&fields)
}

/// A modifiable copy of a fixture.
struct Copied(TempDir);

impl Copied {
    fn of(name: &str) -> Self {
        let copied = Self(tempfile::tempdir().unwrap());
        for entry in fs::read_dir(fixture(name)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "expected.safetensors" {
                fs::copy(entry.path(), copied.path(entry.file_name())).unwrap();
            }
        }
        copied
    }

    /// A small exported model of one block.
    fn tiny() -> Self {
        let mut raw = families::preset("llama-3.2-1b").unwrap().config;
        raw.vocab_size = Some(5);
        raw.seq_len = 4;
        raw.d_model = 4;
        raw.n_layers = 1;
        raw.heads = 1;
        raw.kv_heads = None;
        raw.feed_forward =
            emberlm_model::config::FeedForward::gated(emberlm_model::Activation::Silu)
                .with_width(3);
        let decoder = initial(TransformerConfig::try_from(raw).unwrap());
        let copied = Self(tempfile::tempdir().unwrap());
        export(&decoder, copied.0.path(), &options(Element::F32)).unwrap();
        copied
    }

    fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(file)
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(file), bytes).unwrap();
        self
    }

    fn remove(&self, file: &str) -> &Self {
        fs::remove_file(self.path(file)).unwrap();
        self
    }

    /// Rewrites a JSON file.
    fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) -> &Self {
        let mut value = serde_json::from_slice(&fs::read(self.path(file)).unwrap()).unwrap();
        change(&mut value);
        self.write(file, value.to_string())
    }

    /// Rewrites `model.safetensors`.
    fn rewrite(&self, change: impl FnOnce(&mut BTreeMap<String, Stored>)) -> &Self {
        let mut tensors = stored(self.0.path());
        change(&mut tensors);
        let views = tensors.iter().map(|(name, stored)| {
            let view = TensorView::new(stored.dtype, stored.shape.clone(), &stored.bytes);
            (name, view.unwrap())
        });
        self.write(
            "model.safetensors",
            safetensors::serialize(views, None).unwrap(),
        )
    }

    fn load(&self) -> Result<Transformer<Flex>, HuggingFaceError> {
        HuggingFaceModel::open(self.0.path())?.decoder(&Default::default())
    }

    /// The error on loading, without the path.
    fn error(&self) -> String {
        let Err(error) = self.load() else {
            panic!("it was read");
        };
        let folder = self.0.path().display().to_string();
        error.to_string().replace(&folder, "DIR")
    }
}

/// A tensor as stored in a file.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Reads the tensors of a directory directly with the `safetensors` crate.
fn stored(folder: &Path) -> BTreeMap<String, Stored> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !(name.starts_with("model") && name.ends_with(".safetensors")) {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let stored = Stored {
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                bytes: view.data().to_vec(),
            };
            let twice = found.insert(name.to_owned(), stored).is_some();
            assert!(!twice, "{name} is in two files");
        }
    }
    found
}

fn load(folder: &Path) -> Transformer<Flex> {
    let model = HuggingFaceModel::open(folder).unwrap();
    model.decoder(&Default::default()).unwrap()
}

fn initial(config: TransformerConfig) -> Transformer<Flex> {
    config.init(3, &Default::default())
}

fn options(element: Element) -> ExportOptions {
    ExportOptions {
        element,
        shard_bytes: u64::MAX,
        fields: Map::new(),
        family: None,
    }
}

/// The bit patterns of every parameter.
fn bits(decoder: &Transformer<Flex>) -> Vec<(String, Vec<u32>)> {
    let bits = |tensor: HostTensor| tensor.values.into_iter().map(f32::to_bits).collect();
    let tensors = named_tensors(decoder).into_iter();
    tensors.map(|(name, tensor)| (name, bits(tensor))).collect()
}
