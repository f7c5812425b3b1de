//! The option for the format of key-value caches.

use std::path::Path;

use clap::Args;
use emberlm_checkpoint::ModelKind;
use emberlm_model::CacheFormat;

use crate::error::CliError;
use crate::values::cache_parser;

/// The format of key-value caches.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct CacheArg {
    /// Format of the key-value cache: f32, f16 for half of its memory, or q8 for about a quarter (`emberlm eval` measures the
    /// loss in quality)
    #[arg(long, value_name = "TYPE", value_parser = cache_parser(), default_value = CacheFormat::F32.name(), help_heading = "Model")]
    pub cache: CacheFormat,
}

/// Checks that a model's kind supports a cache format: only the caches of decoders are packed.
///
/// # Errors
/// Returns an error if the model at `path` is no decoder and the format is not f32.
pub fn check_kind(cache: CacheFormat, kind: ModelKind, path: &Path) -> Result<(), CliError> {
    if cache == CacheFormat::F32 || kind == ModelKind::Decoder {
        return Ok(());
    }
    let (path, kind) = (path.display(), kind.name());
    let message = format!("{path} is an {kind}, and only the caches of decoders can be packed");
    let hint = format!("leave out --cache {} for it", cache.name());
    Err(CliError::new(message).hint(hint))
}
