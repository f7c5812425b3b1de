//! Jinja templates over the fields of a record, as evaluation tasks use them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::renderer::{
    self, Dialect, OpenTemplate, RenderError, RenderJob, TemplateText, TextRequest,
};

/// Records per call of the renderer, whose time and answer are bounded.
const RECORDS_AT_ONCE: usize = 64;

/// A Jinja template that writes a text from the fields of a record, with the semantics of lm-evaluation-harness
/// ([`Dialect::Record`]). Like a chat template, it is run by the installed renderer.
///
/// ```
/// use emberlm_tokenizer::chat::TextTemplate;
///
/// let record = serde_json::json!({"question": "Why?", "label": 1});
/// let fields = record.as_object().cloned().unwrap_or_default();
/// let template = TextTemplate::parse("Q: {{question}}\n{{label + 1}}\n")?;
/// assert_eq!(template.render(&[&fields])?, [Ok("Q: Why?\n2\n".to_owned())]);
/// # Ok::<(), emberlm_tokenizer::chat::RenderError>(())
/// ```
#[derive(Debug)]
pub struct TextTemplate {
    opened: Box<dyn OpenTemplate>,
}

impl TextTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`RenderError::Template`] with the line if it is not valid Jinja, [`RenderError::Limit`] if it exceeds a limit.
    pub fn parse(source: &str) -> Result<Self, RenderError> {
        let text = TemplateText {
            source: source.to_owned(),
            now: 0,
            dialect: Dialect::Record,
        };
        Ok(Self {
            opened: renderer::installed().open(&text)?,
        })
    }

    /// Renders the text of each record. A text that fails does not affect the others.
    ///
    /// # Errors
    /// Nothing could be rendered.
    pub fn render(
        &self,
        records: &[&Map<String, Value>],
    ) -> Result<Vec<Result<String, RenderError>>, RenderError> {
        let mut texts = Vec::with_capacity(records.len());
        for records in records.chunks(RECORDS_AT_ONCE) {
            let jobs: Vec<RenderJob> = records.iter().map(|record| job(record)).collect();
            let rendered = self.opened.render(&jobs)?;
            texts.extend(
                rendered
                    .into_iter()
                    .map(|texts| match texts.into_iter().next() {
                        Some(text) => text,
                        None => Err(RenderError::Unavailable {
                            reason: "a text is missing".to_owned(),
                        }),
                    }),
            );
        }
        Ok(texts)
    }
}

fn job(record: &Map<String, Value>) -> RenderJob {
    // Values of JSON can be converted.
    let value = |value: &Value| minijinja::Value::deserialize(value).unwrap_or_default();
    RenderJob {
        messages: Vec::new(),
        variables: record
            .iter()
            .map(|(name, field)| (name.clone(), value(field)))
            .collect(),
        texts: vec![TextRequest {
            messages: 0,
            add_generation_prompt: false,
            marks: None,
        }],
    }
}
