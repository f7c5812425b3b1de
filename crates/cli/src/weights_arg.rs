//! The options of the commands that run a model, for the formats of its weights and the precision of its products.

use clap::Args;
use emberlm_kernels::Precision;
use emberlm_model::{CacheFormat, WeightFormat};

use crate::values::{precision_parser, weights_parser};

/// The format of a model's weights, and the precision of its products.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WeightsArg {
    /// Format of the weights of linear layers and the head: f32, int8 for less memory and more speed, or a type of GGUF files
    /// for still less memory (`emberlm eval` measures the loss in quality) [default: as they are stored]
    #[arg(long, value_name = "TYPE", value_parser = weights_parser(), help_heading = "Model")]
    pub weights: Option<WeightFormat>,
    /// Precision of the inputs of matrix products with f32, f16 and bf16 weights: bf16 reads prompts about twice as fast on a
    /// CPU with its instructions (`emberlm devices`)
    #[arg(long, value_name = "TYPE", value_parser = precision_parser(), default_value = Precision::F32.name(), help_heading = "Model")]
    pub precision: Precision,
}

impl WeightsArg {
    /// The formats, with that of the caches.
    pub const fn with_cache(self, cache: CacheFormat) -> Formats {
        Formats {
            weights: self.weights,
            precision: self.precision,
            cache,
        }
    }
}

/// The formats in which a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// The format of the weights. `None` keeps the stored format.
    pub weights: Option<WeightFormat>,
    /// The type to which the factors of products in floating-point numbers are rounded.
    pub precision: Precision,
    /// The format of the key-value caches.
    pub cache: CacheFormat,
}
