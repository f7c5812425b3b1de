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
    /// one and the template is not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_with: Option<String>,
    /// True for the template of a published model: no token is added before its conversations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
    /// The source of the template for conversations with tools, if there is a separate one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use: Option<String>,
}

/// The token before conversations in training and in prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConversationStart {
    /// The end-of-text token, unless the template begins with a special token: the template is chosen for a run of
    /// emberlm.
    #[default]
    Run,
    /// None: the template is a published model's, which `transformers` renders without an additional token.
    Published,
    /// As recorded with a dataset or a model: none if the template begins with this special token, otherwise the
    /// end-of-text token.
    Recorded(Option<String>),
}

impl From<&ChatTemplate> for ChatTemplateSpec {
    fn from(template: &ChatTemplate) -> Self {
        let start = template.start();
        Self {
            name: template.name().to_owned(),
            template: template.source().to_owned(),
            tokens: template.tokens().clone(),
            specials: template.specials().into_iter().map(str::to_owned).collect(),
            begins_with: match start {
                ConversationStart::Recorded(name) => name.clone(),
                ConversationStart::Run | ConversationStart::Published => None,
            },
            published: *start == ConversationStart::Published,
            tool_use: template
                .tool_use()
                .map(|template| template.source().to_owned()),
        }
    }
}

impl TryFrom<&ChatTemplateSpec> for ChatTemplate {
    type Error = ChatError;

    fn try_from(spec: &ChatTemplateSpec) -> Result<Self, ChatError> {
        let parse = |source: &str| -> Result<ChatTemplate, ChatError> {
            let mut template = Self::parse(&spec.name, source)?;
            template.add_specials(spec.specials.iter().cloned());
            Ok(template
                .with_tokens(spec.tokens.clone())
                .with_start(spec.into()))
        };
        let tool_use = spec.tool_use.as_deref().map(parse).transpose()?;
        Ok(parse(&spec.template)?.with_tool_use(tool_use))
    }
}

impl From<&ChatTemplateSpec> for ConversationStart {
    fn from(spec: &ChatTemplateSpec) -> Self {
        match spec.published {
            true => Self::Published,
            false => Self::Recorded(spec.begins_with.clone()),
        }
    }
}
