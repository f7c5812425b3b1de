//! Arguments of `generate`.

use std::path::PathBuf;

use clap::Args;
use emberlm_generate::SETTINGS;

use super::choice::ChoiceArgs;
use crate::adapter_arg::AdapterArg;
use crate::backend::BackendArg;
use crate::cache_arg::CacheArg;
use crate::examples;
use crate::memory_guard::MemoryArg;
use crate::values;
use crate::weights_arg::WeightsArg;

/// Arguments of `generate`.
#[derive(Debug, Args)]
#[command(after_help = examples::GENERATE)]
pub struct GenerateArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The text to continue, or an encoder–decoder's source [default: start a new document]
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "tokens",
        help_heading = "Input"
    )]
    pub prompt: Option<String>,
    /// The token ids to continue, or an encoder–decoder's source, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id, help_heading = "Input")]
    pub tokens: Option<Vec<u32>>,
    /// Maximum number of tokens to generate [default: the model's, or 200]
    #[arg(long, alias = "max-tokens", value_name = "N", value_parser = values::count, help_heading = "Length")]
    pub max_new_tokens: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub choice: ChoiceArgs,
    /// Stop before TEXT; can be repeated
    #[arg(long, value_name = "TEXT", value_parser = values::stop, help_heading = "Length")]
    pub stop: Vec<String>,
    /// Generate N independent samples of the prompt: sample i uses stream i of the seed, so that the first is the text
    /// without this option
    #[arg(long, value_name = "N", value_parser = values::at_least_one, help_heading = "Sampling")]
    pub num_samples: Option<usize>,
    /// Search for the most probable text with N beams, instead of choosing one token after the other
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count,
        conflicts_with_all = SETTINGS.iter().map(|setting| setting.name).chain([
            "draft", "logit_bias", "json_schema", "regex", "seed", "logprobs", "stop",
        ]),
        help_heading = "Beam search"
    )]
    pub beams: Option<usize>,
    /// Score a text by its log-probability divided by its length to this power: above 0 favours long texts
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        requires = "beams",
        help_heading = "Beam search"
    )]
    pub length_penalty: f64,
    /// A smaller draft model with the same tokens: the same text at temperature 0, the same distribution otherwise, in fewer
    /// passes
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub draft: Option<PathBuf>,
    /// Number of draft tokens per pass of the model
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        requires = "draft",
        help_heading = "Model"
    )]
    pub draft_tokens: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub weights: WeightsArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Print {"tokens": [...], "text": "...", "finish": "length" or "stop"} after generation, and a list of them with
    /// --num-samples
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// With --json: print each token's log-probability, and those of the N most probable tokens at its position
    #[arg(long, value_name = "N", requires = "json", help_heading = "Output")]
    pub logprobs: Option<usize>,
    /// Print the sampling settings with their sources, and the prompt and generation speeds, on stderr
    #[arg(long, short, help_heading = "Output")]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}
