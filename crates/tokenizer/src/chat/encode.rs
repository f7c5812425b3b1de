//! Encodes a record to token ids and a loss mask.

use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::Value;

use super::example::with_field;
use super::marks::{self, Marks};
use super::renderer::RenderJob;
use super::spec::ConversationStart;
use super::turns::TurnTexts;
use super::{ChatError, ChatExample, ChatTemplate, ChatTemplateSpec, Conversation};
use crate::Tokenizer;
use crate::barriers::Names;
use crate::markup::{MarkupEncoder, PlacedToken};

/// The tokens of an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTokens {
    /// The token ids.
    pub ids: Vec<u32>,
    /// The loss mask: true for each id that is a training target.
    pub learnt: Vec<bool>,
}

/// Encodes records with a chat template and a tokenizer. Can be shared between threads.
///
/// Only the template produces special tokens. A special token's name in a message, or anywhere else in a
/// record, is plain text. Otherwise the ids are those of `transformers`' `apply_chat_template`.
///
/// ```
/// use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate};
/// use emberlm_tokenizer::{Tokenizer, TokenizerKind};
///
/// let encoder = ChatEncoder::new(ChatTemplate::chatml()?, &Tokenizer::builtin(TokenizerKind::Byte)?);
/// let tokens = encoder.encode(r#"{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}"#)?;
/// let learnt: Vec<u8> = tokens.ids.iter().zip(&tokens.learnt).filter(|(_, learnt)| **learnt).map(|(id, _)| *id as u8).collect();
/// assert_eq!(learnt, b"Ho<|im_end|>");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ChatEncoder {
    pub(super) template: ChatTemplate,
    pub(super) tokenizer: Tokenizer,
    pub(super) markup: MarkupEncoder,
    names: Names,
    /// Names of special tokens that can end an answer: those of the tokenizer and of the template.
    pub(super) ends: Vec<String>,
    missing: Vec<String>,
    pub(super) end_of_text: Option<u32>,
    /// The ids that precede every conversation.
    pub(super) beginning: Vec<u32>,
}

impl ChatEncoder {
    /// Creates an encoder for conversations.
    ///
    /// Unless the template's configuration sets them, `eos_token` is the tokenizer's end of text and
    /// `bos_token` the token that it puts before a text.
    pub fn new(template: ChatTemplate, tokenizer: &Tokenizer) -> Self {
        let specials = tokenizer.special_tokens();
        let name = |id: Option<u32>| {
            let found = specials.iter().find(|(_, special)| Some(*special) == id);
            found.map(|(name, _)| name.clone())
        };
        let end_of_text = tokenizer.end_of_text();
        let bos = tokenizer.beginning().first().copied();
        let defaults = [("eos_token", name(end_of_text)), ("bos_token", name(bos))];
        let unset = defaults.into_iter().filter_map(|(variable, token)| {
            let is_set = template.tokens().contains_key(variable);
            let token = token.filter(|_| !is_set)?;
            Some((variable.to_owned(), token))
        });
        let unset: Vec<_> = unset.collect();
        let template = template.with_tokens(unset);
        let missing = template
            .specials()
            .into_iter()
            .filter(|name| tokenizer.token_id(name).is_none());
        let names: Vec<String> = specials.into_iter().map(|(name, _)| name).collect();
        let written = template.specials().into_iter().map(str::to_owned);
        Self {
            missing: missing.map(str::to_owned).collect(),
            names: Names::new(&names),
            ends: names.into_iter().chain(written).collect(),
            markup: MarkupEncoder::new(tokenizer),
            tokenizer: tokenizer.clone(),
            end_of_text,
            beginning: Vec::new(),
            template,
        }
    }

    /// Creates an encoder with a stored template, or with ChatML.
    ///
    /// # Errors
    /// The template is invalid.
    pub fn of_spec(
        spec: Option<&ChatTemplateSpec>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, ChatError> {
        let template = match spec {
            Some(spec) => ChatTemplate::try_from(spec)?,
            None => ChatTemplate::chatml()?,
        };
        Ok(Self::new(template, tokenizer))
    }

    /// The template, as it is stored with a dataset or a model.
    pub fn spec(&self) -> ChatTemplateSpec {
        let spec = ChatTemplateSpec::from(&self.template);
        match self.template.start() {
            ConversationStart::Recorded(_) => spec,
            ConversationStart::Run | ConversationStart::Published => ChatTemplateSpec {
                begins_with: self.begins_with().map(|token| token.name),
                ..spec
            },
        }
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The special tokens that the template writes but the tokenizer lacks. They become plain text.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Encodes a record: see [`ChatExample::from_json`]. A conversation is rendered by the template. For a
    /// `prompt` and a `completion` that are strings, the two are concatenated, followed by the end of text if
    /// the tokenizer has one.
    ///
    /// The targets are the assistant's answers with the tokens that end them, or the completion with its end. A
    /// token that overlaps a target span is a target.
    ///
    /// # Errors
    /// The record is invalid or has no targets, the template rejects it or does not show the assistant's
    /// answers, or the tokenizer cannot encode the text.
    pub fn encode(&self, json: &str) -> Result<ChatTokens, ChatError> {
        let tokens = self.encode_batch(&[json]).pop();
        tokens.unwrap_or_else(|| Err(self.template.no_text()))
    }

    /// Encodes each of `records` like [`ChatEncoder::encode`]. A renderer in another process receives one
    /// request for the whole batch.
    pub fn encode_batch(&self, records: &[&str]) -> Vec<Result<ChatTokens, ChatError>> {
        self.encode_all(records, false)
    }

    /// Encodes each of `records` as a document of a dataset: like [`ChatEncoder::encode_batch`], with the ids of
    /// [`ChatEncoder::with_document_start`] before a conversation, and the end of text before a prompt and a completion
    /// that are strings. These ids are not targets.
    pub fn encode_documents(&self, records: &[&str]) -> Vec<Result<ChatTokens, ChatError>> {
        self.encode_all(records, true)
    }

    fn encode_all(
        &self,
        records: &[&str],
        are_documents: bool,
    ) -> Vec<Result<ChatTokens, ChatError>> {
        let mut read: Vec<Result<Record<'_>, ChatError>> =
            records.iter().map(|json| self.read(json)).collect();
        let templates = [Some(&self.template), self.template.tool_use()];
        let rendered = templates
            .into_iter()
            .flatten()
            .try_for_each(|template| render(template, &mut read));
        match rendered {
            Ok(()) => {}
            // One record exceeds a limit: encode them separately, so that the others still succeed.
            Err(_) if records.len() > 1 => {
                let mut stopped = None;
                let separately = records.iter().flat_map(|json| match &stopped {
                    Some(error) => vec![Err(ChatError::clone(error))],
                    None => {
                        let encoded = self.encode_all(&[json], are_documents);
                        let failed = encoded.iter().find_map(|tokens| tokens.as_ref().err());
                        stopped = failed.filter(|error| error.is_of_renderer()).cloned();
                        encoded
                    }
                });
                return separately.collect();
            }
            Err(error) => return vec![Err(error)],
        }
        let finished = read.into_iter().map(|record| {
            let record = record?;
            let start = match (are_documents, &record) {
                (true, Record::Conversation(_)) => self.beginning.as_slice(),
                (true, Record::Text { .. }) => self.end_of_text.as_slice(),
                (false, _) => &[],
            };
            Ok(self.tokens_of(record)?.after(start))
        });
        finished.collect()
    }

    fn read(&self, json: &str) -> Result<Record<'_>, ChatError> {
        let conversation = match ChatExample::from_json(json)? {
            ChatExample::Text { prompt, completion } => {
                return Ok(Record::Text { prompt, completion });
            }
            ChatExample::Conversation(conversation) => conversation,
        };
        if !conversation.messages.iter().any(|message| message.learnt) {
            return Err(ChatError::record(
                "messages",
                "hold none of the assistant's that is to be learnt",
            ));
        }
        let template = self.template.for_conversation(&conversation);
        let mut conversation = conversation.for_template(template.reads_parts());
        let marks = self.marks_for(&conversation)?;
        self.bar(&mut conversation, marks.barrier);
        let turns = TurnTexts::new(template, conversation, marks);
        Ok(Record::Conversation(Box::new(turns)))
    }

    fn tokens_of(&self, record: Record<'_>) -> Result<ChatTokens, ChatError> {
        let (tokens, field) = match record {
            Record::Text { prompt, completion } => {
                (self.encode_text(&prompt, &completion)?, "completion")
            }
            Record::Conversation(turns) => {
                let unmarked = turns.unmarked(&self.ends)?;
                let placed = self.markup.encode(&unmarked.text, &unmarked.barriers)?;
                (ChatTokens::new(&placed, &unmarked.spans), "messages")
            }
        };
        match tokens.learnt.contains(&true) {
            true => Ok(tokens),
            false => Err(ChatError::record(
                field,
                "hold nothing that is to be learnt",
            )),
        }
    }

    fn encode_text(&self, prompt: &str, completion: &str) -> Result<ChatTokens, ChatError> {
        let text = format!("{prompt}{completion}");
        let placed = self.markup.encode_plain(&text)?;
        let learnt = prompt.len()..text.len();
        let mut tokens = ChatTokens::new(&placed, std::slice::from_ref(&learnt));
        if let Some(end) = self.end_of_text {
            tokens.ids.push(end);
            tokens.learnt.push(true);
        }
        Ok(tokens)
    }

    /// Chooses marks that occur in neither the conversation nor the template.
    pub(super) fn marks_for(&self, conversation: &Conversation) -> Result<Marks, ChatError> {
        let mut used = BTreeSet::new();
        self.template.note_used(&mut used);
        let fields = conversation.messages.iter().map(|message| &message.fields);
        let variables = conversation.variables.iter().map(|(_, value)| value);
        for value in fields.chain(variables) {
            marks::map_texts(value, &mut |text| {
                marks::note_used(text, &mut used);
                String::new()
            });
        }
        Marks::avoiding(&used)
    }

    /// Puts barriers into special tokens' names in all content of the record. A role that is a single word is
    /// unchanged, since templates compare it with literals.
    pub(super) fn bar(&self, conversation: &mut Conversation, barrier: char) {
        let bar =
            |value: &Value| marks::map_texts(value, &mut |text| self.names.bar(text, barrier));
        for message in &mut conversation.messages {
            let role = Value::from(message.role.as_str());
            message.fields = bar(&message.fields);
            if marks::is_word(&message.role) {
                message.fields = with_field(&message.fields, "role", role);
            }
        }
        for (_, value) in &mut conversation.variables {
            *value = bar(value);
        }
    }
}

/// A parsed record.
enum Record<'a> {
    Text { prompt: String, completion: String },
    Conversation(Box<TurnTexts<'a>>),
}

/// Renders the first texts of those of `records` that are conversations of `template`.
fn render(
    template: &ChatTemplate,
    records: &mut [Result<Record<'_>, ChatError>],
) -> Result<(), ChatError> {
    let turns = records.iter_mut().filter_map(|record| match record {
        Ok(Record::Conversation(turns)) if turns.is_of(template) => Some(&mut **turns),
        _ => None,
    });
    let mut turns: Vec<&mut TurnTexts<'_>> = turns.collect();
    if turns.is_empty() {
        return Ok(());
    }
    let jobs: Vec<RenderJob> = turns.iter_mut().map(|turns| turns.next_job()).collect();
    for (turns, texts) in turns.into_iter().zip(template.run_jobs(&jobs)?) {
        turns.add_texts(texts);
    }
    Ok(())
}

impl ChatTokens {
    /// Creates the tokens of a text. `spans` are the byte ranges of the targets, in ascending order.
    fn new(placed: &[PlacedToken], spans: &[Range<usize>]) -> Self {
        let is_learnt = |token: &PlacedToken| {
            let next = spans.partition_point(|span| span.end <= token.start);
            spans[next..]
                .iter()
                .take_while(|span| span.start < token.end)
                .any(|span| !span.is_empty())
        };
        Self {
            learnt: placed.iter().map(is_learnt).collect(),
            ids: placed.iter().map(|token| token.id).collect(),
        }
    }

    /// Returns the tokens after `start`, whose ids are no targets.
    #[must_use]
    pub fn after(mut self, start: &[u32]) -> Self {
        self.learnt.splice(..0, start.iter().map(|_| false));
        self.ids.splice(..0, start.iter().copied());
        self
    }
}
