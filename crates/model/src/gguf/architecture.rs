//! The supported architectures.

use emberlm_gguf::{GgufError, Metadata, Value as GgufValue};
use serde_json::{Map, Value};

use super::encoding::{self, Encoding};
use super::fields::{self, delta_nets};
use super::key_names::ATTENTION_SCALE;
use super::metadata::Keys;
use super::names::{
    FALCON, GEMMA, GLM4, GPT_OSS, GROUPED_VALUES, HYBRID, OLMO2, PHI3, TILED_VALUES,
};
use crate::config::Family;
use crate::transformer::checked::TransformerConfig;
use crate::weights::names::TensorName;

/// Key of the architecture's name.
pub(crate) const KEY: &str = "general.architecture";

/// An architecture of GGUF files: how its files differ from a Hugging Face directory.
pub(crate) struct Architecture {
    /// Value of `general.architecture`, and prefix of the keys.
    pub(crate) name: &'static str,
    /// The families whose models are written with this architecture.
    families: &'static [Family],
    /// Adds the fields of `config.json` that are not common to all architectures, `model_type` among them.
    pub(super) read: fn(&Keys<'_>, &mut Map<String, Value>) -> Result<(), GgufError>,
    /// Factors: the key of each, and its field in `config.json`. Without the key it is 1.
    pub(crate) factors: &'static [(&'static str, &'static str)],
    /// Bounds of logits: the key of each, and its field in `config.json`. Without the key, or with 0, there is none.
    pub(crate) caps: &'static [(&'static str, &'static str)],
    /// The record of windows.
    pub(crate) windows: Windows,
    /// True if the rotary base of layers with a window is recorded.
    pub(crate) window_base: bool,
    /// True if the width of experts is recorded beside that of other feed-forward layers.
    pub(crate) expert_width: bool,
    /// A key that only this architecture has.
    pub(crate) further: Option<fn(&TransformerConfig) -> Key>,
    /// True if the last blocks may be those of multi-token prediction, which are not read.
    pub(crate) predictions: bool,
    /// Tensor names that differ from those common to all architectures.
    pub(crate) names: &'static [&'static [TensorName]],
    /// True if queries, keys and values are written as one tensor.
    pub(crate) fused: bool,
    /// True if the rows of queries and keys are ordered by rotated pairs of elements.
    pub(crate) paired_rows: bool,
    /// The encodings of values by the ends of tensor names, of which the first one counts.
    pub(crate) encodings: &'static [(&'static str, Encoding)],
    /// True if mixtures of types have Q8_0 for the head, and fewer bits than usual for the feed-forward layers.
    pub(crate) wide_head: bool,
}

/// A key without the architecture before it, and its value.
pub(crate) type Key = (&'static str, GgufValue);

/// The record of the layers whose attention has a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Windows {
    /// Not at all.
    Unrecorded,
    /// All layers have the recorded window.
    AllLayers,
    /// All layers but the last of every `n` have it, unless another `n` is recorded.
    Every(u64),
    /// Likewise, and the layers are always listed.
    Listed(u64),
}

impl Architecture {
    /// A key with the architecture before it.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// The encoding of a tensor's values.
    pub(crate) fn encoding(&self, tensor: &str) -> Encoding {
        let mut all = self.encodings.iter();
        let found = all.find(|(end, _)| tensor.ends_with(end));
        found.map_or(Encoding::Plain, |(_, encoding)| *encoding)
    }
}

/// An architecture with the common names.
const fn plain(
    name: &'static str,
    families: &'static [Family],
    read: fn(&Keys<'_>, &mut Map<String, Value>) -> Result<(), GgufError>,
) -> Architecture {
    Architecture {
        name,
        families,
        read,
        factors: &[],
        caps: &[],
        windows: Windows::Unrecorded,
        window_base: false,
        expert_width: false,
        further: None,
        predictions: false,
        names: &[],
        fused: false,
        paired_rows: false,
        encodings: &[],
        wide_head: false,
    }
}

/// Every supported architecture.
static ARCHITECTURES: [Architecture; 22] = [
    Architecture {
        paired_rows: true,
        ..plain(
            "llama",
            &[Family::Llama, Family::Mistral, Family::Mixtral],
            fields::llama,
        )
    },
    plain("qwen2", &[Family::Qwen2], fields::qwen2),
    Architecture {
        expert_width: true,
        ..plain("qwen2moe", &[Family::Qwen2Moe], fields::qwen2_moe)
    },
    plain("qwen3", &[Family::Qwen3], fields::qwen3),
    Architecture {
        expert_width: true,
        ..plain("qwen3moe", &[Family::Qwen3Moe], fields::qwen3_moe)
    },
    plain("olmoe", &[Family::Olmoe], fields::olmoe),
    Architecture {
        fused: true,
        ..plain("gpt2", &[Family::Gpt2], fields::gpt2)
    },
    Architecture {
        fused: true,
        further: Some(fields::parallel),
        ..plain("gptneox", &[Family::GptNeox], fields::gpt_neox)
    },
    Architecture {
        caps: &[
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        windows: Windows::Every(2),
        names: &[GEMMA],
        encodings: encoding::GEMMA,
        ..plain("gemma2", &[Family::Gemma2], fields::gemma2)
    },
    Architecture {
        caps: &[("final_logit_softcapping", "final_logit_softcapping")],
        windows: Windows::Every(6),
        window_base: true,
        names: &[GEMMA],
        encodings: encoding::GEMMA,
        ..plain("gemma3", &[Family::Gemma3Text], fields::gemma3)
    },
    Architecture {
        windows: Windows::AllLayers,
        names: &[PHI3],
        fused: true,
        ..plain("phi3", &[Family::Phi3], fields::phi3)
    },
    Architecture {
        further: Some(fields::layout),
        names: &[FALCON],
        fused: true,
        wide_head: true,
        ..plain("falcon", &[Family::Falcon], fields::falcon)
    },
    Architecture {
        fused: true,
        ..plain("bloom", &[Family::Bloom], fields::bloom)
    },
    plain("starcoder2", &[Family::Starcoder2], fields::starcoder2),
    Architecture {
        factors: &[("logit_scale", "logit_scale")],
        ..plain("command-r", &[Family::Cohere], fields::cohere)
    },
    Architecture {
        names: &[GLM4],
        ..plain("glm4", &[Family::Glm4], fields::glm4)
    },
    Architecture {
        factors: &[
            (ATTENTION_SCALE, "attention_multiplier"),
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("logit_scale", "logits_scaling"),
        ],
        paired_rows: true,
        ..plain("granite", &[Family::Granite], fields::granite)
    },
    Architecture {
        paired_rows: true,
        ..plain("smollm3", &[Family::Smollm3], fields::smollm3)
    },
    Architecture {
        windows: Windows::Listed(4),
        window_base: true,
        names: &[OLMO2],
        ..plain("olmo2", &[Family::Olmo2, Family::Olmo3], fields::olmo)
    },
    Architecture {
        windows: Windows::Every(2),
        expert_width: true,
        names: &[GPT_OSS],
        ..plain("gpt-oss", &[Family::GptOss], fields::gpt_oss)
    },
    Architecture {
        expert_width: true,
        predictions: true,
        names: &[HYBRID, GROUPED_VALUES],
        encodings: encoding::HYBRID,
        ..plain("qwen3next", &[Family::Qwen3Next], delta_nets::qwen3_next)
    },
    Architecture {
        further: Some(delta_nets::sections),
        predictions: true,
        names: &[HYBRID, TILED_VALUES],
        encodings: encoding::HYBRID,
        ..plain("qwen35", &[Family::Qwen3_5Text], delta_nets::qwen3_5_text)
    },
];

/// Finds the architecture that a family's models are written with.
pub(crate) fn of_family(family: Family) -> Option<&'static Architecture> {
    let mut all = ARCHITECTURES.iter();
    all.find(|architecture| architecture.families.contains(&family))
}

/// The families whose models can be written.
pub(crate) fn families() -> impl Iterator<Item = Family> {
    let all = ARCHITECTURES.iter();
    all.flat_map(|architecture| architecture.families.iter().copied())
}

/// Finds the architecture of a file.
///
/// # Errors
/// There is none, or it is not supported.
pub(crate) fn of(metadata: &Metadata) -> Result<&'static Architecture, GgufError> {
    let name = metadata.text(KEY)?;
    let found = ARCHITECTURES
        .iter()
        .find(|architecture| Some(architecture.name) == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        metadata.error(KEY, format!("must be one of {}", names.join(", ")))
    })
}
