//! Builds the engine's request from the fields that control generation.

use std::sync::Arc;

use emberlm_generate::Grammar;

use super::App;
use super::answers::AnswerRequest;
use super::conversation::{Calling, EncodedPrompt};
use super::delivery::seed;
use super::error::ApiError;
use super::settings::Settings;
use crate::model::ServedModel;

/// An output grammar from a field of one endpoint, such as `response_format`.
pub(crate) struct TextForm {
    /// The field's name.
    pub field: &'static str,
    pub grammar: Grammar,
}

/// The fields that control how the answers to a prompt are generated.
pub(crate) struct Generation<'a> {
    pub settings: &'a Settings,
    /// The maximum number of new tokens, from an endpoint's own field. Takes precedence over `max_tokens`.
    pub max_tokens: Option<usize>,
    /// The number of alternatives, if log-probabilities are requested.
    pub top_logprobs: Option<usize>,
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
        let form_field = self.form.as_ref().map(|form| form.field);
        let grammar = match (self.form, settings.grammar()?) {
            (Some(form), Some(_)) => {
                let rule = "cannot be combined with structured_outputs";
                return Err(ApiError::field(form.field, rule));
            }
            (form, grammar) => form.map(|form| form.grammar).or(grammar),
        };
        chooser.constraint = match (self.calling, grammar) {
            (Some(_), Some(_)) => {
                let other = form_field.unwrap_or("structured_outputs");
                let rule = format!("cannot be combined with {other}");
                return Err(ApiError::field("tools", rule));
            }
            (Some(calling), None) => Some(calling.constraint(model, app.memory()).await?),
            (None, Some(grammar)) => {
                let field = form_field.unwrap_or("structured_outputs");
                let constraint = model.constraint(grammar, app.memory()).await;
                Some(constraint.map_err(|error| ApiError::from(error).of_form(field))?)
            }
            (None, None) => None,
        };
        Ok(AnswerRequest {
            prompt: encoded.prompt,
            samples,
            max_tokens: self.max_tokens.or(settings.max_tokens()),
            stops: settings.stops(&encoded.stop_strings)?,
            stop_tokens: encoded.stop_tokens,
            chooser,
        })
    }
}
