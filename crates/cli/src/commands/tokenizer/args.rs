//! Arguments of `emberlm tokenizer`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use emberlm_tokenizer::{Pattern, TokenizerChoice};

use crate::examples;
use crate::new_folder::folder_parser;
use crate::values;

/// Arguments of `tokenizer`.
#[derive(Debug, Args)]
#[command(after_help = examples::TOKENIZER)]
pub struct TokenizerArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: TokenizerCommand,
}

/// The commands about tokenizers.
#[derive(Debug, Subcommand)]
pub enum TokenizerCommand {
    /// Train a byte-level byte-pair tokenizer on texts
    Train(TrainArgs),
    /// Compare tokenizers on texts
    Stats(StatsArgs),
    /// Write a rank file or a SentencePiece model as a tokenizer.json
    Convert(ConvertArgs),
}

/// Arguments of `tokenizer train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// UTF-8 text files, or folders of them
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The tokenizer's folder
    #[arg(long, value_name = "DIR", value_parser = folder_parser("a tokenizer"))]
    pub out: PathBuf,
    /// The vocabulary's size, including the 256 bytes and the special tokens
    #[arg(long, value_name = "N")]
    pub vocab_size: usize,
    /// The pattern that splits texts before merging: gpt2, cl100k (gpt4), o200k (gpt4o), llama3 or qwen2
    #[arg(long, value_name = "NAME", default_value = "gpt4")]
    pub pattern: Pattern,
    /// A special token in addition to <|endoftext|>, such as <|im_start|>; can be repeated
    #[arg(long, value_name = "NAME")]
    pub special: Vec<String>,
    /// Minimum number of occurrences of a pair to merge it
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub min_frequency: u64,
}

/// Arguments of `tokenizer stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// UTF-8 text files, or folders of them
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<PathBuf>,
    /// A tokenizer: gpt2, p50k, cl100k, o200k, byte, or a path; can be repeated
    #[arg(long, value_name = "NAME|PATH", required = true, value_parser = values::tokenizer)]
    pub tokenizer: Vec<TokenizerChoice>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tokenizer convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// A rank file of tiktoken's, a SentencePiece model, or a tokenizer.json
    pub file: PathBuf,
    /// The tokenizer's folder
    #[arg(long, value_name = "DIR", value_parser = folder_parser("a tokenizer"))]
    pub out: PathBuf,
    /// The pattern that splits a rank file's texts: gpt2, cl100k (gpt4), o200k (gpt4o), llama3 or qwen2 [default: the built-in
    /// tokenizer's that has the same ranks]
    #[arg(long, value_name = "NAME")]
    pub pattern: Option<Pattern>,
    /// A special token of a rank file with its id, such as <|endoftext|>=50256; can be repeated
    #[arg(long, value_name = "NAME=ID", value_parser = values::named_id)]
    pub special: Vec<(String, u32)>,
}
