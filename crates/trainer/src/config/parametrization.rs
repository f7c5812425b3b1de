//! The `[train.parametrization]` table: initial weights, factors of the model and learning rates by the model's size.
//!
//! With the ratios `m` of the width and `l` of the number of blocks to those of the base model, and settings that are those of
//! the base model:
//!
//! | quantity | `mup` (Yang et al. 2022) | `complete_p` (Dey et al. 2025, table 1, α = 1) |
//! |---|---|---|
//! | initial variance of linear layers in blocks | `σ² / m` | `σ² / m` |
//! | initial variance of embeddings and of the head | `σ²` | `σ²` |
//! | factor on the logits | `1 / m` | `1 / m` |
//! | factor on the scores | `√base_head_dim / head_dim` | `√base_head_dim / head_dim` |
//! | factor on the outputs of sublayers | `1` | `1 / l` |
//! | learning rate of linear layers in blocks | `η / m`; of Muon `η / √m` | `η / m`; of Muon `η / √m` |
//! | learning rate of other parameters | `η` | `η` |
//! | weight decay of linear layers in blocks | `λ` | `λ · m`; of Muon `λ · √m` |
//! | AdamW's ε of parameters in blocks | `ε` | `ε / (m · l)` |
//! | AdamW's ε of other parameters | `ε` | `ε / m` |
//!
//! Muon's rule follows from its update: the spectral norm of the update of a layer is `0.2 · √max(inputs, outputs)`, and it should
//! not grow with the width. That of Adam's update is proportional to `√(inputs · outputs)`.

use emberlm_model::config::{AttentionKind, ModelKind, SizeRatio};
use emberlm_model::{ModelConfig, TransformerConfig};

use super::check::require;
use super::kinds::kinds;
use super::settings::{Settings, settings};
use crate::error::TrainError;

kinds! {
    /// The rules by which initial weights, factors of the model and learning rates follow from the model's size.
    pub enum ParametrizationConfig, ParametrizationKind:
        "standard, mup (one learning rate for all widths) or complete_p (one for all widths and depths)." {
        /// No rules: the settings hold for the model as it is.
        "standard" => Standard(StandardConfig),
        /// µP (Yang et al. 2022): the settings are those of a model of width `base_width`.
        "mup" => Mup(MupConfig),
        /// CompleteP (Dey et al. 2025): the settings are those of a model of width `base_width` with `base_layers` blocks.
        "complete_p" => CompleteP(CompletePConfig),
    }
}

settings! {
    /// The settings of the standard parametrization, which has none.
    pub struct StandardConfig in "train.parametrization" {}

    /// Settings of µP.
    pub struct MupConfig in "train.parametrization" {
        /// Width (`model.d_model`) of the base model, whose settings are used at every width.
        pub base_width: usize = 256, 1..=LARGEST_BASE;
        /// Width of a head of the base model; 0 for that of the model, so that a wider model has more heads.
        pub base_head_dim: usize = 0, 0..=LARGEST_BASE;
    }

    /// Settings of CompleteP.
    pub struct CompletePConfig in "train.parametrization" {
        /// Width (`model.d_model`) of the base model, whose settings are used at every width.
        pub base_width: usize = 256, 1..=LARGEST_BASE;
        /// Width of a head of the base model; 0 for that of the model, so that a wider model has more heads.
        pub base_head_dim: usize = 0, 0..=LARGEST_BASE;
        /// Blocks of the base model, whose settings are used at every depth.
        pub base_layers: usize = 2, 1..=LARGEST_BASE;
    }
}

/// The upper bound of the sizes of a base model, that of a model's sizes.
const LARGEST_BASE: usize = 1 << 24;

impl Default for ParametrizationConfig {
    fn default() -> Self {
        ParametrizationKind::Standard.into()
    }
}

impl ParametrizationConfig {
    /// True for the standard parametrization.
    pub fn is_standard(&self) -> bool {
        *self == Self::default()
    }

    /// The size of a model with `[d_model, n_layers]` over that of the base.
    pub fn ratio(&self, [d_model, n_layers]: [usize; 2]) -> SizeRatio {
        let of = |size: usize, base: usize| size as f64 / base.max(1) as f64;
        match self {
            Self::Standard(_) => SizeRatio::ONE,
            Self::Mup(mup) => SizeRatio {
                width: of(d_model, mup.base_width),
                depth: 1.0,
            },
            Self::CompleteP(complete) => SizeRatio {
                width: of(d_model, complete.base_width),
                depth: of(n_layers, complete.base_layers),
            },
        }
    }

    /// True if weight decay and AdamW's ε follow from the size, too.
    pub(crate) fn scales_decay_and_epsilon(&self) -> bool {
        matches!(self, Self::CompleteP(_))
    }

    /// The model to train for the configuration `model`: with the factors on scores, outputs of sublayers and logits.
    pub fn applied(&self, model: &ModelConfig) -> ModelConfig {
        let mut model = model.clone();
        let ratio = self.ratio([model.d_model, model.n_layers]);
        let base_head_dim = match self {
            Self::Standard(_) => return model,
            Self::Mup(mup) => mup.base_head_dim,
            Self::CompleteP(complete) => complete.base_head_dim,
        };
        let base_width = model.d_model as f64 / ratio.width;
        if ratio.width != 1.0 {
            let head = &mut model.head;
            let of_base = head
                .scale
                .or(head.scaled.then(|| base_width.sqrt().recip()));
            head.scale = Some(of_base.unwrap_or(1.0) / ratio.width);
            head.scaled = false;
        }
        if std::mem::take(&mut model.scale_embedding) && model.embedding_scale.is_none() {
            model.embedding_scale = Some(base_width.sqrt());
        }
        if ratio.depth != 1.0 {
            model.residual_scale = Some(model.residual_scale.unwrap_or(1.0) / ratio.depth);
        }
        let head_dim = head_dim(&model);
        if let AttentionKind::Softmax { scale, .. } = &mut model.attention
            && base_head_dim > 0
            && base_head_dim != head_dim
        {
            let (base, own) = (base_head_dim as f64, head_dim as f64);
            let of_base = scale.unwrap_or_else(|| base.sqrt().recip());
            *scale = Some(of_base * (base / own));
        }
        model
    }

    /// The note on the size of a run's model.
    pub(crate) fn note(&self, model: &TransformerConfig) -> Option<String> {
        let SizeRatio { width, depth } = self.ratio([model.d_model(), model.n_layers()]);
        let rounded = |ratio: f64| (ratio * 1e3).round() / 1e3;
        let depth = match self {
            Self::Standard(_) => return None,
            Self::Mup(_) => String::new(),
            Self::CompleteP(_) => format!(" and {} times as deep", rounded(depth)),
        };
        let (kind, width) = (self.kind().name(), rounded(width));
        Some(format!(
            "{kind}: the model is {width} times as wide{depth} as the base, whose settings are given"
        ))
    }

    /// Checks that a model can be parametrized by its size.
    ///
    /// # Errors
    /// It is no decoder, or its attention has no factor on the scores.
    pub(super) fn check_model(&self, model: &ModelConfig) -> Result<(), TrainError> {
        let (table, kind) = (StandardConfig::TABLE, self.kind().name());
        let is_decoder = model.kind() == ModelKind::Decoder;
        let rule = "must be standard for models other than decoders";
        require(table, "kind", kind, self.is_standard() || is_decoder, rule)?;
        let base = match self {
            Self::Standard(_) => 0,
            Self::Mup(mup) => mup.base_head_dim,
            Self::CompleteP(complete) => complete.base_head_dim,
        };
        let is_same = base == 0 || base == head_dim(model);
        let has_scale = matches!(model.attention, AttentionKind::Softmax { .. });
        let rule = "must be 0 with linear attention, whose scores have no factor";
        require(table, "base_head_dim", base, is_same || has_scale, rule)
    }
}

/// Width of a head.
fn head_dim(model: &ModelConfig) -> usize {
    let by_width = model.d_model / model.heads.max(1);
    model.head_dim.unwrap_or(by_width)
}

#[cfg(test)]
mod tests;
