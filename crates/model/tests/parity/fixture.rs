//! A fixture: tensors and the configuration of their model.

use std::path::PathBuf;

use emberlm_model::config::{Biases, Norm};
use emberlm_model::{ModelConfig, TransformerConfig, families};
use safetensors::SafeTensors;
use serde_json::Value;

pub struct Fixture {
    pub path: PathBuf,
    bytes: Vec<u8>,
    metadata: std::collections::HashMap<String, String>,
}

impl Fixture {
    pub fn open(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        Self::read(folder.join(format!("{name}.safetensors")))
    }

    pub fn read(path: PathBuf) -> Self {
        let bytes = std::fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        Self {
            path,
            bytes,
            metadata,
        }
    }

    pub fn json(&self, key: &str) -> Value {
        serde_json::from_str(&self.metadata[key]).unwrap()
    }

    /// The mean loss in float64.
    pub fn loss(&self) -> f64 {
        self.metadata["loss"].parse().unwrap()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        self.chunks::<4>(name)
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    }

    /// Token ids, with the tensor's shape.
    pub fn ids(&self, name: &str) -> (Vec<i64>, [usize; 2]) {
        let ids = self
            .chunks::<8>(name)
            .map(|bytes| i64::from_le_bytes(*bytes));
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let shape = tensors.tensor(name).unwrap().shape().to_vec();
        (ids.collect(), shape.try_into().unwrap())
    }

    /// A list of token ids.
    pub fn list(&self, name: &str) -> Vec<i64> {
        self.chunks::<8>(name)
            .map(|bytes| i64::from_le_bytes(*bytes))
            .collect()
    }

    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes)
            .unwrap()
            .tensor(name)
            .is_ok()
    }

    pub fn names(&self, prefix: &str) -> Vec<String> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let names = tensors.names().into_iter();
        names
            .filter_map(|name| name.strip_prefix(prefix))
            .map(str::to_owned)
            .collect()
    }

    fn chunks<const N: usize>(&self, name: &str) -> impl Iterator<Item = &[u8; N]> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = tensors.tensor(name).unwrap();
        view.data().as_chunks::<N>().0.iter()
    }

    /// The family's preset at the fixture's sizes.
    pub fn config(&self) -> TransformerConfig {
        let config = self.json("config");
        let size = |field: &str| config[field].as_u64().unwrap() as usize;
        let family = config["family"].as_str().unwrap();
        let mut raw: ModelConfig = families::preset(family).unwrap().config;
        raw.vocab_size = Some(size("vocab_size"));
        raw.seq_len = size("seq_len");
        raw.d_model = size("d_model");
        raw.n_layers = size("n_layers");
        raw.heads = size("heads");
        raw.kv_heads = Some(size("kv_heads"));
        raw.head_dim = Some(size("head_dim"));
        raw.feed_forward.width = Some(size("ffn_hidden"));
        if config["bias"] == Value::Bool(false) {
            raw.bias = Biases::all(false);
            if let Norm::Layer { bias, .. } = &mut raw.norm {
                *bias = false;
            }
        }
        TransformerConfig::try_from(raw).unwrap()
    }
}
