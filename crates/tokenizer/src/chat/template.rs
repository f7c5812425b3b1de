//! Chat templates: Jinja templates with the semantics of `transformers`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::Value;

use super::builtin::{self, Builtin};
use super::example::Conversation;
use super::jinja::InProcess;
use super::marks;
use super::renderer::{
    self, Dialect, OpenTemplate, RenderError, RenderJob, Renderer, TemplateText, TextRequest, Texts,
};
use super::spec::ConversationStart;
use super::variables;
use super::{ChatError, ChatMessage, generation};

/// The text of probe messages.
const PROBE: &str = "emberlm probe";

/// Renders a conversation to the text that a model reads.
///
/// The semantics are those of `transformers`: `trim_blocks` and `lstrip_blocks`; the variables `messages`,
/// `tools`, `documents`, `add_generation_prompt` and the special tokens (`bos_token`, `eos_token`, …);
/// `raise_exception`, `strftime_now` and `tojson` without HTML escapes; `break` and `continue`;
/// `{% generation %}` around the assistant's answers; Python's methods of strings and dictionaries.
///
/// `strftime_now` writes the time (UTC) at which the template was loaded, the same for all conversations.
///
/// A template is parsed and run by the [`Renderer`] that the program has installed, otherwise in this process.
/// Built-in templates always run in this process.
///
/// ```
/// use emberlm_tokenizer::chat::{ChatMessage, ChatTemplate, Conversation};
///
/// let record = ChatMessage::record(&[ChatMessage::user("Hello")]);
/// let text = ChatTemplate::chatml()?.render(&Conversation::from_json(&record)?, true)?;
/// assert_eq!(text, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
/// # Ok::<(), emberlm_tokenizer::chat::ChatError>(())
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    name: String,
    source: String,
    opened: Box<dyn OpenTemplate>,
    marks_answers: bool,
    reads_parts: bool,
    /// `bos_token` and similar special tokens, by name.
    tokens: BTreeMap<String, String>,
    /// Names of special tokens in the template.
    specials: Vec<String>,
    /// The names in its expressions.
    names: BTreeSet<String>,
    start: ConversationStart,
    /// The template for conversations with tools.
    tool_use: Option<Box<ChatTemplate>>,
    /// True if the template writes system messages.
    writes_system: OnceLock<bool>,
}

impl ChatTemplate {
    /// Returns ChatML, as in `transformers`.
    ///
    /// # Errors
    /// None are expected: the template is built in.
    pub fn chatml() -> Result<Self, ChatError> {
        Self::builtin(builtin::CHATML)
    }

    /// Returns Llama 3's template, as in its model card.
    ///
    /// # Errors
    /// None are expected: the template is built in.
    pub fn llama3() -> Result<Self, ChatError> {
        Self::builtin(builtin::LLAMA3)
    }

    pub(crate) fn builtin((name, source): Builtin) -> Result<Self, ChatError> {
        Self::parse(name, source)
    }

    /// Parses a template. `name` identifies it in error messages.
    ///
    /// # Errors
    /// [`ChatError::Template`] with the line if it is not valid Jinja, [`ChatError::Limit`] if it exceeds a
    /// limit.
    pub fn parse(name: &str, source: &str) -> Result<Self, ChatError> {
        Self::with_time(name, source, now())
    }

    /// Like [`ChatTemplate::parse`], with the time that `strftime_now` writes in seconds since 1970.
    ///
    /// # Errors
    /// See [`ChatTemplate::parse`].
    pub fn with_time(name: &str, source: &str, now: i64) -> Result<Self, ChatError> {
        // Jinja normalizes line breaks.
        let text = TemplateText {
            source: source.replace("\r\n", "\n").replace('\r', "\n"),
            now,
            dialect: Dialect::Chat,
        };
        // Built-in templates are trusted.
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
            names: variables::names(source),
            start: ConversationStart::default(),
            tool_use: None,
            writes_system: OnceLock::new(),
            source: source.to_owned(),
        };
        template.reads_parts = template.probe_parts()?;
        Ok(template)
    }

    /// Sets the special tokens `bos_token`, `eos_token` and similar ones.
    #[must_use]
    pub fn with_tokens(mut self, tokens: impl IntoIterator<Item = (String, String)>) -> Self {
        self.tokens.extend(tokens);
        let tokens = self.tokens.clone();
        let tool_use = self.tool_use.take();
        let with_tokens = |template: Box<Self>| Box::new(template.with_tokens(tokens));
        self.tool_use = tool_use.map(with_tokens);
        self
    }

    /// Sets the template for conversations with tools. Without one, it is this template.
    #[must_use]
    pub fn with_tool_use(mut self, template: Option<Self>) -> Self {
        self.tool_use = template.map(Box::new);
        self
    }

    /// The separate template for conversations with tools.
    pub fn tool_use(&self) -> Option<&Self> {
        self.tool_use.as_deref()
    }

    /// Returns the separate template for conversations with tools.
    pub fn into_tool_use(self) -> Option<Self> {
        self.tool_use.map(|template| *template)
    }

    /// The template for a conversation.
    pub(crate) fn for_conversation(&self, conversation: &Conversation) -> &Self {
        let has_tools = || {
            conversation
                .variables
                .iter()
                .any(|(name, _)| name == "tools")
        };
        self.tool_use().filter(|_| has_tools()).unwrap_or(self)
    }

    /// Makes this the template of a published model: no token is added before its conversations, whose ids are those of
    /// `transformers`. Templates of files beside a `tokenizer_config.json`, of folders and of GGUF files are published.
    #[must_use]
    pub fn published(self) -> Self {
        self.with_start(ConversationStart::Published)
    }

    /// Makes this a template for a run of emberlm: the end-of-text token precedes its conversations, unless the template
    /// begins with a special token.
    #[must_use]
    pub fn for_run(self) -> Self {
        self.with_start(ConversationStart::Run)
    }

    /// Returns true for the template of a published model.
    pub fn is_published(&self) -> bool {
        self.start == ConversationStart::Published
    }

    /// The template, with the same token before conversations as `other` has.
    #[must_use]
    pub fn starting_as(self, other: &Self) -> Self {
        self.with_start(other.start.clone())
    }

    /// Sets the token before conversations.
    pub(crate) fn with_start(mut self, start: ConversationStart) -> Self {
        self.start = start;
        self
    }

    /// The token before conversations.
    pub(crate) fn start(&self) -> &ConversationStart {
        &self.start
    }

    /// The name of the template, or its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// True if an expression or statement of the template has the name of a variable. Attributes, strings and comments do not
    /// count.
    pub fn reads(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the BLAKE3 hash, in hexadecimal, of the sources and the special tokens.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let tokens = self.tokens.iter().flat_map(|(name, token)| [name, token]);
        let tool_use = self.tool_use().map(|template| &template.source);
        for text in [&self.source].into_iter().chain(tokens).chain(tool_use) {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Returns true if the template marks the assistant's answers with `{% generation %}`.
    pub fn marks_answers(&self) -> bool {
        self.marks_answers
    }

    /// The special tokens passed to the template, such as `bos_token`, by name.
    pub fn tokens(&self) -> &BTreeMap<String, String> {
        &self.tokens
    }

    /// Adds those of `names` that occur in the template's source. All must be names of special tokens.
    pub(crate) fn add_specials(&mut self, names: impl IntoIterator<Item = String>) {
        let written = names
            .into_iter()
            .filter(|name| self.source.contains(name.as_str()));
        self.specials.extend(written);
    }

    /// Returns the special tokens that the template writes, as far as its source shows: names such as
    /// `<|im_end|>`, those listed by a tokenizer's configuration, and the values of `bos_token` and similar
    /// variables.
    pub fn specials(&self) -> BTreeSet<&str> {
        let named = self
            .tokens
            .iter()
            .filter(|(name, _)| self.source.contains(name.as_str()));
        let named = named.map(|(_, token)| token.as_str());
        let tool_use = self.tool_use().map(Self::specials).unwrap_or_default();
        named
            .chain(self.specials.iter().map(String::as_str))
            .chain(tool_use)
            .collect()
    }

    /// Returns true if the template reads contents that are lists of parts. For others, the texts of the parts
    /// are joined.
    pub(crate) fn reads_parts(&self) -> bool {
        self.reads_parts
    }

    /// Renders a conversation. With `add_generation_prompt`, the prompt for the assistant's next answer
    /// follows.
    ///
    /// # Errors
    /// [`ChatError::Template`] if the template rejects the conversation or fails, [`ChatError::Limit`] if it
    /// exceeds a limit.
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

    /// Renders a conversation whose contents are already in the form that the template reads.
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

    /// Creates the job that renders `texts` of a conversation.
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

    /// Renders `jobs`.
    pub(crate) fn run_jobs(&self, jobs: &[RenderJob]) -> Result<Vec<Texts>, ChatError> {
        self.opened.render(jobs).map_err(|error| self.refuse(error))
    }

    /// The error for a renderer that omits a text.
    pub(crate) fn no_text(&self) -> ChatError {
        self.refuse(RenderError::Unavailable {
            reason: "a text is missing".to_owned(),
        })
    }

    /// Adds the template's characters that must not be used as marks.
    pub(crate) fn note_used(&self, used: &mut BTreeSet<char>) {
        marks::note_used(&self.source, used);
        if let Some(template) = self.tool_use() {
            template.note_used(used);
        }
    }

    /// Returns true if the template writes system messages, as a probe message shows: some templates reject them, others
    /// ignore them.
    ///
    /// # Errors
    /// The template exceeds a limit, or could not be run.
    pub fn writes_system(&self) -> Result<bool, ChatError> {
        if let Some(writes) = self.writes_system.get() {
            return Ok(*writes);
        }
        let messages = [ChatMessage::system(PROBE), ChatMessage::user("?")];
        let conversation = Conversation::from_json(&ChatMessage::record(&messages))?;
        let writes = match self.render(&conversation, false) {
            Ok(text) => text.contains(PROBE),
            Err(error) if error.is_of_renderer() => return Err(error),
            Err(_) => false,
        };
        Ok(*self.writes_system.get_or_init(|| writes))
    }

    /// Tests with a probe message if the template reads contents that are lists of parts.
    fn probe_parts(&self) -> Result<bool, ChatError> {
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

    /// Converts a renderer's error to one of this template.
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

/// Finds names such as `<|im_end|>` in a template.
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
