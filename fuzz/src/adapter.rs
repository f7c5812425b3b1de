//! Feeds arbitrary bytes to the reader of an adapter's files, which must add the adapter to its base model or return
//! an error.

use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use burn_flex::Flex;
use emberlm_model::Transformer;
use emberlm_model::adapter::{ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE, PeftAdapter};
use emberlm_model::hugging_face::HuggingFaceModel;

/// The folder of the valid adapters, relative to this crate.
const FOLDER: &str = "../crates/model/tests/fixtures/adapters";

/// Valid adapters of the same model: of low rank, with magnitudes, and with whole modules.
pub const VALID: [&str; 3] = ["llama-lora", "llama-dora", "llama-saved-norms"];

/// The base model.
static BASE: LazyLock<Mutex<Transformer<Flex>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let model = HuggingFaceModel::open(&folder.join(VALID[0]).join("base")).unwrap();
    Mutex::new(model.decoder(&Default::default()).unwrap())
});

/// The settings and the weights of the valid adapters.
static FILES: LazyLock<[[Vec<u8>; 2]; 3]> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    VALID.map(|adapter| {
        [ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE]
            .map(|name| fs::read(folder.join(adapter).join(name)).unwrap())
    })
});

/// Reads `bytes` as the settings of adapters with valid weights, and as the weights of adapters with valid settings.
/// Returns true if one of them is valid.
pub fn adapter(bytes: &[u8], folder: &Path) -> bool {
    let mut is_valid = false;
    for [config, weights] in &*FILES {
        is_valid |= add(bytes, weights, folder);
        is_valid |= add(config, bytes, folder);
    }
    is_valid
}

/// Adds the adapter of two files to the base model. Returns true if they are valid.
fn add(config: &[u8], weights: &[u8], folder: &Path) -> bool {
    for (name, bytes) in [
        (ADAPTER_CONFIG_FILE, config),
        (ADAPTER_WEIGHTS_FILE, weights),
    ] {
        if let Err(error) = fs::write(folder.join(name), bytes) {
            panic!("{name}: {error}");
        }
    }
    let base = BASE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let adapter = PeftAdapter::open(folder);
    match adapter.and_then(|adapter| adapter.add_to(base)) {
        Ok(decoder) => {
            assert!(decoder.has_adapter());
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
