//! Reading a decoder's weights in a number format.

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, PackedWeight, ops};

use super::load::{Loader, Naming, load};
use super::map::Source;
use super::safetensors_store::SafetensorsStore;
use super::store::TensorStore;
use crate::decoder::Decoder;
use crate::error::WeightsError;
use crate::linear::LinearWeight;
use crate::parameters::Parameters;
use crate::token_table::TokenTable;
use crate::weight_format::WeightFormat;

/// Loads a decoder from a file that this project wrote, its weights in a format. Weights are packed one by one as they are read.
///
/// # Errors
/// As [`super::load_own`].
pub fn load_own_in<B: Backend>(
    decoder: Decoder<B>,
    file: &Path,
    format: WeightFormat,
) -> Result<Decoder<B>, WeightsError> {
    let naming = Naming {
        source: |path: &str| Some(Source::as_is(path)),
        optional_prefix: "",
        constant: |_| false,
        tied: None,
    };
    load_decoder(decoder, &SafetensorsStore::open(file)?, naming, format)
}

/// [`load`] of a decoder whose weights are then in a format, as those of [`Decoder::with_weights`]. Weights are packed one by one
/// as they are read, so that beside the result no more than one of them is held in f32.
pub(crate) fn load_decoder<B: Backend, S: Fn(&str) -> Option<Source>>(
    mut decoder: Decoder<B>,
    store: &dyn TensorStore,
    naming: Naming<S>,
    format: WeightFormat,
) -> Result<Decoder<B>, WeightsError> {
    let WeightFormat::Packed(format) = format else {
        return load(decoder, store, naming);
    };
    let parameters = decoder.parameters();
    let mut loader = Loader::new(&decoder, store, naming);
    // The head first: it is the largest, and nothing else is held yet.
    if let Some(head) = decoder.lm_head.head.take() {
        let mut parts: Vec<PackedWeight<B>> = Vec::new();
        for part in head.parts() {
            let rows = floats(&mut loader, &parameters, part)?;
            parts.push(ops::pack(rows, format));
        }
        decoder.lm_head.head = Some(TokenTable::Packed(parts));
    }
    for linear in decoder.linears_mut() {
        if let LinearWeight::Float(weight) = &linear.weight {
            let weight = floats(&mut loader, &parameters, weight)?;
            linear.weight = LinearWeight::Packed(ops::pack(weight.transpose(), format));
        }
    }
    // The rest, and the packed copy of a tied table.
    Ok(loader.load(decoder)?.packed(format))
}

/// A parameter's numbers, which the module never holds.
fn floats<B: Backend, S: Fn(&str) -> Option<Source>>(
    loader: &mut Loader<'_, S>,
    parameters: &Parameters,
    param: &Param<Tensor<B, 2>>,
) -> Result<Tensor<B, 2>, WeightsError> {
    let path = parameters
        .get(param.id)
        .map_or_else(String::new, |parameter| parameter.path.clone());
    let shape = param.lazy_shape();
    let shape = [shape[0], shape[1]];
    let values = loader.values(&path, &shape)?;
    let data = TensorData::new(values, shape);
    Ok(Tensor::from_data(data, &param.lazy_device()))
}
