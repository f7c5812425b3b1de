//! Norms by layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The norms of one layer at a step. A norm is absent if it does not apply or is not finite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerNorms {
    /// `embedding`, a block such as `blocks.0`, or `final`: the final norm, the head and all other parameters. The
    /// layers of an encoder–decoder's stacks begin with `encoder.` or `decoder.`.
    pub layer: String,
    /// L2 norm of the gradients of the mean loss, before clipping. The squares of all layers add up to the square of the
    /// step's `gradient_norm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient: Option<f64>,
    /// L2 norm of the update of the trained weights, divided by that of these weights before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<f64>,
    /// Root mean square of the residual stream after the layer before the update (`embedding`: before the first block;
    /// `final`: after the final norm), over the first 32 tokens of the step's first sequence. Not of encoder–decoders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<f64>,
}

emberlm_system::named! {
    /// One of the norms of a layer.
    pub enum NormKind {
        /// [`LayerNorms::gradient`].
        Gradient = "gradient",
        /// [`LayerNorms::update`].
        Update = "update",
        /// [`LayerNorms::activation`].
        Activation = "activation",
    }
}

impl NormKind {
    /// The norm of a layer.
    pub fn of(self, layer: &LayerNorms) -> Option<f64> {
        match self {
            Self::Gradient => layer.gradient,
            Self::Update => layer.update,
            Self::Activation => layer.activation,
        }
    }

    /// The title of its picture.
    pub fn title(self) -> &'static str {
        match self {
            Self::Gradient => "Gradient norm",
            Self::Update => "Update relative to the weights",
            Self::Activation => "RMS of the residual stream",
        }
    }
}

/// Most bars of a layer's gradient norms in the dashboard, which fit into its narrowest box.
const MOST_BARS: usize = 20;

/// The gradient norms of the layers as bars, from the first layer to the last. One bar shows the largest norm of
/// neighbouring layers if there are many.
pub(crate) fn bars(layers: &[LayerNorms]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<f64> = layers.iter().filter_map(|layer| layer.gradient).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let of = |norms: &[f64]| {
        let norm = norms.iter().copied().fold(0.0, f64::max);
        let level = (norm / largest * 7.0).round().clamp(0.0, 7.0);
        LEVELS[level as usize]
    };
    let each = values.len().div_ceil(MOST_BARS).max(1);
    values.chunks(each).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_the_layers_relative_to_the_largest() {
        let layer = |gradient| LayerNorms {
            gradient,
            ..LayerNorms::default()
        };
        let layers = [Some(0.0), Some(1.0), None, Some(2.0)].map(layer);
        assert_eq!(bars(&layers), "▁▅█");
        assert_eq!(bars(&[]), "");
        assert_eq!(bars(&[layer(Some(0.0))]), "▁");
        let many: Vec<_> = (0..50).map(|n| layer(Some(f64::from(n)))).collect();
        assert_eq!(bars(&many).chars().count(), 17);
    }
}
