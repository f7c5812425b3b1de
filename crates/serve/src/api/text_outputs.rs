//! The outputs of an engine for texts: vectors, or scores of labels.

use emberlm_generate::EventKind;
use emberlm_tokenizer::SequenceEncoder;
use schemars::JsonSchema;
use serde::Serialize;

use super::error::ApiError;
use crate::model::{Classifier, ServedModel, Task};
use crate::request_log::Trace;
use crate::worker::{Refusal, Ticket};

/// Bytes reserved per number of an output: its sum, its value and its text.
pub(crate) const NUMBER: usize = 64;

/// Numbers of tokens of texts.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct TextUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl TextUsage {
    pub fn new(tokens: usize) -> Self {
        Self {
            prompt_tokens: tokens,
            total_tokens: tokens,
        }
    }
}

/// The encoder of texts and the classifier of a model.
///
/// # Errors
/// The model has no classifier.
pub(crate) fn classifier(model: &ServedModel) -> Result<(&SequenceEncoder, &Classifier), ApiError> {
    let error = || ApiError::task(&model.name, model.kind.name(), Task::Classification);
    model.classifier().ok_or_else(error)
}

/// Waits for the outputs of `count` texts, which are those of `field`.
///
/// # Errors
/// The texts were refused, one of them fails, or the engine ends.
pub(crate) async fn outputs(
    ticket: Result<Ticket, Refusal>,
    count: usize,
    field: &str,
    trace: &Trace,
) -> Result<Vec<Vec<f32>>, ApiError> {
    let invalid = |error: ApiError| error.at(field);
    let mut ticket = ticket.map_err(|error| invalid(error.into()))?;
    let mut outputs = vec![Vec::new(); count];
    let mut left = count;
    while left > 0 {
        match ticket.next().await {
            Some((text, EventKind::Embedded(output))) => {
                if let Some(place) = outputs.get_mut(text) {
                    *place = output;
                }
                left -= 1;
            }
            Some((_, EventKind::Started)) => trace.started(),
            Some((_, EventKind::Failed(error))) => return Err(invalid(error.into())),
            Some((_, EventKind::Prompt(_) | EventKind::Token(_) | EventKind::Finished(_))) => {}
            None => return Err(ticket.failure().into()),
        }
    }
    Ok(outputs)
}
