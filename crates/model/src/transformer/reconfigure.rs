//! Moves weights to a configuration with another dropout, context length or head of an encoder.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::Backend;

use crate::config::difference::check_same;
use crate::config::{ModelConfig, Position};
use crate::error::ConfigError;
use crate::nn::linear::LinearWeight;
use crate::params::{ParamMapper, ParamVisitor, Parts, map_params, visit_params, whole_path};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::model::Transformer;

/// Fields that do not affect the output of trained weights.
pub(crate) const TRAINING_ONLY: [&str; 4] = ["init", "zero_init", "dropout", "dropout_sites"];
const ATTENTION_DROPOUT: &str = "architecture.attention_dropout";
const HEAD: &str = "architecture.head";

impl<B: Backend> Transformer<B> {
    /// Returns the model with the same weights and another dropout or context length. Learned positions are truncated
    /// to the context.
    ///
    /// # Errors
    /// Another field differs, or the context exceeds the learned positions.
    pub fn reconfigured(&self, config: &TransformerConfig) -> Result<Self, ConfigError> {
        self.check_reconfigured(config, &["seq_len"])?;
        Ok(self.with_config(config))
    }

    /// [`Self::reconfigured`], which may also give an encoder another head. Its parameters have their initial values by
    /// `seed`, except those of the same size whose paths `is_shared` by both heads.
    ///
    /// # Errors
    /// Those of [`Self::reconfigured`].
    pub(crate) fn with_head_of(
        &self,
        config: &TransformerConfig,
        seed: u64,
        is_shared: impl Fn(&str) -> bool,
    ) -> Result<Self, ConfigError> {
        if config.encoder_head() == self.config().encoder_head() {
            self.check_reconfigured(config, &["seq_len", ATTENTION_DROPOUT])?;
            return Ok(self.with_config(config));
        }
        self.check_reconfigured(config, &["seq_len", ATTENTION_DROPOUT, HEAD])?;
        let new = config.init(seed, &self.device());
        let (mut held, initial) = (ParameterElements::of(self), ParameterElements::of(&new));
        held.0.retain(|path, parts| {
            let is_kept = || is_shared(path) && Some(size(parts)) == initial.size(path);
            !path.starts_with("head.") || is_kept()
        });
        Ok(transferred(held, new))
    }

    /// Checks that a configuration differs in settings only that weights can be moved between.
    fn check_reconfigured(
        &self,
        config: &TransformerConfig,
        except: &[&str],
    ) -> Result<(), ConfigError> {
        let held = self.config();
        let (own, other) = (held.raw(), config.raw());
        let except = [&TRAINING_ONLY[..], except].concat();
        check_same(&computed(&own), &computed(&other), &except)?;
        if *config.position() == Position::Learned && config.seq_len() > held.seq_len() {
            let rule = format!(
                "must be at most {}: the weights have that many positions",
                held.seq_len()
            );
            return Err(ConfigError::new("seq_len", config.seq_len(), rule));
        }
        Ok(())
    }

    /// Builds a model of another configuration with the parameters at the same paths and the packed weights. New
    /// parameters are zero, as in [`TransformerConfig::blank`].
    pub(crate) fn with_config(&self, config: &TransformerConfig) -> Self {
        let mut blank = config.blank(&self.device());
        for (new, (_, held)) in blank.linears_mut().zip(self.linears()) {
            if let Some(weight) = held.packed() {
                new.weight = LinearWeight::Packed(weight.clone());
            }
        }
        if self.table().packed_format().is_some() {
            blank.lm_head.head = self.lm_head.head.clone();
        }
        if self.embeddings.tokens.packed_format().is_some() {
            blank.embeddings.tokens = self.embeddings.tokens.clone();
        }
        transferred(ParameterElements::of(self), blank)
    }
}

/// A configuration without the coefficients of losses, which do not affect the outputs.
pub(crate) fn computed(config: &ModelConfig) -> ModelConfig {
    let mut config = config.clone();
    if let Some(experts) = &mut config.experts {
        (experts.balance_loss, experts.z_loss) = (0.0, 0.0);
    }
    config
}

/// Flattened parameters by path; a split table has several parts.
struct ParameterElements<B: Backend>(HashMap<String, Vec<Tensor<B, 1>>>);

impl<B: Backend> ParameterElements<B> {
    fn of(model: &Transformer<B>) -> Self {
        let mut elements = Self(HashMap::new());
        visit_params(model, &mut elements);
        elements
    }

    /// The number of a parameter's elements; `None` if there is no such parameter.
    fn size(&self, path: &str) -> Option<usize> {
        self.0.get(path).map(|parts| size(parts))
    }

    /// Returns a range of a parameter's elements; `None` if there is no such parameter.
    fn range(&self, path: &str, range: Range<usize>) -> Option<Tensor<B, 1>> {
        let mut first = 0;
        let mut slices = Vec::new();
        for part in self.0.get(path)? {
            let last = first + part.dims()[0];
            let (start, end) = (range.start.max(first), range.end.min(last));
            if start < end {
                slices.push(part.clone().narrow(0, start - first, end - start));
            }
            first = last;
        }
        match slices.len() {
            0 | 1 => slices.pop(),
            _ => Some(Tensor::cat(slices, 0)),
        }
    }
}

/// The number of elements in the parts of a parameter.
fn size<B: Backend>(parts: &[Tensor<B, 1>]) -> usize {
    parts.iter().map(|part| part.dims()[0]).sum()
}

impl<B: Backend> ParamVisitor<B> for ParameterElements<B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let elements = value.shape().num_elements();
        let parts = self.0.entry(whole_path(path).to_owned()).or_default();
        parts.push(value.reshape([elements]));
    }
}

/// A model with the parameters that another one has at the same paths.
fn transferred<B: Backend>(elements: ParameterElements<B>, to: Transformer<B>) -> Transformer<B> {
    let parts = Parts::of(&to);
    map_params(to, &mut Transfer { elements, parts })
}

/// Replaces the parameters of a new model by those of an existing one.
struct Transfer<B: Backend> {
    elements: ParameterElements<B>,
    /// The split tables of the new model.
    parts: Parts,
}

impl<B: Backend> ParamMapper<B> for Transfer<B> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let (shape, tracked) = (value.shape(), value.is_require_grad());
        let rows = self.parts.row_range(path);
        // Elements are in row order, so truncation removes the last rows.
        let range = rows.elements(&value.dims());
        match self.elements.range(rows.whole, range) {
            Some(kept) => kept.reshape(shape).detach().set_require_grad(tracked),
            None => value,
        }
    }
}
