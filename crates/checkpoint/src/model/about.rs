//! One line about the origin of a [`Model`].

use emberlm_model::{ModelKind, WeightFormat, gguf};
use emberlm_system::digits::grouped;

use super::{Model, Source};
use crate::error::ModelError;

impl Model {
    /// Describes the origin of the model in one line: "a checkpoint after 1,000 steps".
    pub fn about(&self) -> Result<String, ModelError> {
        let own = self.about_source()?;
        Ok(match &self.adapter {
            Some(adapter) => {
                let (path, settings) = (adapter.path(), adapter.settings());
                let kind = if settings.dora { "DoRA" } else { "LoRA" };
                format!(
                    "{own}, with the {kind} adapter {} of rank {}",
                    path.display(),
                    settings.rank
                )
            }
            None => own,
        })
    }

    fn about_source(&self) -> Result<String, ModelError> {
        Ok(match &self.source {
            Source::Checkpoint { checkpoint, .. } => match &checkpoint.state {
                Some(state) => {
                    let steps = grouped(state.step as u64);
                    format!("{} after {steps} steps", self.checkpoint_kind())
                }
                None => "a model that has not been trained".to_owned(),
            },
            Source::HuggingFace { model, .. } => {
                let kind = model.config().family().model_type().unwrap_or_default();
                if let Some(file) = model.gguf() {
                    let stored = gguf::type_name(file).to_uppercase();
                    return Ok(format!("a GGUF file of type {kind}, stored in {stored}"));
                }
                if self.kind() != ModelKind::Decoder {
                    let stacks = self.kind().name();
                    return Ok(format!("a Hugging Face {stacks} of type {kind}"));
                }
                let stored = match model.weight_format() {
                    WeightFormat::F32 => model.element()?.name(),
                    packed => packed.name(),
                };
                format!("a Hugging Face model of type {kind}, stored in {stored}")
            }
        })
    }

    /// The kind of a checkpoint: "a checkpoint", or the model that it adapts.
    fn checkpoint_kind(&self) -> String {
        match self.adapter() {
            Some(adapter) => format!("an adapter of {}", adapter.base.path.display()),
            None => "a checkpoint".to_owned(),
        }
    }
}
