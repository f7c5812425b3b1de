//! The supported architectures.

use emberlm_gguf::{GgufError, Metadata};
use serde_json::{Map, Value};

use super::fields;
use super::metadata::Keys;
use super::names::{FALCON, GEMMA, GLM4, OLMO2, PHI3};
use crate::weights::names::TensorName;

/// Key of the architecture's name.
const KEY: &str = "general.architecture";

/// An architecture of GGUF files: how its files differ from a Hugging Face directory.
pub(super) struct Architecture {
    /// Value of `general.architecture`, and prefix of the keys.
    pub(super) name: &'static str,
    /// Adds the fields of `config.json` that are not common to all architectures, `model_type` among them.
    pub(super) read: fn(&Keys<'_>, &mut Map<String, Value>) -> Result<(), GgufError>,
    /// Tensor names that differ from those common to all architectures.
    pub(super) names: &'static [TensorName],
    /// True if the rows of queries and keys are ordered by rotated pairs of elements.
    pub(super) paired_rows: bool,
    /// True if the gains of norms have 1 added.
    pub(super) offset_norms: bool,
}

/// An architecture with the common names.
const fn plain(
    name: &'static str,
    read: fn(&Keys<'_>, &mut Map<String, Value>) -> Result<(), GgufError>,
) -> Architecture {
    Architecture {
        name,
        read,
        names: &[],
        paired_rows: false,
        offset_norms: false,
    }
}

/// Every supported architecture.
static ARCHITECTURES: [Architecture; 19] = [
    Architecture {
        paired_rows: true,
        ..plain("llama", fields::llama)
    },
    plain("qwen2", fields::qwen2),
    plain("qwen2moe", fields::qwen2_moe),
    plain("qwen3", fields::qwen3),
    plain("qwen3moe", fields::qwen3_moe),
    plain("olmoe", fields::olmoe),
    plain("gpt2", fields::gpt2),
    plain("gptneox", fields::gpt_neox),
    Architecture {
        names: GEMMA,
        offset_norms: true,
        ..plain("gemma2", fields::gemma2)
    },
    Architecture {
        names: GEMMA,
        offset_norms: true,
        ..plain("gemma3", fields::gemma3)
    },
    Architecture {
        names: PHI3,
        ..plain("phi3", fields::phi3)
    },
    Architecture {
        names: FALCON,
        ..plain("falcon", fields::falcon)
    },
    plain("bloom", fields::bloom),
    plain("starcoder2", fields::starcoder2),
    plain("command-r", fields::cohere),
    Architecture {
        names: GLM4,
        ..plain("glm4", fields::glm4)
    },
    Architecture {
        paired_rows: true,
        ..plain("granite", fields::granite)
    },
    Architecture {
        paired_rows: true,
        ..plain("smollm3", fields::smollm3)
    },
    Architecture {
        names: OLMO2,
        ..plain("olmo2", fields::olmo)
    },
];

/// Finds the architecture of a file.
///
/// # Errors
/// There is none, or it is not supported.
pub(super) fn of(metadata: &Metadata) -> Result<&'static Architecture, GgufError> {
    let name = metadata.text(KEY)?;
    let found = ARCHITECTURES
        .iter()
        .find(|architecture| Some(architecture.name) == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        metadata.error(KEY, format!("must be one of {}", names.join(", ")))
    })
}
