//! A chat template: a Jinja template, run as `transformers` runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use super::builtin::{self, Builtin};
use super::example::Conversation;
use super::marks::{self, Marks};
use super::{ChatError, generation, python};

/// How many instructions a template may run for one text: a usual one takes some tens for a message.
const FUEL: u64 = 10_000_000;

/// The name of the one template in its environment.
const MAIN: &str = "chat";

/// Turns a conversation into the text that a model reads.
///
/// As in `transformers`: `trim_blocks` and `lstrip_blocks`; variables `messages`, `tools`, `documents`,
/// `add_generation_prompt` and the special tokens (`bos_token`, `eos_token`, …); `raise_exception`, `strftime_now`, `tojson`
/// without HTML's escapes; `break` and `continue`; `{% generation %}` around what the assistant has written; Python's
/// methods of texts and maps.
///
/// `strftime_now` tells the time, in UTC, at which the template was read: the same for all conversations.
#[derive(Debug)]
pub struct ChatTemplate {
    name: String,
    source: String,
    env: Environment<'static>,
    marks_answers: bool,
    reads_parts: bool,
    /// `bos_token` and the like, by name.
    tokens: BTreeMap<String, String>,
    /// Names of special tokens that stand in the template.
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
    /// [`ChatError::Template`] with the line where it is no Jinja.
    pub fn parse(name: &str, source: &str) -> Result<Self, ChatError> {
        Self::with_time(name, source, now())
    }

    /// [`ChatTemplate::parse`], and the time that `strftime_now` tells, in seconds since 1970.
    ///
    /// # Errors
    /// As [`ChatTemplate::parse`].
    pub fn with_time(name: &str, source: &str, now: i64) -> Result<Self, ChatError> {
        let (rewritten, marks_answers) = generation::rewrite(source);
        let mut env = Environment::new();
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_fuel(Some(FUEL));
        generation::install(&mut env);
        python::install(&mut env, now);
        let mut template = Self {
            name: name.to_owned(),
            source: source.to_owned(),
            env: Environment::new(),
            marks_answers,
            reads_parts: false,
            tokens: BTreeMap::new(),
            specials: written_specials(source),
        };
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        env.set_syntax(syntax.map_err(|error| template.refuse(&error))?);
        env.add_template_owned(MAIN, rewritten)
            .map_err(|error| template.refuse(&error))?;
        template.env = env;
        template.reads_parts = template.tries_parts();
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

    /// BLAKE3, in hexadecimal, of its text and of the special tokens that it is told of.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let tokens = self.tokens.iter().flat_map(|(name, token)| [name, token]);
        for text in [&self.source].into_iter().chain(tokens) {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Whether `{% generation %}` in it says what the assistant has written.
    pub fn marks_answers(&self) -> bool {
        self.marks_answers
    }

    /// The special tokens that it is told of, such as `bos_token`, by name.
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

    /// Whether it reads a content that is a list of parts itself; for one that does not, the parts' texts are joined.
    pub(crate) fn reads_parts(&self) -> bool {
        self.reads_parts
    }

    /// The text of a conversation; with `add_generation_prompt` also what comes before the assistant's next answer.
    ///
    /// # Errors
    /// [`ChatError::Template`] where the template refuses it or cannot be run.
    pub fn render(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        let conversation = conversation.for_template(self.reads_parts);
        self.run(
            &conversation.messages,
            &conversation,
            add_generation_prompt,
            None,
        )
    }

    /// The text of some messages of a conversation, which is as the template wants it, with marks where they are asked for.
    pub(crate) fn run(
        &self,
        messages: &[super::Message],
        conversation: &Conversation,
        add_generation_prompt: bool,
        marks: Option<&Marks>,
    ) -> Result<String, ChatError> {
        let mut variables: BTreeMap<&str, Value> = BTreeMap::new();
        variables.insert("tools", Value::from(()));
        variables.insert("documents", Value::from(()));
        let tokens = self.tokens.iter();
        variables.extend(tokens.map(|(name, token)| (name.as_str(), Value::from(token.as_str()))));
        let given = conversation.variables.iter();
        variables.extend(given.map(|(name, value)| (name.as_str(), value.clone())));
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| message.fields.clone())
            .collect();
        variables.insert("messages", Value::from(messages));
        variables.insert("add_generation_prompt", Value::from(add_generation_prompt));
        variables.extend(marks.map(generation::variable));
        let template = self
            .env
            .get_template(MAIN)
            .map_err(|error| self.refuse(&error))?;
        let context = Value::from_pairs(variables);
        template
            .render(context)
            .map_err(|error| self.refuse(&error))
    }

    /// Notes the characters of the template that marks must not be.
    pub(crate) fn note_used(&self, used: &mut BTreeSet<char>) {
        marks::note_used(&self.source, used);
    }

    fn tries_parts(&self) -> bool {
        const PROBE: &str = "emberlm probe";
        let part = Value::from_pairs([("type", "text"), ("text", PROBE)]);
        let fields = Value::from_pairs([
            ("role", Value::from("user")),
            ("content", Value::from(vec![part])),
        ]);
        let conversation = Conversation::of_user(fields);
        let text = self.run(&conversation.messages, &conversation, false, None);
        text.is_ok_and(|text| {
            text.contains(PROBE) && !text.contains("'text'") && !text.contains("\"text\"")
        })
    }

    /// The error of the template, told by its innermost cause.
    fn refuse(&self, error: &Error) -> ChatError {
        let mut line = error.line();
        let mut cause = error;
        while let Some(inner) =
            std::error::Error::source(cause).and_then(|e| e.downcast_ref::<Error>())
        {
            cause = inner;
            line = inner.line().or(line);
        }
        let reason = match cause.detail() {
            Some(detail) if cause.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
            Some(detail) => format!("{}: {detail}", cause.kind()),
            None => cause.kind().to_string(),
        };
        ChatError::Template {
            template: self.name.clone(),
            line,
            reason,
        }
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
