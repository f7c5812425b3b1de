//! Rules and sizes of an encoder's head.

use crate::config::{EncoderHeadConfig, Pooling};
use crate::error::ConfigError;
use crate::nn::linear::LinearConfig;
use crate::nn::norm::NormConfig;
use crate::transformer::checked::TransformerConfig;

/// The largest number of labels.
const MOST_LABELS: usize = 1 << 24;

impl EncoderHeadConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Some(labels) = self.labels()
            && !(1..=MOST_LABELS).contains(&labels.len())
        {
            let rule = "must name at least one label";
            return Err(ConfigError::new("head.labels", labels.len(), rule));
        }
        match self {
            Self::Sequence { pooling, .. }
                if !matches!(pooling, Pooling::First | Pooling::Mean) =>
            {
                let (pooling, rule) = (format!("{pooling:?}"), "must be \"first\" or \"mean\"");
                Err(ConfigError::new("head.pooling", pooling, rule))
            }
            _ => Ok(()),
        }
    }

    /// Number of parameters in an encoder.
    pub(crate) fn parameters(&self, encoder: &TransformerConfig) -> u128 {
        let width = encoder.d_model();
        let linear = |outputs: usize, bias: bool| {
            LinearConfig::new(width, outputs)
                .with_bias(bias)
                .parameters()
        };
        let norm = NormConfig::new(encoder.norm(), width).parameters();
        match self {
            Self::Pooler => linear(width, true),
            Self::MaskedLm {
                dense_bias, bias, ..
            } => {
                let bias = if *bias {
                    encoder.vocab_size() as u128
                } else {
                    0
                };
                linear(width, *dense_bias) + norm + bias
            }
            Self::Sequence {
                labels,
                dense_bias,
                norm: has_norm,
                ..
            } => {
                let norm = if *has_norm { norm } else { 0 };
                linear(width, *dense_bias) + norm + linear(labels.len(), true)
            }
            Self::Token { labels, layer } => {
                let layer = layer.map_or(0, |layer| linear(width, layer.bias) + norm);
                layer + linear(labels.len(), true)
            }
        }
    }
}
