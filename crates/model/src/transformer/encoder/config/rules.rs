//! Rules for the positions and the window of an encoder.

use super::EncoderSettings;
use crate::config::limits::positive;
use crate::config::{FullLayers, LayerPositions, Position};
use crate::error::ConfigError;
use crate::transformer::checked::check_scaling;

/// Fills in the default number of rotated elements, and lists the blocks that differ.
pub(super) fn fill_positions(settings: &mut EncoderSettings, head_dim: usize) {
    let n_layers = settings.n_layers;
    if let Position::Rotary { dims, .. } = &mut settings.position {
        dims.get_or_insert(head_dim);
    }
    if let Some(positions) = &mut settings.layer_positions {
        let layers = positions.layers_mut();
        *layers = FullLayers::Listed(layers.layers(n_layers));
    }
    if let Some(window) = &mut settings.window {
        window.full_layers = FullLayers::Listed(window.full_layers.layers(n_layers));
    }
}

/// Returns an error for positions or a window that break a rule.
pub(super) fn check_positions(
    settings: &EncoderSettings,
    head_dim: usize,
) -> Result<(), ConfigError> {
    let n_layers = settings.n_layers;
    let check_layers = |field, layers: &FullLayers| match layers.layers(n_layers).last() {
        Some(&layer) if layer >= n_layers => {
            let rule = format!("must be below n_layers = {n_layers}");
            Err(ConfigError::new(field, layer, rule))
        }
        _ => Ok(()),
    };
    if let Some(window) = &settings.window {
        if window.distance == 0 {
            let rule = "must be at least 1";
            return Err(ConfigError::new("window.distance", 0, rule));
        }
        check_layers("window.full_layers", &window.full_layers)?;
    }
    let rotated = match &settings.position {
        Position::Learned => None,
        Position::Rotary {
            dims,
            base,
            scaling,
            ..
        } => {
            let dims = dims.unwrap_or(head_dim);
            if dims == 0 || dims > head_dim || !dims.is_multiple_of(2) {
                let rule = format!("must be even and at most head_dim = {head_dim}");
                return Err(ConfigError::new("position.dims", dims, rule));
            }
            positive("position.base", *base)?;
            check_scaling(scaling, dims)?;
            Some(dims)
        }
        Position::Sinusoidal | Position::Alibi | Position::None => {
            let rule = "must be \"learned\" or \"rotary\" in an encoder";
            return Err(ConfigError::new("position", "another kind", rule));
        }
    };
    if rotated.is_some() && settings.first_position > 0 {
        let (first, rule) = (settings.first_position, "must be 0 with rotary positions");
        return Err(ConfigError::new("first_position", first, rule));
    }
    let Some(positions) = &settings.layer_positions else {
        return Ok(());
    };
    let Some(dims) = rotated else {
        let rule = "must be absent unless position is rotary";
        return Err(ConfigError::new("layer_positions", "present", rule));
    };
    check_layers("layer_positions.layers", positions.layers())?;
    match positions {
        LayerPositions::None { .. } => Ok(()),
        LayerPositions::Rotary { base, scaling, .. } => {
            positive("layer_positions.base", *base)?;
            check_scaling(scaling, dims)
        }
    }
}
