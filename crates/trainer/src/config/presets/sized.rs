//! The model of a preset with another width and number of blocks.

use emberlm_model::ModelConfig;

/// Widths of models and of feed-forward layers are multiples of this.
pub const WIDTH_STEP: usize = 8;

/// The model `base` with the width `d_model` and `n_layers` blocks.
///
/// The width of a head is the even divisor of the width that is nearest to that of `base`, unless it is set: then the number
/// of heads grows with the width. Key-value heads keep their ratio to the heads as nearly as possible, and a set width of the
/// feed-forward layer keeps its ratio to the width of the model.
pub fn sized(base: &ModelConfig, d_model: usize, n_layers: usize) -> ModelConfig {
    let mut model = base.clone();
    let scaled = |size: usize| (size * d_model) as f64 / base.d_model.max(1) as f64;
    let base_width = base.d_model as f64 / base.heads.max(1) as f64;
    let heads = match base.head_dim {
        Some(_) => (scaled(base.heads).round() as usize).max(1),
        None => {
            // Rotary positions need an even width.
            let widths = (2..=d_model).step_by(2);
            let widths = widths.filter(|width| d_model.is_multiple_of(*width));
            let off = |width: &usize| (*width as f64 / base_width).ln().abs();
            let width = widths.min_by(|a, b| off(a).total_cmp(&off(b)));
            d_model / width.unwrap_or(d_model).max(1)
        }
    };
    (model.d_model, model.n_layers, model.heads) = (d_model, n_layers, heads);
    if let Some(experts) = &mut model.experts {
        experts.dense_layers.retain(|&layer| layer < n_layers);
    }
    if let Some(kv_heads) = base.kv_heads {
        let wanted = (kv_heads * heads)
            .div_ceil(base.heads.max(1))
            .clamp(1, heads.max(1));
        let kv_heads = (1..=wanted)
            .rev()
            .find(|count| heads.is_multiple_of(*count));
        model.kv_heads = Some(kv_heads.unwrap_or(1));
    }
    if let Some(width) = base.feed_forward.width {
        let multiple = (scaled(width) / WIDTH_STEP as f64).round().max(1.0);
        model.feed_forward.width = Some(WIDTH_STEP * multiple as usize);
    }
    model
}
