//! A template as it is recorded with what was made by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ChatError, ChatTemplate};

/// A template's text and its inputs, so that a dataset's or a model's conversations can be written again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatTemplateSpec {
    /// Its name, or the path that it came from.
    pub name: String,
    /// Its text.
    pub template: String,
    /// `bos_token` and the like, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, String>,
    /// Special tokens' names in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub specials: Vec<String>,
    /// The special token that it writes at the beginning of every conversation. Without one, an end-of-text token precedes
    /// every conversation in training and in prompts, where the tokenizer has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_with: Option<String>,
}

impl From<&ChatTemplate> for ChatTemplateSpec {
    fn from(template: &ChatTemplate) -> Self {
        Self {
            name: template.name().to_owned(),
            template: template.source().to_owned(),
            tokens: template.tokens().clone(),
            specials: template.specials().into_iter().map(str::to_owned).collect(),
            begins_with: None,
        }
    }
}

impl TryFrom<&ChatTemplateSpec> for ChatTemplate {
    type Error = ChatError;

    fn try_from(spec: &ChatTemplateSpec) -> Result<Self, ChatError> {
        let mut template = Self::parse(&spec.name, &spec.template)?;
        template.add_specials(spec.specials.iter().cloned());
        Ok(template.with_tokens(spec.tokens.clone()))
    }
}
