//! The GPU runtime's on-disk caches: autotuning results and compiled kernels.

use std::fs;
use std::path::PathBuf;

use burn::cubecl::config::cache::CacheConfig;
use burn::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

use super::{BackendName, Placement};
use crate::console;

/// Points the runtime's caches to the user's cache folder. Must be called before the runtime starts, since it
/// reads them only once.
///
/// By default the runtime stores autotuning results in the `target` folder of the surrounding Cargo project
/// and does not store compiled kernels. A `cubecl.toml` or `burn.toml` in the working directory or above
/// takes precedence.
pub fn keep(placement: Placement) {
    let Some(folder) = folder(placement) else {
        return;
    };
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    if matches!(config.autotune.cache, CacheConfig::Target) {
        config.autotune.cache = CacheConfig::File(folder.clone());
    }
    let compiled = &mut config.compilation.cache;
    compiled.get_or_insert(CacheConfig::File(folder));
    CubeClRuntimeConfig::set(config);
}

/// Returns a writable cache folder, separate for each version of this program and each backend. The runtime
/// keys compiled kernels by name, and another version may use the same name for a different kernel. CUDA
/// kernels are compiled for a GPU architecture, so CUDA also has a folder per GPU.
fn folder(placement: Placement) -> Option<PathBuf> {
    let mut name = placement.name().to_owned();
    if placement.backend == BackendName::Cuda {
        let device = Some(placement.device.unwrap_or(0));
        let card = Placement {
            device,
            ..placement
        }
        .device_name();
        let card = card.unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        name = format!("{name}-{}", card.chars().map(plain).collect::<String>());
    }
    let folder = dirs::cache_dir()?
        .join("emberlm")
        .join(env!("CARGO_PKG_VERSION"))
        .join(name);
    let is_new = !folder.is_dir();
    fs::create_dir_all(&folder).ok()?;
    tempfile::tempfile_in(&folder).ok()?;
    if is_new {
        console::note(format_args!(
            "first use of {placement}: kernels are compiled and tuned, which can take minutes, and are then kept in {}",
            folder.display()
        ));
    }
    Some(folder)
}
