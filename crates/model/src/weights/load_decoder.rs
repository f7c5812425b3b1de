//! Loads a decoder with its weights in a [`WeightFormat`].

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::{Backend, PackedFormat, PackedWeight, ops};

use super::load::{Loader, Naming};
use super::map::Source;
use super::quantized::{Int8, Quantized};
use super::safetensors_store::SafetensorsStore;
use super::store::TensorStore;
use crate::error::WeightsError;
use crate::nn::linear::LinearWeight;
use crate::nn::packed_rows::PackedRows;
use crate::nn::token_table::TokenTable;
use crate::transformer::model::Transformer;
use crate::transformer::parameters::Parameters;
use crate::transformer::weight_format::WeightFormat;

/// Loads a decoder from a file written by [`super::save_own`], with its weights in the given format. Weights are packed
/// one by one while loading.
///
/// # Errors
/// Those of [`super::load_own`].
pub fn load_own_in<B: Backend>(
    decoder: Transformer<B>,
    file: &Path,
    format: WeightFormat,
) -> Result<Transformer<B>, WeightsError> {
    let naming = Naming {
        source: |path: &str| Some(Source::as_is(path)),
        optional_prefix: "",
        constant: Box::new(|_| false),
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

/// Loads a decoder with its weights in the given format, as [`Transformer::with_weights`] would convert them. Stored
/// packed weights are read unchanged if they have the format, otherwise unpacked. Floating-point weights are packed one
/// by one while loading, so at most one of them is held in f32.
pub(crate) fn load_decoder<B: Backend, S: Fn(&str) -> Option<Source>>(
    mut decoder: Transformer<B>,
    store: &dyn TensorStore,
    naming: Naming<'_, S>,
    int8: Option<Int8>,
    weights: WeightFormat,
) -> Result<Transformer<B>, WeightsError> {
    decoder.check_format(weights)?;
    let parameters = decoder.parameters();
    let mut loader = Loader::new(&decoder, store, naming);
    loader.quantized = int8.map(|int8| Quantized {
        int8,
        parameters: parameters.clone(),
    });
    // The head is the largest weight, so it is packed first, while nothing else is in memory.
    if let Some(format) = weights.head()
        && let Some(head) = &decoder.lm_head.head
        && let Some(rows) = table(&mut loader, &parameters, head, Wanted::of(weights, format))?
    {
        decoder.lm_head.head = Some(rows);
    }
    if weights.embedding().is_some() {
        let tokens = &decoder.embeddings.tokens;
        if let Some(rows) = table(&mut loader, &parameters, tokens, Wanted::AsStored)? {
            decoder.embeddings.tokens = rows;
        }
    }
    if let Some(format) = weights.layers() {
        let wanted = Wanted::of(weights, format);
        for linear in decoder.linears_mut() {
            if let LinearWeight::Float(weight) = &linear.weight {
                let layer = Orientation::Layer;
                let weight = packed(&mut loader, &parameters, weight, wanted, layer)?;
                if let Some(parts) = weight {
                    linear.weight = LinearWeight::Packed(PackedRows::of(parts));
                }
            }
        }
    }
    // Loads the remaining parameters and packs a copy of a tied table.
    loader.load(decoder)?.with_weights(weights)
}

/// The format that a matrix is wanted in.
#[derive(Clone, Copy)]
enum Wanted {
    /// This format, whatever the store has.
    Format(PackedFormat),
    /// The packed format of the store, or f32.
    AsStored,
}

impl Wanted {
    const fn of(weights: WeightFormat, format: PackedFormat) -> Self {
        match weights {
            WeightFormat::Stored(_) => Self::AsStored,
            _ => Self::Format(format),
        }
    }
}

/// Layout of a parameter that is packed `[out, in]`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Orientation {
    /// `[in, out]`.
    Layer,
    /// `[out, in]`.
    Table,
}

/// Loads a table in packed form. Returns `None` if it stays in f32.
fn table<B: Backend, S: Fn(&str) -> Option<Source>>(
    loader: &mut Loader<'_, S>,
    parameters: &Parameters,
    table: &TokenTable<B>,
    wanted: Wanted,
) -> Result<Option<TokenTable<B>>, WeightsError> {
    let mut rows = Vec::new();
    for part in table.parts() {
        match packed(loader, parameters, part, wanted, Orientation::Table)? {
            Some(parts) => rows.extend(parts),
            None => return Ok(None),
        }
    }
    Ok(Some(TokenTable::Packed(PackedRows::of(rows))))
}

/// Loads one weight in packed form, without storing its f32 values in the module. Returns `None` if it stays in f32.
fn packed<B: Backend, S: Fn(&str) -> Option<Source>>(
    loader: &mut Loader<'_, S>,
    parameters: &Parameters,
    param: &Param<Tensor<B, 2>>,
    wanted: Wanted,
    orientation: Orientation,
) -> Result<Option<Vec<PackedWeight<B>>>, WeightsError> {
    let path = parameters
        .get(param.id)
        .map_or_else(String::new, |parameter| parameter.path.clone());
    let shape = param.lazy_shape();
    let shape = [shape[0], shape[1]];
    let device = param.lazy_device();
    let from_host = |matrix| ops::packed_from_host(matrix, &device);
    let outputs_first = match orientation {
        Orientation::Layer => [shape[1], shape[0]],
        Orientation::Table => shape,
    };
    let stored = match wanted {
        Wanted::Format(_) => None,
        Wanted::AsStored => loader.stored_blocks(&path, outputs_first, orientation, None)?,
    };
    if let Some(parts) = stored {
        return Ok(Some(parts.into_iter().map(from_host).collect()));
    }
    let format = match wanted {
        Wanted::Format(format) => format,
        // A matrix of 16 bits in another order: packing it restores its bits.
        Wanted::AsStored => match loader.sixteen_bits(&path, &shape) {
            Some(format) => format,
            None => return Ok(None),
        },
    };
    if let Some(matrix) = loader.packed(&path, &shape)?
        && matrix.format() == format
    {
        return Ok(Some(vec![from_host(matrix)]));
    }
    if let Some(parts) = loader.stored_blocks(&path, outputs_first, orientation, Some(format))? {
        return Ok(Some(parts.into_iter().map(from_host).collect()));
    }
    let values = loader.values(&path, &shape)?;
    let values: Tensor<B, 2> = Tensor::from_data(TensorData::new(values, shape), &device);
    let values = match orientation {
        Orientation::Layer => values.transpose(),
        Orientation::Table => values,
    };
    Ok(Some(vec![ops::pack(values, format)]))
}
