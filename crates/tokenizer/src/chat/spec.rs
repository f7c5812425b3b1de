//! The template specification stored with datasets and models.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChatError, ChatTemplate};

/// A template's source and inputs, with which conversations of a dataset or model can be rendered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatTemplateSpec {
    /// The name of the template, or its original path.
    pub name: String,
    /// The source of the template.
    pub template: String,
    /// `bos_token` and similar special tokens, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, String>,
    /// Names of special tokens in the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub specials: Vec<String>,
    /// The special token that the template writes at the beginning of every conversation. Without one,
    /// conversations in training and in prompts are preceded by the end-of-text token, if the tokenizer has
    /// one.
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
