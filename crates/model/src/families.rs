//! Published model families and their presets, listed in `docs/reference/families.md`.
//!
//! To add a family, add a file here with its equations, sizes and tensor names, a variant of [`Family`], and a line in
//! `Family::definition`.

mod bloom;
mod cohere;
mod cs336;
mod falcon;
mod gemma2;
mod gemma3_text;
mod glm4;
mod gpt2;
mod gpt_neox;
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
mod qwen3_moe;
mod smollm3;
mod starcoder2;
mod vanilla;

pub use crate::config::Family;
use crate::config::base::{common, rotary};
use crate::config::{ModelConfig, ModelKind};
use crate::exchange::encoder::{EncoderExchange, bert, distilbert, modernbert, roberta};
use crate::exchange::{DecoderType, Exchange, ModelType, t5};
use crate::transformer::checked::TransformerConfig;
use crate::weights::map::Source;
use crate::weights::names::{self, TensorName};

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

impl Preset {
    fn new(name: &'static str, about: &'static str, config: ModelConfig) -> Self {
        Self {
            name,
            about,
            config,
        }
    }
}

/// Definition of a model family.
struct Definition {
    /// Name in configuration files.
    name: &'static str,
    /// Returns the presets. The family's name selects the first one.
    presets: fn() -> Vec<Preset>,
    /// Tensor names of published checkpoints.
    names: &'static [TensorName],
    /// Hugging Face format; `None` if `transformers` does not support the family.
    exchange: Option<fn() -> Exchange>,
}

impl Definition {
    /// A family whose [`ModelType`] has the names.
    const fn of_type(name: &'static str) -> Self {
        Self {
            name,
            presets: Vec::new,
            names: &[],
            exchange: None,
        }
    }
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 35] = [
        Self::Pocket,
        Self::Vanilla,
        Self::Prenorm,
        Self::Cs336,
        Self::Gpt2,
        Self::Gptj,
        Self::GptNeox,
        Self::Llama,
        Self::Mistral,
        Self::Mixtral,
        Self::Qwen2,
        Self::Qwen2Moe,
        Self::Qwen3,
        Self::Qwen3Moe,
        Self::Olmoe,
        Self::Gemma2,
        Self::Olmo2,
        Self::Olmo3,
        Self::Smollm3,
        Self::Phi3,
        Self::Granite,
        Self::Gemma3Text,
        Self::Starcoder2,
        Self::Cohere,
        Self::Glm4,
        Self::Bloom,
        Self::Falcon,
        Self::Palm,
        Self::Bert,
        Self::Roberta,
        Self::XlmRoberta,
        Self::Distilbert,
        Self::Modernbert,
        Self::T5,
        Self::Mt5,
    ];

    fn definition(self) -> Definition {
        match self {
            Self::Pocket => pocket::DEFINITION,
            Self::Vanilla => vanilla::DEFINITION,
            Self::Prenorm => prenorm::DEFINITION,
            Self::Cs336 => cs336::DEFINITION,
            Self::Gpt2 => gpt2::DEFINITION,
            Self::Gptj => gptj::DEFINITION,
            Self::GptNeox => gpt_neox::DEFINITION,
            Self::Llama => llama::DEFINITION,
            Self::Mistral => mistral::DEFINITION,
            Self::Mixtral => mixtral::DEFINITION,
            Self::Qwen2 => qwen2::DEFINITION,
            Self::Qwen2Moe => qwen2_moe::DEFINITION,
            Self::Qwen3 => qwen3::DEFINITION,
            Self::Qwen3Moe => qwen3_moe::DEFINITION,
            Self::Olmoe => olmoe::DEFINITION,
            Self::Gemma2 => gemma2::DEFINITION,
            Self::Olmo2 => olmo2::DEFINITION,
            Self::Olmo3 => olmo3::DEFINITION,
            Self::Smollm3 => smollm3::DEFINITION,
            Self::Phi3 => phi3::DEFINITION,
            Self::Granite => granite::DEFINITION,
            Self::Gemma3Text => gemma3_text::DEFINITION,
            Self::Starcoder2 => starcoder2::DEFINITION,
            Self::Cohere => cohere::DEFINITION,
            Self::Glm4 => glm4::DEFINITION,
            Self::Bloom => bloom::DEFINITION,
            Self::Falcon => falcon::DEFINITION,
            Self::Palm => palm::DEFINITION,
            Self::Bert => Definition::of_type("bert"),
            Self::Roberta => Definition::of_type("roberta"),
            Self::XlmRoberta => Definition::of_type("xlm_roberta"),
            Self::Distilbert => Definition::of_type("distilbert"),
            Self::Modernbert => Definition::of_type("modernbert"),
            Self::T5 => Definition::of_type("t5"),
            Self::Mt5 => Definition::of_type("mt5"),
        }
    }

    /// The name in configuration files.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The presets of the family.
    pub fn presets(self) -> Vec<Preset> {
        (self.definition().presets)()
    }

    /// Returns the source of the parameter at `path` in the family's published checkpoints; `None` if they lack it.
    pub fn source(self, config: &TransformerConfig, path: &str) -> Option<Source> {
        if let Some(other) = self.other_type() {
            return other.source(config, path);
        }
        let rows = self.definition().names.iter();
        let rows = rows.filter(|row| row.applies_to(config));
        names::source(rows, &config.stack().block.attention, path)
    }

    /// The beginning of the names of [`Family::source`] that `transformers` leaves out for a model without a head of its
    /// own; `None` for other models.
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
            let exchange = self.definition().exchange?();
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
