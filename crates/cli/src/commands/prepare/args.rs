//! Arguments of `emberlm prepare`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use emberlm_data::{DEFAULT_SHARD_TOKENS, Format, OnError, SplitRule};
use emberlm_tokenizer::TokenizerChoice;

use crate::examples;
use crate::new_folder::folder_parser;
use crate::values;

/// Arguments of `prepare`.
#[derive(Debug, Args)]
#[command(after_help = examples::PREPARE)]
pub struct PrepareArgs {
    /// Files, folders of them, patterns such as 'data/*.jsonl.gz', or - for standard input. A text file is a document,
    /// and so is each record of a JSONL, CSV, TSV or Parquet file; each may be compressed by gzip, zstd, bzip2 or xz
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The dataset's folder
    #[arg(long, value_name = "DATASET", value_parser = folder_parser("a dataset"), help_heading = "Output")]
    pub out: PathBuf,
    /// The tokenizer: gpt2, p50k, cl100k, o200k, char, byte, or the path of a tokenizer.json, a SentencePiece
    /// model, a rank file, or of a folder with one of the first two
    #[arg(long, value_name = "NAME|PATH", value_parser = values::tokenizer, help_heading = "Output")]
    pub tokenizer: TokenizerChoice,
    /// The format of all files [default: by each file's name, else text]
    #[arg(long, value_name = "FORMAT", value_parser = values::format_parser(), help_heading = "Input")]
    pub format: Option<Format>,
    /// The field or column of a record that is its text; dots lead into nested ones
    #[arg(
        long,
        value_name = "NAME",
        default_value = "text",
        visible_alias = "column",
        help_heading = "Input"
    )]
    pub field: String,
    /// Prepare conversations for training, with the loss on answers only: chatml, llama3, or the path of a template, of
    /// a
    /// tokenizer_config.json or of a folder with one
    #[arg(
        long,
        value_name = "NAME|PATH",
        conflicts_with = "field",
        help_heading = "Input"
    )]
    pub chat_template: Option<String>,
    /// Action on broken records: stop at the first, or skip and count them
    #[arg(long, value_name = "ACTION", default_value = "stop", hide_possible_values = true, value_parser = values::on_error_parser(), help_heading = "Input")]
    pub on_error: OnError,
    /// Choice of the validation split: the end of the text (position), documents by their hash (hash), or the files
    /// of --val (file) [default: position for texts, hash for records]
    #[arg(long = "split-by", alias = "split", value_name = "RULE", hide_possible_values = true, value_parser = values::split_parser(), help_heading = "Validation split")]
    pub split: Option<SplitRule>,
    /// Fraction of the documents or tokens in the validation split
    #[arg(long, value_name = "PART", default_value = "0.1", value_parser = values::val_fraction, allow_negative_numbers = true, help_heading = "Validation split")]
    pub val_fraction: f64,
    /// Files of the validation split; accepts the same forms as FILE
    #[arg(long, value_name = "FILE", num_args = 1.., required_if_eq("split", "file"), conflicts_with = "val_fraction", help_heading = "Validation split")]
    pub val: Vec<PathBuf>,
    /// Drop documents that equal an earlier one
    #[arg(long, help_heading = "Validation split")]
    pub dedup: bool,
    /// Maximum number of tokens in one file
    #[arg(
        long, value_name = "N", default_value_t = DEFAULT_SHARD_TOKENS,
        value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64), help_heading = "Output")]
    pub shard_tokens: u64,
    /// Number of tokenizing threads; it does not change the dataset [default: one per core]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<NonZero<usize>>,
    /// Resume a dataset that was not finished
    #[arg(long, alias = "continue", help_heading = "Run")]
    pub resume: bool,
    /// Replace an existing dataset, or restart an unfinished one
    #[arg(long, help_heading = "Run")]
    pub force: bool,
}
