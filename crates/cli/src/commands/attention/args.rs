//! Arguments of `attention`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

use super::weights::AttentionOf;
use crate::adapter_arg::AdapterArg;
use crate::backend::BackendArg;
use crate::examples;
use crate::plot::PictureFile;
use crate::values;

/// Arguments of `attention`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("text").required(true).args(["prompt", "tokens"]))]
#[command(after_help = examples::ATTENTION)]
pub struct AttentionArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The text, or an encoder–decoder's source
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// The token ids, or an encoder–decoder's source, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id)]
    pub tokens: Option<Vec<u32>>,
    /// The attention of an encoder–decoder to look at [default: cross]
    #[arg(long, value_name = "STACK", value_enum)]
    pub of: Option<AttentionOf>,
    /// An encoder–decoder's target [default: the most probable one, at most 32 tokens]
    #[arg(long, value_name = "TEXT", conflicts_with = "target_tokens")]
    pub target: Option<String>,
    /// The token ids of an encoder–decoder's target, without the start token
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id)]
    pub target_tokens: Option<Vec<u32>>,
    /// Draw the weights: a row of panels per layer, a column per head [default: print a summary]
    #[arg(long, value_name = PictureFile::VALUE_NAME, value_parser = PictureFile::parse, value_hint = ValueHint::FilePath)]
    pub out: Option<PictureFile>,
    /// Only this layer, from 0
    #[arg(long, value_name = "N")]
    pub layer: Option<usize>,
    /// Only this head, from 0
    #[arg(long, value_name = "N")]
    pub head: Option<usize>,
    /// Print {"tokens", "heads": [{"layer", "head", "entropy", "distance", "previous", "first"}]}; for cross-attention with
    /// "target", and without "distance" and "previous"
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}
