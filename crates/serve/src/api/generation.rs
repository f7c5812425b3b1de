//! Builds the engine's request from the fields that control generation.

use std::sync::Arc;

use emberlm_generate::Constraint;

use super::App;
use super::answers::AnswerRequest;
use super::conversation::{Calling, EncodedPrompt};
use super::delivery::seed;
use super::error::ApiError;
use super::settings::{Settings, TextForm};
use crate::model::ServedModel;

/// The fields that control how the answers to a prompt are generated.
pub(crate) struct Generation<'a> {
    pub settings: &'a Settings,
    /// The maximum number of new tokens, from an endpoint's own field. Takes precedence over `max_tokens`.
    pub max_tokens: Option<usize>,
    /// The number of alternatives, if log-probabilities are requested.
    pub top_logprobs: Option<usize>,
    /// True to request them for the tokens of the prompt, too.
    pub scores_prompt: bool,
    pub form: Option<TextForm>,
    pub calling: Option<&'a Calling<'a>>,
}

impl<'a> Generation<'a> {
    /// Uses `settings` only, without fields of one endpoint.
    pub fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            max_tokens: None,
            top_logprobs: None,
            scores_prompt: false,
            form: None,
            calling: None,
        }
    }

    /// Creates the request for `samples` answers to a prompt. A grammar is compiled in a sandbox first.
    ///
    /// # Errors
    /// A setting is invalid, two fields specify different grammars, or the grammar exceeds a limit.
    pub async fn request(
        self,
        app: &App,
        model: &Arc<ServedModel>,
        encoded: EncodedPrompt,
        samples: usize,
    ) -> Result<AnswerRequest, ApiError> {
        let settings = self.settings;
        let mut chooser = settings.chooser(model.sampling, seed())?;
        chooser.top_logprobs = self.top_logprobs;
        let form = match (self.form, settings.form()?) {
            (Some(form), Some(other)) => {
                let rule = format!("cannot be combined with {}", other.field);
                return Err(ApiError::field(form.field, rule));
            }
            (form, other) => form.or(other),
        };
        chooser.constraint = match (self.calling, form) {
            (Some(_), Some(form)) => {
                let rule = format!("cannot be combined with {}", form.field);
                return Err(ApiError::field("tools", rule));
            }
            (Some(calling), None) => Some(calling.constraint(model, app.memory()).await?),
            (None, Some(TextForm { field, grammar })) => {
                let constraint = model.constraint(grammar, app.memory()).await;
                Some(constraint.map_err(|error| ApiError::from(error).of_form(field))?)
            }
            (None, None) => None,
        };
        // Reasoning that has begun is not constrained, only the answer after it.
        if let Some(reasoning) = encoded.reasoning {
            let before = reasoning.before_constraint(self.calling.is_some());
            let begins = |constraint: Constraint| constraint.after(before);
            chooser.constraint = chooser.constraint.map(begins);
        }
        let ends = match chooser.constraint {
            // A satisfied constraint permits any of the model's end tokens.
            Some(_) => model.end_tokens(),
            None => [&model.stop_tokens[..], &encoded.stop_tokens].concat(),
        };
        chooser.delayed = settings.delayed(&ends)?;
        let max_tokens = match self.max_tokens {
            Some(tokens) => Some(tokens),
            None => settings.max_tokens()?,
        };
        let stop_strings = match settings.ignores_ends() {
            // The template's are names of the model's end tokens.
            true => &[][..],
            false => &encoded.stop_strings[..],
        };
        Ok(AnswerRequest {
            prompt: encoded.prompt,
            samples,
            max_tokens,
            stops: settings.stops(stop_strings)?,
            stop_tokens: [&ends[..], settings.stop_tokens()?].concat(),
            chooser,
            prompt_logprobs: self.top_logprobs.filter(|_| self.scores_prompt),
        })
    }
}
