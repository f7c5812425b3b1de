//! Arbitrary bytes as a model's files: a model or an error comes out.

use std::fs;
use std::path::Path;

use burn_flex::Flex;
use emberlm_model::hugging_face::{HuggingFaceModel, read_config};
use emberlm_model::weights::named_tensors;
use emberlm_model::{DecoderConfig, ModelConfig, count};

/// The model whose weights the bytes are said to be: a LLaMA of one block.
const CONFIG: &str = r#"{
    "model_type": "llama", "vocab_size": 5, "max_position_embeddings": 4, "hidden_size": 4, "num_hidden_layers": 1,
    "num_attention_heads": 1, "intermediate_size": 3, "tie_word_embeddings": true
}"#;

/// The name of the one shard that an index can find.
pub const SHARD: &str = "model-00001-of-00001.safetensors";

/// Reads `bytes` as `config.json`, and as the model of a `model.json`. Returns true if one of them is a model.
pub fn config(bytes: &[u8]) -> bool {
    let published = serde_json::from_slice(bytes).ok();
    let published = published.and_then(|fields| read_config(&fields).ok());
    let own = serde_json::from_slice::<ModelConfig>(bytes).ok();
    let own = own.and_then(|raw| DecoderConfig::try_from(raw).ok());
    for config in published.iter().chain(&own) {
        let parameters = count::parameters(config);
        assert!(parameters.total >= parameters.embedding);
        assert!(count::flops_per_token(config).training >= parameters.embedding);
        assert!(count::memory(config).weights >= parameters.total);
        // What is legal is so again, and the same.
        let again = DecoderConfig::try_from(config.raw());
        assert_eq!(again.as_ref(), Ok(config));
    }
    published.is_some() || own.is_some()
}

/// Any bytes as the weights of a small model. Whether they are.
pub fn weights(bytes: &[u8], folder: &Path) -> bool {
    put(folder, "config.json", CONFIG.as_bytes());
    put(folder, "model.safetensors", bytes);
    load(folder)
}

/// Any bytes as the index of a small model's weights. Whether they are one of `shard`.
pub fn index(bytes: &[u8], shard: &[u8], folder: &Path) -> bool {
    put(folder, "config.json", CONFIG.as_bytes());
    put(folder, SHARD, shard);
    put(folder, "model.safetensors.index.json", bytes);
    load(folder)
}

fn load(folder: &Path) -> bool {
    let Ok(model) = HuggingFaceModel::open(folder) else {
        panic!("the configuration is legal");
    };
    match model.decoder::<Flex>(&Default::default()) {
        Ok(decoder) => {
            let tensors = named_tensors(&decoder);
            let elements: usize = tensors.iter().map(|(_, tensor)| tensor.values.len()).sum();
            assert_eq!(elements, count::parameters(model.config()).total);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    if let Err(error) = fs::write(folder.join(name), bytes) {
        panic!("{name}: {error}");
    }
}
