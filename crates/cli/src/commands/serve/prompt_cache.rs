//! The folder of `--cache-dir`, in which prompt caches are kept between runs of the server.

use std::fs;
use std::path::PathBuf;

use burn::tensor::Device;
use emberlm_checkpoint::{Model, ModelKind};
use emberlm_kernels::Backend;
use emberlm_serve::{LoadPlan, PromptCache};

use super::log::Log;
use super::models::ModelSpec;
use crate::error::CliError;
use crate::weights_arg::Formats;

/// A folder of prompt caches and the most bytes of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFolder {
    pub path: PathBuf,
    pub bytes: u64,
}

/// The prompt cache of an engine with `models`, the first of which has `spec` and `plan`. `None` without a folder, for a run that
/// is followed, since its weights change, and for an encoder–decoder. Reads all weights once for their hash.
///
/// # Errors
/// The folder cannot be created, or the weights cannot be read.
pub fn of<B: Backend>(
    spec: &ModelSpec,
    plan: &LoadPlan<'_>,
    models: &[&Model],
    formats: Formats,
    device: &Device<B>,
    log: &Log,
) -> Result<Option<PromptCache>, CliError> {
    let folder = spec.prompt_cache.as_ref();
    let is_saved = !spec.follows && plan.model().kind() == ModelKind::Decoder;
    let Some(folder) = folder.filter(|_| is_saved) else {
        return Ok(None);
    };
    fs::create_dir_all(&folder.path).map_err(CliError::io("create", &folder.path))?;
    // Not the path of its checkpoint, which changes with the run.
    let path = fs::canonicalize(&spec.path).unwrap_or_else(|_| spec.path.clone());
    let engine = format!("{} {}", spec.options.name, path.display());
    let hashes = models.iter().map(|model| model.weights_hash());
    let hashes: Vec<String> = hashes.collect::<Result<_, _>>()?;
    let config = plan.engine();
    let version = format!(
        "{} {} {:?} {:?} {:?} {} {} {} {hashes:?}",
        env!("CARGO_PKG_VERSION"),
        B::name(device),
        formats.weights,
        formats.precision,
        formats.cache,
        config.capacity,
        config.prefill_tokens,
        config.deterministic,
    );
    let version = format!("{version} {:?}", plan.model().config());
    let log = log.clone();
    let warn = move |text| log.warn(text);
    let (path, bytes) = (folder.path.clone(), folder.bytes);
    Ok(Some(PromptCache::new(path, bytes, &engine, &version, warn)))
}
