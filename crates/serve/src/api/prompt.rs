//! Prompts of a request, as text or tokens.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::App;
use super::bounds::of_encoding;
use super::error::ApiError;
use crate::jobs::Interest;
use crate::limits::Limits;
use crate::model::ServedModel;

/// The treatment of a text that is longer than the model's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooLong {
    /// It is an error.
    Refused,
    /// It is truncated.
    Truncated,
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a text, a list of texts, a list of token ids, or a list of such lists"
)]
pub(crate) enum Prompt {
    /// One text.
    Text(String),
    /// Its tokens.
    Ids(#[schemars(length(min = 1), inner(range(max = u32::MAX)))] Vec<u32>),
    /// Several texts.
    Texts(#[schemars(length(min = 1))] Vec<String>),
    /// The tokens of several.
    ManyIds(#[schemars(length(min = 1), inner(inner(range(max = u32::MAX))))] Vec<Vec<u32>>),
}

impl Prompt {
    /// Returns true for texts, and false for tokens.
    fn is_text(&self) -> bool {
        match self {
            Self::Text(_) | Self::Texts(_) => true,
            Self::Ids(_) | Self::ManyIds(_) => false,
        }
    }

    /// The tokens of each prompt. An empty text becomes the model's beginning-of-document token, if it has
    /// one.
    ///
    /// # Errors
    /// There are no prompts or too many, or a text cannot be encoded or is empty for a model without such a
    /// token.
    pub async fn tokens(
        self,
        field: &'static str,
        model: &Arc<ServedModel>,
        app: &App,
        too_long: TooLong,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let limits = app.limits();
        let texts = match self {
            Self::Ids(ids) => return one_or_more(field, vec![ids], limits),
            Self::ManyIds(ids) => return one_or_more(field, ids, limits),
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts,
        };
        let texts = one_or_more(field, texts, limits)?;
        let model = Arc::clone(model);
        let bytes = texts.iter().map(String::len).sum();
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let working = app.memory().reserve(of_encoding(longest, bytes))?;
        let encode_all = move |interest: &Interest| {
            let _working = working;
            let encode = |text: &String| match interest.is_there() {
                true => encode(field, text, &model, too_long),
                false => Err(ApiError::internal("nobody waits for the answer")),
            };
            texts.iter().map(encode).collect()
        };
        app.jobs().run(bytes, encode_all).await?
    }
    /// The tokens of texts to embed or to classify. With `truncates`, those that are longer than the model's context are
    /// truncated.
    ///
    /// # Errors
    /// See [`Prompt::tokens`].
    pub async fn truncated_tokens(
        self,
        field: &'static str,
        model: &Arc<ServedModel>,
        app: &App,
        truncates: bool,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let is_text = self.is_text();
        let too_long = match truncates {
            true => TooLong::Truncated,
            false => TooLong::Refused,
        };
        let mut texts = self.tokens(field, model, app, too_long).await?;
        if truncates {
            texts
                .iter_mut()
                .for_each(|ids| model.truncate(ids, is_text));
        }
        Ok(texts)
    }
}

fn one_or_more<T>(field: &str, all: Vec<T>, limits: &Limits) -> Result<Vec<T>, ApiError> {
    if (1..=limits.texts).contains(&all.len()) {
        return Ok(all);
    }
    let rule = format!("must be between 1 and {} in one request", limits.texts);
    Err(ApiError::field(field, rule))
}

fn encode(
    field: &str,
    text: &str,
    model: &ServedModel,
    too_long: TooLong,
) -> Result<Vec<u32>, ApiError> {
    // Without encoding it, which takes long.
    if too_long == TooLong::Refused {
        model
            .check_length(text)
            .map_err(|error| ApiError::from(error).at(field))?;
    }
    let ids = model.encode(text);
    let ids = ids.map_err(|error| ApiError::field(field, error.to_string()))?;
    match ids.is_empty() {
        false => Ok(ids),
        true => Err(ApiError::field(field, "must not be empty for this model")),
    }
}
