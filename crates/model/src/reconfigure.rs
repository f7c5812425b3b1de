//! The same weights under another configuration: another dropout, another context.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::ParamId;
use burn::tensor::Tensor;
use serde_json::{Map, Value};

use emberlm_kernels::Backend;

use crate::checked::DecoderConfig;
use crate::config::{ModelConfig, Position};
use crate::decoder::Decoder;
use crate::error::ConfigError;
use crate::linear::LinearWeight;
use crate::weights::{ParamMapper, ParamVisitor, Parts, map_params, visit_params, whole_path};

/// Fields that say nothing about what weights compute.
pub(crate) const NOT_COMPUTED: [&str; 3] = ["init", "dropout", "dropout_sites"];

impl<B: Backend> Decoder<B> {
    /// The same weights with another dropout and another context. A table of learned positions is cut to the context.
    ///
    /// # Errors
    /// The weights are packed, another field differs, or the context is longer than the learned positions.
    pub fn reconfigured(&self, config: &DecoderConfig) -> Result<Self, ConfigError> {
        if let Some(format) = self.packed_format() {
            let rule = "must be f32: packed weights cannot be reconfigured";
            return Err(ConfigError::new("weights", format.name(), rule));
        }
        let held = self.config();
        let (own, other) = (held.raw(), config.raw());
        if let Some((field, value)) = first_difference(&own, &other, &["seq_len"]) {
            return Err(ConfigError {
                value: field_of(&other, &field),
                field: field.into(),
                rule: format!("must be {value}, as in the weights"),
            });
        }
        if config.position() == Position::Learned && config.seq_len() > held.seq_len() {
            let rule = format!(
                "must be at most {}: the weights have so many positions",
                held.seq_len()
            );
            return Err(ConfigError::new("seq_len", config.seq_len(), rule));
        }
        Ok(self.under(config))
    }

    /// The parameters of the same paths, and the packed weights, under another configuration; new parameters are zeros, as
    /// [`DecoderConfig::blank`]'s.
    pub(crate) fn under(&self, config: &DecoderConfig) -> Self {
        let mut found = Found(HashMap::new());
        visit_params(self, &mut found);
        let mut blank = config.blank(&self.device());
        for (new, (_, held)) in blank.linears_mut().zip(self.linears()) {
            if let Some(weight) = held.packed() {
                new.weight = LinearWeight::Packed(weight.clone());
            }
        }
        if self.table().packed_format().is_some() {
            blank.lm_head.head = self.lm_head.head.clone();
        }
        let parts = Parts::of(&blank);
        map_params(blank, &mut Held { found, parts })
    }
}

/// The first field that changes what is computed in which two models differ, and what it must be: the first's.
pub(crate) fn first_difference(
    one: &ModelConfig,
    other: &ModelConfig,
    but: &[&str],
) -> Option<(String, String)> {
    let (one, other) = (object(one), object(other));
    let ignored = |field: &str| NOT_COMPUTED.contains(&field) || but.contains(&field);
    // Unset fields are absent: a field that only the other has differs too.
    let fields = one.keys().chain(other.keys());
    fields
        .filter(|field| !ignored(field))
        .find(|field| one.get(*field) != other.get(*field))
        .map(|field| {
            let value = one.get(field).map_or("unset".to_owned(), Value::to_string);
            (field.clone(), value)
        })
}

/// A configuration's fields.
pub(crate) fn object(config: &ModelConfig) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn field_of(config: &ModelConfig, field: &str) -> String {
    object(config)
        .get(field)
        .map_or_else(String::new, Value::to_string)
}

/// Parameters by path, the elements of each part of one that is in parts.
struct Found<B: Backend>(HashMap<String, Vec<Tensor<B, 1>>>);

impl<B: Backend> Found<B> {
    /// Some elements of a parameter; none where there is no such parameter.
    fn elements(&self, whole: &str, range: Range<usize>) -> Option<Tensor<B, 1>> {
        let mut first = 0;
        let mut pieces = Vec::new();
        for part in self.0.get(whole)? {
            let last = first + part.dims()[0];
            let (start, end) = (range.start.max(first), range.end.min(last));
            if start < end {
                pieces.push(part.clone().narrow(0, start - first, end - start));
            }
            first = last;
        }
        match pieces.len() {
            0 | 1 => pieces.pop(),
            _ => Some(Tensor::cat(pieces, 0)),
        }
    }
}

impl<B: Backend> ParamVisitor<B> for Found<B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let elements = value.shape().num_elements();
        let parts = self.0.entry(whole_path(path).to_owned()).or_default();
        parts.push(value.reshape([elements]));
    }
}

struct Held<B: Backend> {
    found: Found<B>,
    /// The parts that the new model's parameters are cut into.
    parts: Parts,
}

impl<B: Backend> ParamMapper<B> for Held<B> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let (shape, tracked) = (value.shape(), value.is_require_grad());
        let place = self.parts.row_range(path);
        // Row by row, so that what is cut off is at the end.
        let range = place.elements(&value.dims());
        match self.found.elements(place.whole, range) {
            Some(kept) => kept.reshape(shape).detach().set_require_grad(tracked),
            None => value,
        }
    }
}
