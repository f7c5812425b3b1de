//! `--x`: the quantity of the horizontal axis.

use clap::ValueEnum;

use crate::plot::XQuantity;

/// The quantity of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Horizontal {
    /// A quantity that grows during a run.
    Progress(XQuantity),
    /// The number of the model's parameters.
    Parameters,
    /// A setting, by its name or the end of it.
    Setting(String),
}

impl Horizontal {
    /// The values of `--x` other than settings.
    pub const HINT: &str =
        "--x may be steps, tokens, flops, time, rate, parameters or a setting of the runs";

    /// Parses the name of a quantity or a setting.
    ///
    /// # Errors
    /// Returns an error if the text cannot be a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match XQuantity::from_str(text, false) {
            Ok(quantity) => Ok(Self::Progress(quantity)),
            Err(_) if text == "parameters" => Ok(Self::Parameters),
            Err(_) if text.is_empty() => Err("must be a quantity or a setting".to_owned()),
            Err(_) => Ok(Self::Setting(text.to_owned())),
        }
    }

    /// True if the size of each run's model is needed.
    pub fn needs_model(&self) -> bool {
        matches!(self, Self::Parameters | Self::Progress(XQuantity::Flops))
    }
}
