//! The engine's request, made of the fields that decide how answers are generated.

use std::sync::Arc;

use emberlm_generate::Grammar;

use super::answers::Ask;
use super::conversation::{Calling, Opened};
use super::delivery::seed;
use super::error::ApiError;
use super::settings::Settings;
use crate::model::ServedModel;

/// The form of a text by a field of one endpoint, such as `response_format`.
pub(crate) struct TextForm {
    /// The field's name.
    pub field: &'static str,
    pub grammar: Grammar,
}

/// The fields that decide how the answers to a prompt are generated.
pub(crate) struct Generation<'a> {
    pub settings: &'a Settings,
    /// The most tokens of an answer by a field of the endpoint, which goes before `max_tokens`.
    pub max_tokens: Option<usize>,
    /// The number of alternatives, where log-probabilities are asked for.
    pub top_logprobs: Option<usize>,
    pub form: Option<TextForm>,
    pub calling: Option<&'a Calling<'a>>,
}

impl<'a> Generation<'a> {
    /// Generation by these settings, without fields of an endpoint.
    pub fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            max_tokens: None,
            top_logprobs: None,
            form: None,
            calling: None,
        }
    }

    /// The request for `samples` answers to a prompt. Its grammar is compiled in a sandbox first.
    ///
    /// # Errors
    /// A setting breaks a rule, two fields want different grammars, or the grammar exceeds a limit.
    pub async fn ask(
        self,
        model: &Arc<ServedModel>,
        opened: Opened,
        samples: usize,
    ) -> Result<Ask, ApiError> {
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
            (Some(calling), None) => Some(calling.constraint(model).await?),
            (None, Some(grammar)) => Some(model.constraint(grammar).await?),
            (None, None) => None,
        };
        Ok(Ask {
            prompt: opened.prompt,
            samples,
            max_tokens: self.max_tokens.or(settings.max_tokens()),
            stops: settings.stops(&opened.stop_strings)?,
            stop_tokens: opened.stop_tokens,
            chooser,
        })
    }
}
