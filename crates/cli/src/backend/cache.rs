//! The caches of a GPU's runtime, kept between runs: the fastest kernel for each product, and compiled kernels.

use std::fs;
use std::path::PathBuf;

use burn::cubecl::config::cache::CacheConfig;
use burn::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

use super::{BackendName, Placement};

/// Sets the runtime's caches to the user's cache folder, before the runtime begins; it takes them once.
///
/// By default the runtime keeps its measurements in the `target` folder of the Cargo project around the working directory,
/// and does not keep compiled kernels. A `cubecl.toml` or `burn.toml` above the working directory takes precedence.
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

/// A folder that can be written to, one for each version of this program and for each backend: the runtime knows a compiled kernel by what
/// it is called, which another version may call another one. CUDA's kernels are of a card's architecture, so it is one for each card as well.
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
    fs::create_dir_all(&folder).ok()?;
    tempfile::tempfile_in(&folder).ok()?;
    Some(folder)
}
