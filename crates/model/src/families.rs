//! Published model families and their presets, listed in `docs/reference/families.md`.
//!
//! To add a family, add a file here with its equations, sizes and tensor names, a variant of [`Family`], and a row of
//! `families!`.

/// The sizes of a model in one row: each by its name, and after `;` the model that has the others.
macro_rules! sizes {
    ($($size:ident $value:expr),* $(; ..$base:expr)?) => {
        Sizes { $($size: $value,)* $(..$base)? }
    };
}

/// Presets, a row each: the name, a one-line description, and the configuration.
macro_rules! presets {
    ($($name:literal, $about:literal => $config:expr;)*) => {
        vec![$(Preset { name: $name, about: $about, config: $config }),*]
    };
}
mod bloom;
mod cohere;
mod cs336;
mod deepseek_v2;
mod deepseek_v3;
mod falcon;
mod gemma2;
mod gemma3_text;
mod glm4;
mod glm4_moe;
mod glm4_moe_lite;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod llama;
mod mistral;
mod mixtral;
mod olmo2;
mod olmo3;
mod olmoe;
mod palm;
mod phi3;
mod pocket;
mod prenorm;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5_text;
mod qwen3_moe;
mod qwen3_next;
mod smollm3;
mod starcoder2;
mod vanilla;

pub use crate::config::Family;
use crate::config::base::{common, rotary};
use crate::config::{Head, Init, ModelConfig, ModelKind, Norm};
use crate::exchange::encoder::{EncoderExchange, bert, distilbert, modernbert, roberta};
use crate::exchange::{DecoderType, Exchange, ModelType, t5};
use crate::transformer::checked::TransformerConfig;
use crate::weights::map::Source;
use crate::weights::names::Names;

/// The items that most families use.
mod prelude {
    pub(super) use emberlm_kernels::{Activation, RotaryLayout};
    pub(super) use serde_json::{Map, Value, json};

    pub(super) use super::llama::Sizes;
    pub(super) use super::{
        Family, Preset, common, complete_norms, head, layer_norm, normal, rotary,
    };
    pub(super) use crate::config::{
        AttentionKind, Biases, DropoutSite, ExpertGroups, ExpertScores, Experts, FeedForward,
        FullLayers, Head, Init, LatentAttention, LayerPositions, ModelConfig, Norm, Position,
        QkNormSpan, ResidualMix, RotaryScaling, ValueEmbeddings, Window, Wiring,
    };
    pub(super) use crate::error::HuggingFaceError;
    pub(super) use crate::exchange::fields::Fields;
    pub(super) use crate::exchange::names::{activation, activation_name, pytorch_activation_name};
    pub(super) use crate::exchange::rope::{self, FULL_HEAD, HALF_HEAD, ORIGINAL, RopeFields};
    pub(super) use crate::exchange::{Exchange, PADDING, experts, layers};
    pub(super) use crate::transformer::checked::TransformerConfig;
    pub(super) use crate::weights::names::Names;
}

/// A head without a bias and factors. A tied head shares the weight of the embedding.
fn head(tied: bool) -> Head {
    Head {
        tied,
        ..common(Family::of_kind(ModelKind::Decoder)).head
    }
}

/// LayerNorm with biases.
const fn layer_norm(epsilon: f64) -> Norm {
    Norm::Layer {
        bias: true,
        epsilon,
    }
}

/// Normally distributed initial weights, the residual projections like all others.
const fn normal(std: f64) -> Init {
    Init::Normal {
        std,
        scale_residual: false,
    }
}

/// Adds the biases of the norms, for types that always have them.
fn complete_norms(raw: &mut ModelConfig) {
    if let Norm::Layer { bias, .. } = &mut raw.norm {
        *bias = true;
    }
}

/// A named configuration of a family. The vocabulary size is unset if the dataset determines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Model configuration.
    pub config: ModelConfig,
}

/// Definition of a model family.
struct Definition {
    /// Returns the presets. The family's name selects the first one.
    presets: fn() -> Vec<Preset>,
    /// Tensor names of published checkpoints.
    names: Names<'static>,
    /// Hugging Face format; `None` if `transformers` does not support the family.
    exchange: Option<Exchange>,
}

/// Lists the families, a row each: of decoders the variant, and the module, whose name is that of the family in
/// configuration files and which has the items `presets`, `NAMES` and `EXCHANGE`; of others the variant and the name.
macro_rules! families {
    ($($family:ident = $module:ident,)*; $($other:ident = $name:literal,)*) => {
        impl Family {
            /// Every family.
            pub const ALL: [Self; [$(Self::$family,)* $(Self::$other),*].len()] =
                [$(Self::$family,)* $(Self::$other),*];

            /// The name in configuration files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$family => stringify!($module),)*
                    $(Self::$other => $name,)*
                }
            }

            /// `None` for encoders and encoder–decoders, whose names are those of their [`ModelType`].
            fn definition(self) -> Option<Definition> {
                match self {
                    $(Self::$family => Some(Definition {
                        presets: $module::presets,
                        names: $module::NAMES,
                        exchange: $module::EXCHANGE,
                    }),)*
                    $(Self::$other => None,)*
                }
            }
        }
    };
}

families! {
    Pocket = pocket,
    Vanilla = vanilla,
    Prenorm = prenorm,
    Cs336 = cs336,
    Gpt2 = gpt2,
    Gptj = gptj,
    GptNeox = gpt_neox,
    Llama = llama,
    Mistral = mistral,
    Mixtral = mixtral,
    Qwen2 = qwen2,
    Qwen2Moe = qwen2_moe,
    Qwen3 = qwen3,
    Qwen3Moe = qwen3_moe,
    Olmoe = olmoe,
    Gemma2 = gemma2,
    Olmo2 = olmo2,
    Olmo3 = olmo3,
    Smollm3 = smollm3,
    Phi3 = phi3,
    Granite = granite,
    Gemma3Text = gemma3_text,
    Starcoder2 = starcoder2,
    Cohere = cohere,
    Glm4 = glm4,
    Bloom = bloom,
    Falcon = falcon,
    GptOss = gpt_oss,
    Qwen3Next = qwen3_next,
    Qwen3_5Text = qwen3_5_text,
    DeepseekV2 = deepseek_v2,
    DeepseekV3 = deepseek_v3,
    Glm4Moe = glm4_moe,
    Glm4MoeLite = glm4_moe_lite,
    Palm = palm,
    ;
    Bert = "bert",
    Roberta = "roberta",
    XlmRoberta = "xlm_roberta",
    Distilbert = "distilbert",
    Modernbert = "modernbert",
    T5 = "t5",
    Mt5 = "mt5",
}

impl Family {
    /// The presets of the family.
    pub fn presets(self) -> Vec<Preset> {
        let definition = self.definition();
        definition.map_or_else(Vec::new, |definition| (definition.presets)())
    }

    /// Returns the source of the parameter at `path` in the family's published checkpoints; `None` if they lack it.
    pub fn source(self, config: &TransformerConfig, path: &str) -> Option<Source> {
        match self.definition() {
            Some(definition) => definition.names.source(config, path),
            None => self.other_type()?.source(config, path),
        }
    }

    /// The beginning of the names of [`Family::source`] that `transformers` leaves out for an encoder with a pooler or
    /// without a head; `None` for other models.
    pub(crate) fn left_out(self, config: &TransformerConfig) -> Option<&'static str> {
        let own = self.of_transformers()?;
        own.is_bare(config).then(|| own.prefix())
    }

    /// The model type in `transformers`, if it supports the family.
    pub fn model_type(self) -> Option<&'static str> {
        self.of_transformers().map(|own| own.name())
    }

    /// The family whose models have a model type.
    pub fn of_model_type(model_type: &str) -> Option<Self> {
        let mut families = Self::ALL.into_iter();
        families.find(|family| family.model_type() == Some(model_type))
    }

    /// The families of decoders.
    pub fn decoders() -> impl Iterator<Item = Self> {
        let families = Self::ALL.into_iter();
        families.filter(|family| family.kind() == ModelKind::Decoder)
    }

    /// The kind of the family's models.
    pub fn kind(self) -> ModelKind {
        match self {
            Self::Bert | Self::Roberta | Self::XlmRoberta | Self::Distilbert | Self::Modernbert => {
                ModelKind::Encoder
            }
            Self::T5 | Self::Mt5 => ModelKind::EncoderDecoder,
            _ => ModelKind::Decoder,
        }
    }

    /// The representation in Hugging Face directories; `None` if `transformers` does not support the family.
    pub(crate) fn of_transformers(self) -> Option<Box<dyn ModelType>> {
        let decoder = || -> Option<Box<dyn ModelType>> {
            let exchange = self.definition()?.exchange?;
            Some(Box::new(DecoderType {
                family: self,
                exchange,
            }))
        };
        self.other_type().or_else(decoder)
    }

    /// The model type of a family that is not one of decoders.
    fn other_type(self) -> Option<Box<dyn ModelType>> {
        let of_encoder =
            |exchange: &'static EncoderExchange| Some(Box::new(exchange) as Box<dyn ModelType>);
        match self {
            Self::Bert => of_encoder(&bert::EXCHANGE),
            Self::Roberta => of_encoder(&roberta::EXCHANGE),
            Self::XlmRoberta => of_encoder(&roberta::XLM_EXCHANGE),
            Self::Distilbert => of_encoder(&distilbert::EXCHANGE),
            Self::Modernbert => of_encoder(&modernbert::EXCHANGE),
            Self::T5 => Some(Box::new(&t5::T5)),
            Self::Mt5 => Some(Box::new(&t5::MT5)),
            _ => None,
        }
    }
}

/// Returns every preset of every family.
pub fn presets() -> Vec<Preset> {
    Family::ALL.into_iter().flat_map(Family::presets).collect()
}

/// Finds a preset by name. The name of a family selects its first preset.
pub fn preset(name: &str) -> Option<Preset> {
    let of_family = || {
        let family = Family::ALL
            .into_iter()
            .find(|family| family.name() == name)?;
        family.presets().into_iter().next()
    };
    presets()
        .into_iter()
        .find(|preset| preset.name == name)
        .or_else(of_family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformer::count;

    #[test]
    fn families_are_serialized_by_name() {
        for family in Family::ALL {
            let written = serde_json::to_value(family).expect("JSON");
            assert_eq!(written, family.name());
        }
    }

    #[test]
    fn presets_have_unique_names_and_valid_configurations() {
        let mut names: Vec<&str> = presets().iter().map(|preset| preset.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
        for preset in presets() {
            let mut config = preset.config;
            config.vocab_size.get_or_insert(1);
            if let Err(error) = TransformerConfig::try_from(config) {
                panic!("{}: {error}", preset.name);
            }
        }
    }

    #[test]
    fn reference_page_is_up_to_date() {
        let page = include_str!("../../../docs/reference/families.md");
        for preset in presets() {
            let row = format!("| `{}` |", preset.name);
            let sized = preset.config.vocab_size.is_some();
            let count = match TransformerConfig::try_from(preset.config) {
                Ok(config) if sized => in_thousands(count::parameters(&config).total),
                _ => String::new(),
            };
            let lists_preset = |line: &str| line.starts_with(&row) && line.contains(&count);
            assert!(page.lines().any(lists_preset), "{row} {count}");
        }
        let example = include_str!("families/mistral.rs");
        let (_, code) = example.split_once("\n\n").expect("a head comment");
        assert!(page.contains(code.trim_end()), "the example has changed");
    }

    fn in_thousands(number: usize) -> String {
        let digits = number.to_string();
        let groups = digits.as_bytes().rchunks(3).rev();
        let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
        groups.join(",")
    }
}
