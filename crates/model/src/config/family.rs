//! The published model families.

use serde::{Deserialize, Serialize};

use crate::config::ModelKind;

/// A published model family; [`crate::families`] describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// PocketTransformer.
    Pocket,
    /// The decoder of "Attention Is All You Need".
    Vanilla,
    /// The vanilla decoder with pre-norm, learned positions and GELU.
    Prenorm,
    /// The model of Stanford CS336.
    Cs336,
    /// GPT-2.
    Gpt2,
    /// GPT-J.
    Gptj,
    /// GPT-NeoX and Pythia.
    GptNeox,
    /// LLaMA 1, 2 and 3.
    Llama,
    /// Mistral 7B.
    Mistral,
    /// Mixtral.
    Mixtral,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// The Qwen1.5 and Qwen2 models with experts.
    Qwen2Moe,
    /// The dense Qwen3 models.
    Qwen3,
    /// The Qwen3 models with experts.
    Qwen3Moe,
    /// OLMoE.
    Olmoe,
    /// Gemma 2.
    Gemma2,
    /// OLMo 2.
    Olmo2,
    /// OLMo 3.
    Olmo3,
    /// SmolLM3.
    Smollm3,
    /// Phi-3 and Phi-4.
    Phi3,
    /// Granite 3 (dense).
    Granite,
    /// The text models of Gemma 3.
    Gemma3Text,
    /// StarCoder2.
    Starcoder2,
    /// Command R.
    Cohere,
    /// GLM-4.
    Glm4,
    /// BLOOM.
    Bloom,
    /// Falcon.
    Falcon,
    /// gpt-oss.
    GptOss,
    /// Qwen3-Next.
    Qwen3Next,
    /// The text models of Qwen3.5.
    Qwen3_5Text,
    /// DeepSeek-V2.
    DeepseekV2,
    /// DeepSeek-V3, Moonlight and Kimi K2.
    DeepseekV3,
    /// GLM-4.5, 4.6 and 4.7.
    Glm4Moe,
    /// GLM-4.7-Flash.
    Glm4MoeLite,
    /// PaLM.
    Palm,
    /// BERT.
    Bert,
    /// RoBERTa.
    Roberta,
    /// XLM-RoBERTa.
    XlmRoberta,
    /// DistilBERT.
    Distilbert,
    /// ModernBERT.
    Modernbert,
    /// T5, T5 v1.1 and Flan-T5.
    T5,
    /// mT5.
    Mt5,
}

impl Family {
    /// The first family of a kind of model.
    pub(crate) const fn of_kind(kind: ModelKind) -> Self {
        match kind {
            ModelKind::Decoder => Self::Pocket,
            ModelKind::Encoder => Self::Bert,
            ModelKind::EncoderDecoder => Self::T5,
        }
    }
}
