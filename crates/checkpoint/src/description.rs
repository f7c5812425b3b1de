//! `model.json`: the description of a checkpoint's model.

use std::collections::BTreeMap;
use std::path::PathBuf;

use emberlm_data::{ChatTemplateSpec, Packing};
use emberlm_model::{LoraConfig, ModelConfig, TransformerConfig};
use emberlm_tokenizer::TokenizerSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Model configuration, tokenizer and training format of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Model configuration.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub model: ModelConfig,
    /// Tokenizer, if known.
    pub tokenizer: Option<TokenizerSpec>,
    /// Chat template of the training conversations, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<ChatTemplateSpec>,
    /// Packing of documents into training sequences.
    #[serde(default, skip_serializing_if = "Packing::is_stream")]
    pub documents: Packing,
    /// Length of the training sequences in tokens, if shorter than the model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_len: Option<usize>,
    /// Adapter, if the checkpoint stores only that and not the weights of its base model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterDescription>,
}

impl Description {
    /// Describes a model without tokenizer and chat template.
    pub fn of_model(model: &TransformerConfig) -> Self {
        Self {
            model: model.raw().clone(),
            tokenizer: None,
            chat_template: None,
            documents: Packing::Stream,
            seq_len: None,
            adapter: None,
        }
    }
}

/// The adapter of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdapterDescription {
    /// Settings.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub settings: LoraConfig,
    /// The model that it adapts.
    pub base: BaseModel,
}

/// The model that an adapter was trained on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BaseModel {
    /// Its directory or file.
    pub path: PathBuf,
    /// BLAKE3 of the hashes of its weight files, in hexadecimal.
    pub blake3: String,
}
