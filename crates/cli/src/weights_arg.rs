//! `--weights` of the commands that run a model.

use clap::Args;
use emberlm_model::WeightFormat;

use crate::values::weights_parser;

/// The format of a model's weights.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WeightsArg {
    /// Format of the weights of linear layers and the head: f32, int8 for less memory and more speed, or a type of GGUF files
    /// for still less memory (`emberlm eval` measures the loss in quality) [default: as they are stored]
    #[arg(long, value_name = "TYPE", value_parser = weights_parser(), help_heading = "Model")]
    pub weights: Option<WeightFormat>,
}
