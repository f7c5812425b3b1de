//! `emberlm merge`: adds an adapter to the weights of its model.

use std::path::PathBuf;

use clap::Args;
use emberlm_model::weights::Element;

use super::export;
use crate::adapter_arg::AdapterArg;
use crate::backend::BackendArg;
use crate::error::CliError;
use crate::examples;
use crate::new_folder::folder_parser;
use crate::values;

/// Arguments of `merge`.
#[derive(Debug, Args)]
#[command(after_help = examples::MERGE)]
pub struct MergeArgs {
    /// A run with an adapter, or with --adapter the model that it is for
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// The folder to write
    #[arg(long, value_name = "DIR", value_parser = folder_parser("a model"))]
    pub out: PathBuf,
    /// The type of the weights: bf16, f16 or f32 [default: that of the model]
    #[arg(long, value_name = "TYPE", value_parser = values::element_parser())]
    pub dtype: Option<Element>,
    /// Replace an existing model
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Writes the merged model as a Hugging Face directory and prints a summary.
///
/// # Errors
/// The model has no adapter, a file cannot be read or written, or `transformers` has no type for the model.
pub fn run(args: MergeArgs) -> Result<(), CliError> {
    let model = args.adapter.open(&args.model)?;
    if !model.has_adapter() {
        let path = args.model.display();
        return Err(CliError::new(format!("{path} has no adapter to merge"))
            .hint("give one: --adapter ADAPTER"));
    }
    export::directory(
        &model,
        export::DirectoryOptions {
            out: &args.out,
            force: args.force,
            weights: None,
            dtype: args.dtype,
            shard_bytes: export::SHARD_BYTES,
            backend: &args.backend,
            merges: true,
        },
    )
}
