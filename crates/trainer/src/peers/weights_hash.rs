//! A hash by which ranks compare their weights.

use burn::module::Module;
use emberlm_kernels::Backend;

/// The BLAKE3 hash of a model's weights, with names and shapes.
pub fn weights_hash<B: Backend, M: Module<B>>(model: &M) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in emberlm_model::weights::device_tensors(model) {
        let tensor = tensor.on_host();
        hasher.update(name.as_bytes());
        for size in &tensor.shape {
            hasher.update(&(*size as u64).to_le_bytes());
        }
        for block in tensor.values.chunks(1 << 14) {
            let bytes: Vec<u8> = block.iter().flat_map(|x| x.to_le_bytes()).collect();
            hasher.update(&bytes);
        }
    }
    hasher.finalize().to_string()
}
