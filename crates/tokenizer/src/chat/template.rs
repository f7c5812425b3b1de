//! A chat template: a Jinja template, run as `transformers` runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::Value;

use super::builtin::{self, Builtin};
use super::example::Conversation;
use super::jinja::InProcess;
use super::marks;
use super::renderer::{
    self, OpenTemplate, RenderError, RenderJob, Renderer, TemplateText, TextRequest, Texts,
};
use super::{ChatError, generation};

/// Turns a conversation into the text that a model reads.
///
/// As in `transformers`: `trim_blocks` and `lstrip_blocks`; variables `messages`, `tools`, `documents`,
/// `add_generation_prompt` and the special tokens (`bos_token`, `eos_token`, …); `raise_exception`, `strftime_now`, `tojson`
/// without HTML's escapes; `break` and `continue`; `{% generation %}` around what the assistant has written; Python's
/// methods of texts and maps.
///
/// `strftime_now` writes the time, in UTC, at which the template was read: the same for all conversations.
///
/// A template is parsed and run by the [`Renderer`] that the program has installed, else in this process; those that are built
/// in always in this process.
#[derive(Debug)]
pub struct ChatTemplate {
    name: String,
    source: String,
    opened: Box<dyn OpenTemplate>,
    marks_answers: bool,
    reads_parts: bool,
    /// `bos_token` and the like, by name.
    tokens: BTreeMap<String, String>,
    /// Names of special tokens in the template.
    specials: Vec<String>,
}

impl ChatTemplate {
    /// ChatML, as `transformers` has it.
    ///
    /// # Errors
    /// None that is known.
    pub fn chatml() -> Result<Self, ChatError> {
        Self::builtin(builtin::CHATML)
    }

    /// Llama 3's, as its model card describes it.
    ///
    /// # Errors
    /// None that is known.
    pub fn llama3() -> Result<Self, ChatError> {
        Self::builtin(builtin::LLAMA3)
    }

    pub(crate) fn builtin((name, source): Builtin) -> Result<Self, ChatError> {
        Self::parse(name, source)
    }

    /// The template of a text; `name` is what errors call it.
    ///
    /// # Errors
    /// [`ChatError::Template`] with the line where it is not Jinja; [`ChatError::Limit`] where it exceeds a limit.
    pub fn parse(name: &str, source: &str) -> Result<Self, ChatError> {
        Self::with_time(name, source, now())
    }

    /// [`ChatTemplate::parse`], and the time that `strftime_now` writes, in seconds since 1970.
    ///
    /// # Errors
    /// As [`ChatTemplate::parse`].
    pub fn with_time(name: &str, source: &str, now: i64) -> Result<Self, ChatError> {
        let text = TemplateText {
            source: source.into(),
            now,
        };
        // The templates that are built in are not somebody else's.
        let is_builtin = builtin::ALL.iter().any(|(_, builtin)| *builtin == source);
        let opened = match is_builtin {
            true => InProcess.open(&text),
            false => renderer::installed().open(&text),
        };
        let mut template = Self {
            name: name.to_owned(),
            opened: opened.map_err(|error| refuse(name, error))?,
            marks_answers: generation::rewrite(source).1,
            reads_parts: false,
            tokens: BTreeMap::new(),
            specials: written_specials(source),
            source: text.source,
        };
        template.reads_parts = template.tries_parts()?;
        Ok(template)
    }

    /// Says what `bos_token`, `eos_token` and the like are called.
    #[must_use]
    pub fn with_tokens(mut self, tokens: impl IntoIterator<Item = (String, String)>) -> Self {
        self.tokens.extend(tokens);
        self
    }

    /// The template's name, or the path that it came from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// BLAKE3, in hexadecimal, of its text and of its special tokens.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let tokens = self.tokens.iter().flat_map(|(name, token)| [name, token]);
        for text in [&self.source].into_iter().chain(tokens) {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Returns true if `{% generation %}` in it says what the assistant has written.
    pub fn marks_answers(&self) -> bool {
        self.marks_answers
    }

    /// The special tokens that it receives, such as `bos_token`, by name.
    pub fn tokens(&self) -> &BTreeMap<String, String> {
        &self.tokens
    }

    /// Adds those of `names`, which are special tokens', that the template writes.
    pub(crate) fn add_specials(&mut self, names: impl IntoIterator<Item = String>) {
        let written = names
            .into_iter()
            .filter(|name| self.source.contains(name.as_str()));
        self.specials.extend(written);
    }

    /// The special tokens that the template writes, as far as its text shows: names such as `<|im_end|>`, those that a
    /// tokenizer's configuration lists, and what `bos_token` and the like stand for.
    pub fn specials(&self) -> BTreeSet<&str> {
        let named = self
            .tokens
            .iter()
            .filter(|(name, _)| self.source.contains(name.as_str()));
        let named = named.map(|(_, token)| token.as_str());
        named
            .chain(self.specials.iter().map(String::as_str))
            .collect()
    }

    /// Returns true if it reads a content that is a list of parts itself; for one that does not, the parts' texts are joined.
    pub(crate) fn reads_parts(&self) -> bool {
        self.reads_parts
    }

    /// The text of a conversation; with `add_generation_prompt` also what comes before the assistant's next answer.
    ///
    /// # Errors
    /// [`ChatError::Template`] where the template refuses it or cannot be run; [`ChatError::Limit`] where it exceeds a limit.
    pub fn render(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        self.run(
            &conversation.for_template(self.reads_parts),
            add_generation_prompt,
        )
    }

    /// The text of a conversation that is as the template wants it.
    pub(crate) fn run(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        let text = TextRequest {
            messages: conversation.messages.len(),
            add_generation_prompt,
            marks: None,
        };
        let texts = self.run_jobs(&[self.job(conversation, vec![text])])?;
        match texts.into_iter().flatten().next() {
            Some(text) => text.map_err(|error| self.refuse(error)),
            None => Err(self.no_text()),
        }
    }

    /// The job to render `texts` of a conversation.
    pub(crate) fn job(&self, conversation: &Conversation, texts: Vec<TextRequest>) -> RenderJob {
        let mut variables: BTreeMap<String, Value> = BTreeMap::new();
        variables.insert("tools".to_owned(), Value::from(()));
        variables.insert("documents".to_owned(), Value::from(()));
        let tokens = self.tokens.iter();
        variables.extend(tokens.map(|(name, token)| (name.clone(), Value::from(token.as_str()))));
        variables.extend(conversation.variables.iter().cloned());
        let seen = texts.iter().map(|text| text.messages).max().unwrap_or(0);
        let messages = conversation.messages.iter().take(seen);
        RenderJob {
            messages: messages.map(|message| message.fields.clone()).collect(),
            variables,
            texts,
        }
    }

    /// The texts of `jobs`.
    pub(crate) fn run_jobs(&self, jobs: &[RenderJob]) -> Result<Vec<Texts>, ChatError> {
        self.opened.render(jobs).map_err(|error| self.refuse(error))
    }

    /// The error of a renderer that leaves a text out.
    pub(crate) fn no_text(&self) -> ChatError {
        self.refuse(RenderError::Unavailable {
            reason: "a text is missing".to_owned(),
        })
    }

    /// Notes the characters of the template that marks must not be.
    pub(crate) fn note_used(&self, used: &mut BTreeSet<char>) {
        marks::note_used(&self.source, used);
    }

    /// Tries whether the template reads a content that is a list of parts.
    fn tries_parts(&self) -> Result<bool, ChatError> {
        const PROBE: &str = "emberlm probe";
        let part = Value::from_pairs([("type", "text"), ("text", PROBE)]);
        let fields = Value::from_pairs([
            ("role", Value::from("user")),
            ("content", Value::from(vec![part])),
        ]);
        match self.run(&Conversation::of_user(fields), false) {
            Ok(text) => {
                Ok(text.contains(PROBE) && !text.contains("'text'") && !text.contains("\"text\""))
            }
            Err(error) if error.is_of_renderer() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The error of this template.
    pub(crate) fn refuse(&self, error: RenderError) -> ChatError {
        refuse(&self.name, error)
    }
}

fn refuse(name: &str, error: RenderError) -> ChatError {
    let template = name.to_owned();
    match error {
        RenderError::Template { line, reason } => ChatError::Template {
            template,
            line,
            reason,
        },
        RenderError::Limit { reason } => ChatError::Limit { template, reason },
        RenderError::Unavailable { reason } => ChatError::Unavailable { template, reason },
    }
}

/// Names such as `<|im_end|>` in a template.
fn written_specials(source: &str) -> Vec<String> {
    let begins = source.match_indices("<|").map(|(at, _)| at);
    let name = |at: usize| {
        let inner = &source[at + 2..];
        let end =
            inner.find(|c: char| c.is_whitespace() || matches!(c, '|' | '<' | '\'' | '"' | '{'))?;
        (end > 0 && inner[end..].starts_with("|>")).then(|| source[at..at + end + 4].to_owned())
    };
    begins.filter_map(name).collect()
}

impl fmt::Display for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
}
