//! Conversion of logits on the host.

use std::borrow::Cow;

use burn::tensor::TensorData;

/// The values as f32; copies only if they have another type.
pub(crate) fn floats(logits: &TensorData) -> Cow<'_, [f32]> {
    match logits.as_slice() {
        Ok(logits) => logits.into(),
        Err(_) => logits.iter::<f32>().collect(),
    }
}
