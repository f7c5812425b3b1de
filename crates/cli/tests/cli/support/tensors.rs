//! Tensors of safetensors files.

use safetensors::SafeTensors;

/// The elements of a tensor of f32.
pub fn floats(file: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let elements = tensors.tensor(name).unwrap().data().as_chunks().0;
    elements.iter().map(|&x| f32::from_le_bytes(x)).collect()
}

/// The elements of a tensor of i64.
pub fn ids(file: &[u8], name: &str) -> Vec<i64> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let elements = tensors.tensor(name).unwrap().data().as_chunks().0;
    elements.iter().map(|&x| i64::from_le_bytes(x)).collect()
}
