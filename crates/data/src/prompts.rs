//! Reads prompts from records, in TRL's format: a prompt, and any other fields.

use std::path::PathBuf;

use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::{ChatEncoder, ChatError, ChatTemplateSpec, decode_field};
use serde_json::{Map, Value, json};

use crate::DataError;
use crate::conversations::convert_list;
use crate::inputs::read_objects;
use crate::preferences::{TEMPLATE_FIELDS, copy_template_fields};

/// A prompt with the record that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptRecord {
    /// The position of the record in its file, from 1.
    pub number: u64,
    /// All fields of the record. `prompt` is a text or a list of messages.
    pub fields: Map<String, Value>,
}

impl PromptRecord {
    /// The prompt: a text or a list of messages.
    pub fn prompt(&self) -> &Value {
        self.fields.get("prompt").unwrap_or(&Value::Null)
    }

    /// Returns true if the prompt is a list of messages.
    pub fn is_conversation(&self) -> bool {
        self.prompt().is_array()
    }

    /// A field as text: a string, or a number or truth value as JSON writes it. `None` for other values.
    pub fn text(&self, field: &str) -> Option<String> {
        match self.fields.get(field)? {
            Value::String(text) => Some(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Reads the prompts of `inputs`, in order. A list of messages may be in ShareGPT's form. `required` fields must be texts, numbers or truth values.
///
/// # Errors
/// An input cannot be read, is a plain text or has no records; a record lacks a field, or its prompt is empty.
pub fn read_prompts(
    inputs: &[PathBuf],
    required: &[String],
) -> Result<Vec<PromptRecord>, DataError> {
    read_objects(inputs, "prompts", |object, number| {
        record(object, number, required)
    })
}

/// Reads a record. The error is the violated rule.
fn record(
    object: &Map<String, Value>,
    number: u64,
    required: &[String],
) -> Result<PromptRecord, String> {
    let mut fields = object.clone();
    for name in ["prompt"].iter().chain(&TEMPLATE_FIELDS) {
        if let Some(value) = fields.get_mut(*name) {
            decode_field(name, value).map_err(|error| error.to_string())?;
        }
    }
    convert_list(&mut fields, "prompt").map_err(|error| error.to_string())?;
    match fields.get("prompt") {
        None | Some(Value::Null) => return Err("`prompt` is missing".to_owned()),
        Some(Value::String(text)) if text.is_empty() => return Err("`prompt` is empty".to_owned()),
        Some(Value::Array(messages)) if messages.is_empty() => {
            return Err("`prompt` is empty".to_owned());
        }
        Some(Value::String(_) | Value::Array(_)) => {}
        Some(_) => return Err("`prompt` is neither a text nor a list of messages".to_owned()),
    }
    let record = PromptRecord { number, fields };
    for field in required {
        if record.text(field).is_none() {
            return Err(match object.get(field) {
                None | Some(Value::Null) => {
                    format!("`{field}` is missing, which a reward compares")
                }
                Some(_) => format!("`{field}` is neither a text nor a number nor a truth value"),
            });
        }
    }
    Ok(record)
}

/// Tokenizes prompts for their completion.
///
/// A conversation is rendered by the chat template, up to the beginning of the assistant's answer. As in datasets that
/// `prepare` makes, it begins with the end-of-text token unless the template is a published model's or begins with a special
/// token itself. A text begins with the tokens that the tokenizer puts before a text.
#[derive(Debug)]
pub struct PromptEncoder {
    chat: ChatEncoder,
    tokenizer: Tokenizer,
}

impl PromptEncoder {
    /// An encoder for a tokenizer and the chat template of conversations. Without a template, conversations are rendered as
    /// ChatML.
    ///
    /// # Errors
    /// The template is invalid.
    pub fn new(
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplateSpec>,
    ) -> Result<Self, ChatError> {
        Ok(Self {
            chat: ChatEncoder::of_spec(template, tokenizer)?.with_document_start(),
            tokenizer: tokenizer.clone(),
        })
    }

    /// The template, as it is stored with a model.
    pub fn template(&self) -> ChatTemplateSpec {
        self.chat.spec()
    }

    /// The tokens of a prompt, at least one.
    ///
    /// # Errors
    /// The template rejects the messages, the tokenizer cannot encode the text, or there are no tokens.
    pub fn encode(&self, record: &PromptRecord) -> Result<Vec<u32>, ChatError> {
        let ids = match record.prompt() {
            Value::String(text) => {
                let ids = self.tokenizer.encode(text)?;
                [self.tokenizer.beginning(), ids].concat()
            }
            messages => {
                let mut conversation = json!({"messages": messages});
                copy_template_fields(&record.fields, &mut conversation);
                self.chat.prompt(&conversation.to_string())?
            }
        };
        match ids.is_empty() {
            true => Err(ChatError::record("prompt", "has no tokens")),
            false => Ok(ids),
        }
    }

    /// The tokens that end a completion: those that end an answer of a conversation, or the end of a text.
    pub fn stop_tokens(&self, has_conversations: bool) -> Vec<u32> {
        match has_conversations {
            true => self.chat.stops().tokens,
            false => self.tokenizer.end_of_text().into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tables::check_table;

    fn read(contents: &str) -> Result<Vec<PromptRecord>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prompts.jsonl");
        fs::write(&path, contents).unwrap();
        read_prompts(&[path], &["answer".to_owned()]).map_err(|error| error.to_string())
    }

    #[test]
    fn prompts_are_texts_or_messages_with_any_fields() {
        let lines = concat!(
            r#"{"prompt": "2+2=", "answer": 4, "source": [1]}"#,
            "\n",
            r#"{"prompt": [{"role": "user", "content": "a"}], "answer": "b"}"#,
        );
        let records = read(lines).unwrap();
        assert_eq!(records[0].text("answer").as_deref(), Some("4"));
        assert_eq!(records[0].text("source"), None);
        assert!(!records[0].is_conversation() && records[1].is_conversation());

        let tokenizer = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let end = tokenizer.end_of_text().unwrap();
        let encoder = PromptEncoder::new(&tokenizer, None).unwrap();
        assert_eq!(
            encoder.encode(&records[0]).unwrap(),
            *b"2+2=".map(u32::from).as_slice()
        );
        let ids = encoder.encode(&records[1]).unwrap();
        let text: Vec<u8> = ids[1..].iter().map(|&id| id as u8).collect();
        assert_eq!(ids[0], end);
        assert_eq!(
            text,
            b"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(encoder.stop_tokens(false), [end]);
    }

    #[test]
    fn broken_records_are_errors_with_line_and_reason() {
        let good = r#"{"prompt": "a", "answer": "b"}"#;
        check_table("records/prompts", |line| {
            read(&format!("{good}\n{line}\n")).unwrap_err()
        });
    }
}
