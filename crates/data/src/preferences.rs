//! Reads records with completions to learn: preferences in TRL's formats, which are a prompt with a chosen and a rejected
//! completion, or with one completion and a label; and conversations of any form, whose answers are the targets.

use std::path::PathBuf;

use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::{ChatEncoder, ChatError, ChatTemplateSpec, ChatTokens};
use serde_json::{Map, Value, json};

use crate::DataError;
use crate::conversations::{convert, to_example};
use crate::inputs::read_objects;

/// The form of preferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferenceForm {
    /// A chosen and a rejected completion.
    Pairs,
    /// One completion, with a label that is true if it is desirable.
    Labelled,
}

/// A prompt with its completions, or a conversation. Each is a record that
/// [`ChatExample::from_json`](emberlm_tokenizer::chat::ChatExample::from_json) reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferenceRecord {
    /// The position of the record in its file, from 1.
    pub number: u64,
    /// The prompt with each completion, as JSON: with the chosen, then with the rejected one, or with the only one. Of a
    /// conversation, only the record.
    pub examples: Vec<String>,
    /// True if the chosen or the only completion is desirable.
    pub label: bool,
    /// True if the texts are lists of messages, and false if they are a prompt and completions without roles.
    pub is_conversation: bool,
}

/// Reads the preferences of `inputs`, in order. A pair has `prompt`, `chosen` and `rejected`, which are three texts or three
/// lists of messages, also as JSON in a text. Without `prompt`, the messages that both lists begin with are the prompt. A labelled record has
/// `prompt`, `completion` and `label`, true or false. `tools`, `documents` and `chat_template_kwargs` are passed to the chat
/// template.
///
/// As in LLaMA-Factory, the prompt can also be a conversation in ShareGPT's form or an Alpaca instruction, and a completion
/// of a conversation one message or its text.
///
/// # Errors
/// An input cannot be read, is a plain text or has no records; a record lacks a field, or a completion is empty.
pub fn read_preferences(
    inputs: &[PathBuf],
    form: PreferenceForm,
) -> Result<Vec<PreferenceRecord>, DataError> {
    read_objects(inputs, "preferences", |object, number| {
        let mut object = object.clone();
        let has_messages = object.contains_key("messages");
        convert(&mut object).map_err(|error| error.to_string())?;
        let names = match form {
            PreferenceForm::Pairs => &["chosen", "rejected"][..],
            PreferenceForm::Labelled => &["completion"],
        };
        // The lists of a pair can begin with the prompt, which `messages` then repeats.
        if !(has_messages && form == PreferenceForm::Pairs) {
            prompt_of_messages(&mut object, names);
        }
        match form {
            PreferenceForm::Pairs => pair(&object, number),
            PreferenceForm::Labelled => labelled(&object, number),
        }
    })
}

/// Reads the conversations of `inputs`, in order, in any form: see the guide on fine-tuning.
///
/// # Errors
/// An input cannot be read, is a plain text or has no records; a record has no form of a conversation.
pub fn read_conversations(inputs: &[PathBuf]) -> Result<Vec<PreferenceRecord>, DataError> {
    read_objects(inputs, "conversations", |object, number| {
        let json = Value::from(object.clone()).to_string();
        let example = to_example(&json).map_err(|error| error.to_string())?;
        let is_text = |name: &str| object.get(name).is_some_and(Value::is_string);
        Ok(PreferenceRecord {
            number,
            is_conversation: !(is_text("prompt") && is_text("completion")),
            examples: vec![example.into_owned()],
            label: true,
        })
    })
}

/// Makes the messages of a record without `prompt` its prompt. Completions that are texts become messages of the assistant.
fn prompt_of_messages(object: &mut Map<String, Value>, completions: &[&str]) {
    if object.contains_key("prompt") {
        return;
    }
    let Some(mut messages) = object.remove("messages") else {
        return;
    };
    let answer = |messages: &mut Value| {
        let messages = messages.as_array_mut()?;
        messages.pop_if(|last| last["role"] == "assistant")
    };
    // A labelled conversation is labelled by its last answer.
    if let ["completion"] = completions
        && !object.contains_key("completion")
        && let Some(answer) = answer(&mut messages)
    {
        object.insert("completion".to_owned(), json!([answer]));
    }
    object.insert("prompt".to_owned(), messages);
    for name in completions {
        if let Some(completion @ Value::String(_)) = object.get_mut(*name) {
            let content = completion.take();
            *completion = match content.as_str() {
                Some("") => content,
                _ => json!([{"role": "assistant", "content": content}]),
            };
        }
    }
}

/// Reads a labelled completion. The error is the violated rule.
fn labelled(object: &Map<String, Value>, number: u64) -> Result<PreferenceRecord, String> {
    let completion = completion(object, "completion")?;
    let label = match object.get("label") {
        Some(Value::Bool(label)) => *label,
        None | Some(Value::Null) => return Err("`label` is missing".to_owned()),
        Some(_) => return Err("`label` is neither true nor false".to_owned()),
    };
    let is_conversation = completion.is_array();
    let prompt = match object.get("prompt") {
        None | Some(Value::Null) => return Err("`prompt` is missing".to_owned()),
        Some(prompt) if prompt.is_array() == is_conversation => prompt,
        Some(_) => {
            return Err(
                "`prompt` and `completion` must be two texts or two lists of messages".to_owned(),
            );
        }
    };
    Ok(PreferenceRecord {
        number,
        examples: vec![example(object, prompt, completion.clone())],
        label,
        is_conversation,
    })
}

/// A prompt with a completion, and the fields of `object` for the chat template, as JSON.
fn example(object: &Map<String, Value>, prompt: &Value, completion: Value) -> String {
    let mut example = json!({"prompt": prompt, "completion": completion});
    copy_template_fields(object, &mut example);
    example.to_string()
}

/// The fields of a record that are passed to the chat template.
pub(crate) const TEMPLATE_FIELDS: [&str; 3] = ["tools", "documents", "chat_template_kwargs"];

/// Copies the fields of a record that are passed to the chat template.
pub(crate) fn copy_template_fields(object: &Map<String, Value>, conversation: &mut Value) {
    for name in TEMPLATE_FIELDS {
        if let Some(value) = object.get(name) {
            conversation[name] = value.clone();
        }
    }
}

/// Reads a pair. The error is the violated rule.
fn pair(object: &Map<String, Value>, number: u64) -> Result<PreferenceRecord, String> {
    let chosen = completion(object, "chosen")?;
    let rejected = completion(object, "rejected")?;
    let prompt = object.get("prompt").filter(|prompt| !prompt.is_null());
    let is_conversation = chosen.is_array();
    let kinds_agree = chosen.is_array() == rejected.is_array()
        && prompt.is_none_or(|prompt| match is_conversation {
            true => prompt.is_array(),
            false => prompt.is_string(),
        });
    if !kinds_agree {
        return Err(
            "`prompt`, `chosen` and `rejected` must be three texts or three lists of messages"
                .to_owned(),
        );
    }
    let (prompt, chosen, rejected) = match (prompt, chosen, rejected) {
        (Some(prompt), chosen, rejected) => (prompt.clone(), chosen.clone(), rejected.clone()),
        (None, Value::Array(chosen), Value::Array(rejected)) => {
            let pairs = chosen.iter().zip(rejected);
            let shared = pairs.take_while(|(a, b)| a == b).count();
            if shared == 0 || shared == chosen.len() || shared == rejected.len() {
                return Err(
                    "without `prompt`, `chosen` and `rejected` must begin with the same messages and then differ"
                        .to_owned(),
                );
            }
            (
                Value::from(&chosen[..shared]),
                Value::from(&chosen[shared..]),
                Value::from(&rejected[shared..]),
            )
        }
        (None, ..) => return Err("`prompt` is missing".to_owned()),
    };
    let examples = [chosen, rejected].map(|completion| example(object, &prompt, completion));
    Ok(PreferenceRecord {
        number,
        examples: examples.to_vec(),
        label: true,
        is_conversation,
    })
}

/// A completion that is not empty.
fn completion<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a Value, String> {
    match object.get(name) {
        None | Some(Value::Null) => Err(format!("`{name}` is missing")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("`{name}` is empty")),
        Some(Value::Array(messages)) if messages.is_empty() => Err(format!("`{name}` is empty")),
        Some(value @ (Value::String(_) | Value::Array(_))) => Ok(value),
        Some(_) => Err(format!("`{name}` is neither a text nor a list of messages")),
    }
}

/// Tokenizes preferences.
///
/// A conversation is rendered by the chat template. As in datasets that `prepare` makes, it begins with the end-of-text
/// token unless the template is a published model's or begins with a special token itself. Texts are concatenated and end with the end-of-text
/// token. They begin with the tokens that the tokenizer puts before a text, or with the end-of-text token if the prompt is
/// empty and there are none.
#[derive(Debug)]
pub struct PreferenceEncoder {
    chat: ChatEncoder,
    /// Ids before a text.
    before_text: Vec<u32>,
    end_of_text: Option<u32>,
}

impl PreferenceEncoder {
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
            before_text: tokenizer.beginning(),
            end_of_text: tokenizer.end_of_text(),
            chat: ChatEncoder::of_spec(template, tokenizer)?.with_document_start(),
        })
    }

    /// The template, as it is stored with a model.
    pub fn template(&self) -> ChatTemplateSpec {
        self.chat.spec()
    }

    /// The tokens of each record's sequences. The targets are the completion's answers with the tokens that end them.
    pub fn encode(&self, records: &[PreferenceRecord]) -> Vec<Result<Vec<ChatTokens>, ChatError>> {
        let examples = records.iter().flat_map(|record| &record.examples);
        let examples: Vec<&str> = examples.map(String::as_str).collect();
        let mut encoded = self.chat.encode_batch(&examples).into_iter();
        let of_record = |record: &PreferenceRecord| {
            let sequences = encoded.by_ref().take(record.examples.len());
            // Takes all sequences of the record, also if one has an error.
            let sequences: Vec<Result<ChatTokens, ChatError>> = sequences.collect();
            let begun = |tokens| self.begun(tokens, record.is_conversation);
            sequences
                .into_iter()
                .map(|tokens| tokens.map(begun))
                .collect()
        };
        records.iter().map(of_record).collect()
    }

    /// The tokens with those that begin a sequence.
    fn begun(&self, tokens: ChatTokens, is_conversation: bool) -> ChatTokens {
        let begins_with_target = tokens.learnt.first() == Some(&true);
        let start = match is_conversation {
            true => self.chat.beginning(),
            false if self.before_text.is_empty() && begins_with_target => {
                self.end_of_text.as_slice()
            }
            false => &self.before_text,
        };
        tokens.after(start)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tables::check_table;

    fn read(contents: &str) -> Result<Vec<PreferenceRecord>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.jsonl");
        fs::write(&path, contents).unwrap();
        read_preferences(&[path], PreferenceForm::Pairs).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_and_messages_become_two_examples() {
        let lines = concat!(
            r#"{"prompt": "2+2=", "chosen": "4", "rejected": "5"}"#,
            "\n",
            r#"{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}"#,
            "\n",
            r#"{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]}"#,
        );
        let records = read(lines).unwrap();
        assert_eq!(
            records[0].examples[0],
            r#"{"prompt":"2+2=","completion":"4"}"#
        );
        assert_eq!(
            records[0].examples[1],
            r#"{"prompt":"2+2=","completion":"5"}"#
        );
        assert!(!records[0].is_conversation && records[1].is_conversation);
        // The prompt of the third record is implicit.
        assert_eq!(records[1].examples, records[2].examples);
        assert_eq!(records[2].number, 3);
    }

    #[test]
    fn broken_records_are_errors_with_line_and_reason() {
        let good = r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#;
        check_table("records/preferences", |row| match row.split_once(' ') {
            Some(("pair", line)) => read(&format!("{good}\n{line}\n")).unwrap_err(),
            Some((_, line)) => read_labelled(line).unwrap_err(),
            None => unreachable!("{row}"),
        });
        assert!(read("").unwrap_err().contains("is empty"));
    }

    fn read_labelled(line: &str) -> Result<Vec<PreferenceRecord>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labelled.jsonl");
        fs::write(&path, line).unwrap();
        read_preferences(&[path], PreferenceForm::Labelled).map_err(|error| error.to_string())
    }

    #[test]
    fn labelled_records_have_one_completion() {
        let line = r#"{"prompt": "a", "completion": "b", "label": false}"#;
        let records = read_labelled(line).unwrap();
        assert_eq!(records[0].examples, [r#"{"prompt":"a","completion":"b"}"#]);
        assert!(!records[0].label);
    }

    #[test]
    fn targets_are_the_completions_with_their_ends() {
        let tokenizer = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let end = tokenizer.end_of_text().unwrap();
        let encoder = PreferenceEncoder::new(&tokenizer, None).unwrap();
        let lines = concat!(
            r#"{"prompt": "ab", "chosen": "c", "rejected": "de"}"#,
            "\n",
            r#"{"prompt": "", "chosen": "c", "rejected": "de"}"#,
            "\n",
            r#"{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}"#,
        );
        let pairs = encoder.encode(&read(lines).unwrap());
        let pairs: Vec<_> = pairs.into_iter().map(Result::unwrap).collect();
        assert_eq!(pairs[0][1].ids, [97, 98, 100, 101, end]);
        assert_eq!(pairs[0][1].learnt, [false, false, true, true, true]);
        assert_eq!(pairs[1][0].ids, [end, 99, end]);
        assert_eq!(pairs[1][0].learnt, [false, true, true]);
        let ChatTokens { ids, learnt } = &pairs[2][0];
        assert_eq!((ids[0], learnt[0]), (end, false));
        let targets = ids.iter().zip(learnt).filter(|(_, learnt)| **learnt);
        let targets: Vec<u8> = targets.map(|(id, _)| *id as u8).collect();
        assert_eq!(targets, b"b<|im_end|>");
    }
}
