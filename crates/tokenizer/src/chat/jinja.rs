//! Renders templates in this process with minijinja.

use std::io::{self, Write};

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::renderer::{
    Dialect, OpenTemplate, RenderError, RenderJob, Renderer, TemplateText, TextRequest, Texts,
};
use super::{generation, python};

/// Maximum size of a template in bytes. The largest published ones have 20,000.
const MAX_SOURCE: usize = 128 << 10;
/// Maximum number of tokens within one pair of delimiters. This bounds the nesting of expressions: the parser,
/// the compiler and the destructors of syntax trees recurse per level.
const MAX_TAG_TOKENS: usize = 600;
/// Maximum number of `elif` in a template, for the same reason.
const MAX_ELIFS: usize = 300;
/// Maximum number of instructions per text. Typical templates take some tens per message.
const FUEL: u64 = 10_000_000;
/// Maximum size of one text in bytes.
const MAX_OUTPUT: usize = 64 << 20;

/// The name of the template in its environment.
const MAIN: &str = "chat";

/// The in-process renderer.
///
/// Source size, nesting, instructions and output are bounded; memory and time are not.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Renderer for InProcess {
    fn open(&self, template: &TemplateText) -> Result<Box<dyn OpenTemplate>, RenderError> {
        Ok(Box::new(JinjaTemplate::new(template)?))
    }
}

/// A compiled template.
#[derive(Debug)]
pub(crate) struct JinjaTemplate {
    env: Environment<'static>,
    dialect: Dialect,
}

impl JinjaTemplate {
    /// Compiles a template.
    pub(crate) fn new(template: &TemplateText) -> Result<Self, RenderError> {
        let source = &*template.source;
        if source.len() > MAX_SOURCE {
            return Err(RenderError::Limit {
                reason: format!(
                    "it is {} bytes long; the limit is {MAX_SOURCE}",
                    source.len()
                ),
            });
        }
        let is_chat = template.dialect == Dialect::Chat;
        let rewritten = match template.dialect {
            Dialect::Chat => generation::rewrite(source).0,
            Dialect::Record => source.to_owned(),
        };
        let syntax = SyntaxConfig::builder()
            .trim_blocks(is_chat)
            .lstrip_blocks(is_chat)
            .keep_trailing_newline(!is_chat)
            .build()
            .map_err(|error| describe(&error))?;
        check_nesting(&rewritten, syntax.clone())?;
        let mut env = Environment::new();
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_fuel(Some(FUEL));
        generation::install(&mut env);
        python::install(&mut env, template.now);
        if !is_chat {
            env.set_undefined_behavior(UndefinedBehavior::Strict);
            env.add_filter("regex_replace", python::regex_replace);
        }
        env.set_syntax(syntax);
        env.add_template_owned(MAIN, rewritten)
            .map_err(|error| describe(&error))?;
        Ok(Self {
            env,
            dialect: template.dialect,
        })
    }

    /// Renders the texts of a job, stopping at the first failure.
    pub(crate) fn render_job(&self, job: &RenderJob) -> Texts {
        let mut texts = Vec::with_capacity(job.texts.len());
        for text in &job.texts {
            let rendered = self.render_text(job, text);
            let failed = rendered.is_err();
            texts.push(rendered);
            if failed {
                break;
            }
        }
        texts
    }

    fn render_text(&self, job: &RenderJob, text: &TextRequest) -> Result<String, RenderError> {
        let mut variables = job.variables.clone();
        if self.dialect == Dialect::Chat {
            let messages = job.messages.iter().take(text.messages).cloned();
            variables.insert("messages".to_owned(), messages.collect());
            variables.insert(
                "add_generation_prompt".to_owned(),
                Value::from(text.add_generation_prompt),
            );
        }
        if let Some(marks) = &text.marks {
            variables.insert(generation::MARKS.to_owned(), Value::from(&**marks));
        }
        let template = self
            .env
            .get_template(MAIN)
            .map_err(|error| describe(&error))?;
        let mut output = BoundedWriter::default();
        let rendered = template.render_captured_to(Value::from_pairs(variables), &mut output);
        let rendered = rendered.map(drop).map_err(|error| describe(&error));
        if output.exceeded {
            return Err(RenderError::Limit {
                reason: format!("it writes more than {MAX_OUTPUT} bytes, the limit"),
            });
        }
        rendered?;
        String::from_utf8(output.bytes).map_err(|error| RenderError::Template {
            line: None,
            reason: error.to_string(),
        })
    }
}

impl OpenTemplate for JinjaTemplate {
    fn render(&self, jobs: &[RenderJob]) -> Result<Vec<Texts>, RenderError> {
        Ok(jobs.iter().map(|job| self.render_job(job)).collect())
    }
}

/// Rejects a template that nests deeper than the parser's stack allows.
fn check_nesting(source: &str, syntax: SyntaxConfig) -> Result<(), RenderError> {
    let (mut in_tag, mut elifs) = (0, 0);
    for token in tokenize(source, false, syntax) {
        // The parser reports invalid tokens with their line.
        let Ok((token, span)) = token else {
            return Ok(());
        };
        let at = || format!("line {}", span.start_line);
        match token {
            Token::VariableStart | Token::BlockStart => in_tag = 0,
            Token::Ident("elif") => elifs += 1,
            _ => in_tag += 1,
        }
        if in_tag > MAX_TAG_TOKENS {
            return Err(RenderError::Limit {
                reason: format!(
                    "{}: an expression or statement has more than {MAX_TAG_TOKENS} tokens, the limit",
                    at()
                ),
            });
        }
        if elifs > MAX_ELIFS {
            return Err(RenderError::Limit {
                reason: format!("{}: it has more than {MAX_ELIFS} `elif`, the limit", at()),
            });
        }
    }
    Ok(())
}

/// Converts a minijinja error, described by its innermost cause.
fn describe(error: &Error) -> RenderError {
    let mut line = error.line();
    let mut cause = error;
    while let Some(inner) = std::error::Error::source(cause).and_then(|e| e.downcast_ref::<Error>())
    {
        cause = inner;
        line = inner.line().or(line);
    }
    let reason = match cause.detail() {
        Some(detail) if cause.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
        Some(detail) => format!("{}: {detail}", cause.kind()),
        None => cause.kind().to_string(),
    };
    match cause.kind() {
        ErrorKind::OutOfFuel => RenderError::Limit {
            reason: format!("{reason}: it runs more than {FUEL} instructions, the limit"),
        },
        _ => RenderError::Template { line, reason },
    }
}

/// A writer that fails beyond the output limit.
#[derive(Default)]
struct BoundedWriter {
    bytes: Vec<u8>,
    exceeded: bool,
}

impl Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            self.exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
