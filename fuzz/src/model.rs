//! Feeds arbitrary bytes to the readers of a model's files, which must return a model or an error.

use std::fs;
use std::path::Path;

use burn_flex::Flex;
use emberlm_model::hugging_face::{HuggingFaceModel, read_config};
use emberlm_model::weights::named_tensors;
use emberlm_model::{ModelConfig, ModelKind, TransformerConfig, count};
use emberlm_tokenizer::GgufTokenizer;

/// The configuration of the fuzzed weights: a LLaMA with one block.
const CONFIG: &str = r#"{
    "model_type": "llama", "vocab_size": 5, "max_position_embeddings": 4, "hidden_size": 4, "num_hidden_layers": 1,
    "num_attention_heads": 1, "intermediate_size": 3, "tie_word_embeddings": true
}"#;

/// The name of the only shard that an index can refer to.
pub const SHARD: &str = "model-00001-of-00001.safetensors";

/// Reads `bytes` as a `config.json` and as the model of a `model.json`. Returns true if either is valid.
pub fn config(bytes: &[u8]) -> bool {
    let published = serde_json::from_slice(bytes).ok();
    let published = published.and_then(|fields| read_config(&fields).ok());
    let own = serde_json::from_slice::<ModelConfig>(bytes).ok();
    let own = own.and_then(|raw| TransformerConfig::try_from(raw).ok());
    for config in published.iter().chain(&own) {
        let parameters = count::parameters(config);
        assert!(parameters.total >= parameters.embedding);
        // Those of a decoder include the head's product; of other kinds they are an estimate without the token table.
        let counted = match config.kind() {
            ModelKind::Decoder => parameters.embedding,
            ModelKind::Encoder | ModelKind::EncoderDecoder => {
                parameters.total - parameters.embedding
            }
        };
        assert!(count::flops_per_token(config).training >= counted);
        assert!(count::memory(config).weights >= parameters.total);
        // A valid configuration round-trips.
        let again = TransformerConfig::try_from(config.raw());
        assert_eq!(again.as_ref(), Ok(config));
    }
    published.is_some() || own.is_some()
}

/// Reads `bytes` as the weights of a small model. Returns true if they are valid.
pub fn weights(bytes: &[u8], folder: &Path) -> bool {
    write(folder, "config.json", CONFIG.as_bytes());
    write(folder, "model.safetensors", bytes);
    load(folder)
}

/// Reads `bytes` as the index of a small model's weights. Returns true if it is a valid index of `shard`.
pub fn index(bytes: &[u8], shard: &[u8], folder: &Path) -> bool {
    write(folder, "config.json", CONFIG.as_bytes());
    write(folder, SHARD, shard);
    write(folder, "model.safetensors.index.json", bytes);
    load(folder)
}

/// Reads `bytes` as a GGUF file: its model and its tokenizer. Returns true if the model is valid.
pub fn gguf(bytes: &[u8], folder: &Path) -> bool {
    write(folder, "model.gguf", bytes);
    let path = folder.join("model.gguf");
    let Ok(model) = HuggingFaceModel::open(&path) else {
        return false;
    };
    if let Some(file) = model.gguf()
        && let Ok(Some(tokenizer)) = GgufTokenizer::read(file.metadata())
    {
        let _ = tokenizer.tokenizer();
    }
    // A small file can describe sizes that are allocated only for matching tensors.
    count::parameters(model.config()).total < 1 << 20
        && model.decoder::<Flex>(&Default::default()).is_ok()
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

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    if let Err(error) = fs::write(folder.join(name), bytes) {
        panic!("{name}: {error}");
    }
}
