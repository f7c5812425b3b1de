//! Loads a decoder with its weights in a [`WeightFormat`].

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, PackedFormat, PackedWeight, ops};

use super::load::{Loader, Naming};
use super::map::Source;
use super::quantized::{Quantization, Quantized};
use super::safetensors_store::SafetensorsStore;
use super::store::TensorStore;
use crate::decoder::Decoder;
use crate::error::WeightsError;
use crate::linear::LinearWeight;
use crate::parameters::Parameters;
use crate::token_table::TokenTable;
use crate::weight_format::WeightFormat;

/// Loads a decoder from a file written by [`super::save_own`], with its weights in the given format. Weights are packed
/// one by one while loading.
///
/// # Errors
/// Those of [`super::load_own`].
pub fn load_own_in<B: Backend>(
    decoder: Decoder<B>,
    file: &Path,
    format: WeightFormat,
) -> Result<Decoder<B>, WeightsError> {
    let naming = Naming {
        source: |path: &str| Some(Source::as_is(path)),
        optional_prefix: "",
        constant: |_| false,
        tied: &[],
    };
    load_decoder(
        decoder,
        &SafetensorsStore::open(file)?,
        naming,
        None,
        format,
    )
}

/// Loads a decoder with its weights in the given format, as [`Decoder::with_weights`] would convert them. Stored
/// packed weights are read unchanged if they have the format, otherwise unpacked. Floating-point weights are packed one
/// by one while loading, so at most one of them is held in f32.
pub(crate) fn load_decoder<B: Backend, S: Fn(&str) -> Option<Source>>(
    mut decoder: Decoder<B>,
    store: &dyn TensorStore,
    naming: Naming<'_, S>,
    quantization: Option<Quantization>,
    weights: WeightFormat,
) -> Result<Decoder<B>, WeightsError> {
    decoder.check_format(weights)?;
    let parameters = decoder.parameters();
    let mut loader = Loader::new(&decoder, store, naming);
    loader.quantized = quantization.map(|quantization| Quantized {
        quantization,
        parameters: parameters.clone(),
    });
    // The head is the largest weight, so it is packed first, while nothing else is in memory.
    if let Some(format) = weights.head()
        && let Some(head) = decoder.lm_head.head.take()
    {
        let mut parts: Vec<PackedWeight<B>> = Vec::new();
        for part in head.parts() {
            parts.push(packed(
                &mut loader,
                &parameters,
                part,
                format,
                Orientation::Head,
            )?);
        }
        decoder.lm_head.head = Some(TokenTable::Packed(parts));
    }
    if let Some(format) = weights.layers() {
        for linear in decoder.linears_mut() {
            if let LinearWeight::Float(weight) = &linear.weight {
                let layer = Orientation::Layer;
                let weight = packed(&mut loader, &parameters, weight, format, layer)?;
                linear.weight = LinearWeight::Packed(weight);
            }
        }
    }
    // Loads the remaining parameters and packs a copy of a tied table.
    loader.load(decoder)?.with_weights(weights)
}

/// Layout of a parameter that is packed `[out, in]`.
#[derive(Clone, Copy, PartialEq)]
enum Orientation {
    /// `[in, out]`.
    Layer,
    /// `[out, in]`.
    Head,
}

/// Loads one weight in packed form, without storing its f32 values in the module.
fn packed<B: Backend, S: Fn(&str) -> Option<Source>>(
    loader: &mut Loader<'_, S>,
    parameters: &Parameters,
    param: &Param<Tensor<B, 2>>,
    format: PackedFormat,
    orientation: Orientation,
) -> Result<PackedWeight<B>, WeightsError> {
    let path = parameters
        .get(param.id)
        .map_or_else(String::new, |parameter| parameter.path.clone());
    let shape = param.lazy_shape();
    let shape = [shape[0], shape[1]];
    let device = param.lazy_device();
    if let Some(matrix) = loader.packed(&path, &shape)?
        && matrix.format() == format
    {
        return Ok(ops::packed_from_host(matrix, &device));
    }
    let outputs_first = match orientation {
        Orientation::Layer => [shape[1], shape[0]],
        Orientation::Head => shape,
    };
    if let Some(matrix) = loader.stored_blocks(&path, outputs_first, format)? {
        return Ok(ops::packed_from_host(matrix, &device));
    }
    let values = loader.values(&path, &shape)?;
    let values: Tensor<B, 2> = Tensor::from_data(TensorData::new(values, shape), &device);
    let values = match orientation {
        Orientation::Layer => values.transpose(),
        Orientation::Head => values,
    };
    Ok(ops::pack(values, format))
}
