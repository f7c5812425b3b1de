//! Arguments of `export`.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use emberlm_model::WeightFormat;
use emberlm_model::gguf::FileType;
use emberlm_model::weights::Element;

use super::{ModelFormat, RoundingMethod};
use crate::backend::BackendArg;
use crate::examples;
use crate::new_folder::folder_or_gguf_parser;
use crate::values;

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = examples::EXPORT)]
pub struct ExportArgs {
    /// A run, checkpoint, Hugging Face directory or GGUF file
    pub model: PathBuf,
    /// The folder to write; with --format gguf, the file
    #[arg(long, value_name = "PATH", value_parser = folder_or_gguf_parser("a model"))]
    pub out: PathBuf,
    /// hugging-face for a directory, or gguf for a file that llama.cpp loads
    #[arg(long, value_name = "FORMAT", default_value = "hugging-face", value_parser = values::one_of(ModelFormat::ALL, ModelFormat::name))]
    pub format: ModelFormat,
    /// The type of a GGUF file's matrices; those ending in _k_m give some matrices more bits [default: f16]
    #[arg(long = "type", value_name = "TYPE", value_parser = values::file_type())]
    pub file_type: Option<FileType>,
    /// A text like those that the model will read. The matrices of a GGUF file are rounded so that its errors on this
    /// text are small
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub calibration: Option<PathBuf>,
    /// The method of rounding by the text: importance, or gptq, whose errors make up for each other [default: importance]
    #[arg(long, value_name = "METHOD", value_parser = values::one_of(RoundingMethod::ALL, RoundingMethod::name))]
    pub method: Option<RoundingMethod>,
    /// Maximum bytes of weights in one file of a directory [default: 5GB]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub shard_size: Option<ByteSize>,
    /// The format of the linear layers' weights and the head: f32 for floating-point numbers, or int8, a quarter of the size of
    /// f32 [default: as they are stored; f32 for the types of GGUF files, which a directory does not have]
    #[arg(long, value_name = "TYPE", value_parser = values::weights_parser())]
    pub weights: Option<WeightFormat>,
    /// The type of floating-point weights: bf16, f16 or f32 [default: as they are stored; f32 where int8 weights are unpacked]
    #[arg(long, value_name = "TYPE", value_parser = values::element_parser())]
    pub dtype: Option<Element>,
    /// Replace an existing model
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}
