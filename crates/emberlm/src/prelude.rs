//! The names that most programs need: `use emberlm::prelude::*;`.

pub use crate::backend::*;
pub use crate::{
    ChatMessage, Completion, Dataset, GenerateOptions, Model, OpenOptions, Packing,
    SamplingDefaults, Split, TextModel, Tokenizer, TokenizerKind, Transformer, TransformerConfig,
};
pub use emberlm_data::{TokenDatasetOptions, write_token_dataset};
pub use emberlm_model::{LoraConfig, WeightFormat};
#[cfg(feature = "train")]
pub use emberlm_trainer::{
    DataConfig, RunConfig, RunOptions, RunResult, RunStart, Training, presets, run_config,
};
