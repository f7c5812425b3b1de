//! The main loop of a conversation: answers messages and runs commands until the input ends.

use std::path::PathBuf;

use emberlm_kernels::Backend;
use emberlm_serve::AnswerParser;
use emberlm_system::write::write_whole;
use emberlm_tokenizer::chat::ChatEncoder;
use emberlm_trainer::memory;
use indicatif::HumanCount;

use super::answer_content::AnswerContent;
use super::answer_display::{AnswerDisplay, ReasoningStyle, Segment};
use super::command::{Command, InputLine, help};
use super::conversation::Conversation;
use super::generator::{Answer, AnswerGenerator, End};
use super::input::{Input, MOST_MESSAGE, TerminalInput};
use super::interrupt::Interrupt;
use super::settings::Settings;
use crate::commands::generate::speed::Speed;
use crate::console;
use crate::error::{CliError, warn};
use crate::output::{Align, Table, print, print_dimmed, size};

/// A conversation in progress.
pub struct Session<'a, B: Backend> {
    generator: AnswerGenerator<'a, B>,
    encoder: &'a ChatEncoder,
    conversation: Conversation,
    settings: Settings,
    input: Input,
    interrupt: Interrupt,
    /// The last answer.
    last: Option<Answer>,
    /// Total time of all answers, including removed ones.
    total: Speed,
    /// True to print the speed of every answer.
    prints_stats: bool,
    /// Files written by this session. `/save` overwrites only these.
    saved: Vec<PathBuf>,
}

/// The reason that a question has no answer.
enum Failure {
    /// This question cannot be answered. Later ones may succeed.
    Question(CliError),
    /// The output cannot be written.
    Output(CliError),
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        Self::Question(error)
    }
}

impl<'a, B: Backend> Session<'a, B> {
    /// Starts an empty conversation and installs the Ctrl-C handler.
    pub fn new(
        generator: AnswerGenerator<'a, B>,
        encoder: &'a ChatEncoder,
        conversation: Conversation,
        settings: Settings,
        input: Input,
    ) -> Result<Self, CliError> {
        Ok(Self {
            interrupt: Interrupt::listen(input.is_terminal())?,
            generator,
            encoder,
            conversation,
            settings,
            input,
            last: None,
            total: Speed::default(),
            prints_stats: false,
            saved: Vec::new(),
        })
    }

    /// Prints the speed and the memory after every answer.
    pub fn with_stats(mut self, prints_stats: bool) -> Self {
        self.prints_stats = prints_stats;
        self
    }

    /// Runs the loop until the input ends.
    pub fn run(mut self) -> Result<(), CliError> {
        loop {
            let text = match self.input.read_message()? {
                TerminalInput::Text(text) => text,
                TerminalInput::Cancelled => continue,
                TerminalInput::TooLong => {
                    warn(&format!(
                        "a message may have at most {MOST_MESSAGE} bytes: this one is ignored"
                    ));
                    continue;
                }
                TerminalInput::End => return Ok(()),
            };
            match InputLine::read(&text) {
                Ok(InputLine::Blank) => {}
                Ok(InputLine::Message(text)) => self.ask(text)?,
                Ok(InputLine::Command(Command::Quit)) => return Ok(()),
                Ok(InputLine::Command(command)) => self.run_command(command)?,
                Err(what) => warn(&what),
            }
        }
    }

    /// Runs a command. Output goes to stdout. Confirmations are only printed in a terminal.
    fn run_command(&mut self, command: Command) -> Result<(), CliError> {
        match command {
            Command::Help => print(&help())?,
            Command::System(text) => {
                self.note(match text.is_empty() {
                    true => "restarted without a system message",
                    false => "restarted with this system message",
                });
                self.conversation = Conversation::new(Some(text));
                self.last = None;
            }
            Command::Reset => {
                self.conversation.reset();
                self.last = None;
                self.note("restarted");
            }
            Command::Undo => match self.conversation.undo() {
                Some(_) => self.note("removed"),
                None => warn("nothing to remove"),
            },
            Command::Retry => match self.conversation.undo() {
                Some(question) => self.ask(question)?,
                None => warn("nothing to answer again"),
            },
            Command::Set(text) => match self.settings.set(&text) {
                Ok(()) => self.note("set"),
                Err(what) => warn(&what),
            },
            Command::Show => print(&self.shown())?,
            Command::Stats => match self.stats() {
                Some(stats) => print(&stats)?,
                None => warn("nothing was answered yet"),
            },
            Command::Save(name) => match self.save(PathBuf::from(name)) {
                Ok(()) => self.note("saved"),
                Err(error) => report(&error),
            },
            // `run` handles it.
            Command::Quit => {}
        }
        Ok(())
    }

    /// Answers a question. If that fails, removes the question from the conversation.
    fn ask(&mut self, question: String) -> Result<(), CliError> {
        self.conversation.ask(question);
        match self.answer() {
            Ok(()) => Ok(()),
            Err(Failure::Output(error)) => Err(error),
            Err(Failure::Question(error)) => {
                self.conversation.undo();
                report(&error);
                Ok(())
            }
        }
    }

    fn answer(&mut self) -> Result<(), Failure> {
        let context = self.generator.context();
        let most = self.settings.max_new_tokens();
        // An answer may use all free context, but old messages are dropped for at most a quarter of the
        // context.
        let room = most.min(context / 4).max(1);
        let prompt = self.conversation.prompt(self.encoder, context, room)?;
        if prompt.begins_to_leave_out {
            warn(&format!(
                "the conversation has outgrown the context of {context} tokens: from now on its oldest messages are left out of sight"
            ));
        }
        let template = self.encoder.template();
        let parser = AnswerParser::for_prompt(template, self.generator.tokenizer, &prompt.ids);
        let chooser = self.settings.next(parser.before_constraint());
        let mut display = AnswerDisplay::new(parser, ReasoningStyle::of_stdout());
        let mut refused = None;
        let mut show = |text: &str| match print_all(display.push(text)) {
            Ok(()) => true,
            Err(error) => {
                refused = Some(error);
                false
            }
        };
        let generator = &mut self.generator;
        let answer = self.interrupt.during(|interrupted| {
            generator.answer(prompt.ids, most, chooser, interrupted, &mut show)
        });
        if let Some(error) = refused {
            return Err(Failure::Output(error));
        }
        let (rest, content) = display.finish();
        print_all(rest).map_err(Failure::Output)?;
        print("\n").map_err(Failure::Output)?;
        let answer = answer?;
        self.report_end(&answer, &content);
        self.conversation.answer(content);
        self.total.add(&answer.speed);
        if self.prints_stats {
            self.print_stats(&answer);
        }
        self.last = Some(answer);
        Ok(())
    }

    /// Prints why an answer ended if it is not complete.
    fn report_end(&self, answer: &Answer, content: &AnswerContent) {
        let made = answer.made;
        match answer.end {
            End::Interrupted => self.note("stopped by Ctrl-C: the generated part is kept"),
            End::Length if content.has_only_reasoning() => warn(&format!(
                "the answer ended within its reasoning, after {made} tokens: allow more with --max-new-tokens or /set max-new-tokens"
            )),
            End::Length => self.note(&format!("ended after {made} tokens")),
            End::Stop if content.has_only_reasoning() => {
                warn("the model ended its answer within the reasoning");
            }
            End::Stop => {}
        }
        if !content.calls.is_empty() {
            warn(
                "the model calls a function, but `chat` runs none: only `emberlm serve` passes functions to a model",
            );
        }
    }

    /// Formats the settings and the context usage.
    fn shown(&self) -> String {
        let mut table = Table::new([Align::Left, Align::Left]);
        for (name, value, origin) in self.settings.all() {
            table.row([name.to_owned(), format!("{value} ({origin})")]);
        }
        table.row(["context".to_owned(), self.used_context()]);
        table.row(["messages".to_owned(), count(self.conversation.len())]);
        if let Some(system) = self.conversation.system() {
            table.row(["system".to_owned(), format!("{system:?}")]);
        }
        if let Some(last) = &self.last {
            let summary = format!(
                "{} tokens, after {} of which {} were read before",
                count(last.made),
                count(last.prompt),
                HumanCount(last.reused)
            );
            table.row(["last answer".to_owned(), summary]);
        }
        table.render()
    }

    /// Formats the context's length, and the part that the conversation uses.
    fn used_context(&self) -> String {
        let context = self.generator.context();
        match self.conversation.tokens(self.encoder) {
            Ok(used) if used > context => format!(
                "{} of {} tokens: the oldest messages will be left out of sight",
                count(used),
                count(context)
            ),
            Ok(used) => format!("{} of {} tokens", count(used), count(context)),
            // The template may reject the current messages.
            Err(_) => format!("{} tokens", count(context)),
        }
    }

    /// Formats the speed of the last answer and of all answers, and the memory. Returns `None` before the first answer.
    fn stats(&self) -> Option<String> {
        let last = self.last.as_ref()?;
        let mut table = Table::new([Align::Left, Align::Left, Align::Left]);
        table.row(["", "prompt", "answer"]);
        for (name, speed) in [("last answer", &last.speed), ("all answers", &self.total)] {
            table.row([name.to_owned(), speed.of_prompt(), speed.of_tokens()]);
        }
        let mut used = Table::new([Align::Left, Align::Left]);
        used.row(["context".to_owned(), self.used_context()]);
        for (name, bytes) in self.memory() {
            used.row([name.to_owned(), size(bytes)]);
        }
        Some(table.render() + &used.render())
    }

    /// The bytes of the key-value cache, which is allocated for the whole context, and of the process at its peak, if the
    /// system reports it.
    fn memory(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let cache = self.generator.engine.cache_bytes() as u64;
        let peak = memory::peak().map(|bytes| ("peak memory", bytes));
        std::iter::once(("cache", cache)).chain(peak)
    }

    /// Prints the last answer's speed and the memory in one line on stderr.
    fn print_stats(&self, answer: &Answer) {
        let memory = self.memory();
        let memory: Vec<String> = memory
            .map(|(name, bytes)| format!("; {name}: {}", size(bytes)))
            .collect();
        console::note(format_args!(
            "(prompt: {}; answer: {}; context: {}{})",
            answer.speed.of_prompt(),
            answer.speed.of_tokens(),
            self.used_context(),
            memory.concat()
        ));
    }

    fn save(&mut self, path: PathBuf) -> Result<(), CliError> {
        if path.exists() && !self.saved.contains(&path) {
            let message = format!("{} is there already", path.display());
            return Err(CliError::new(message).hint("choose another name"));
        }
        if self.conversation.is_empty() {
            return Err(CliError::new("there is nothing to save"));
        }
        let text = self.conversation.json() + "\n";
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))?;
        self.saved.push(path);
        Ok(())
    }

    /// Prints a confirmation if the input is a terminal.
    fn note(&self, what: &str) {
        if self.input.is_terminal() {
            console::note(format_args!("({what})"));
        }
    }
}

fn print_all(segments: Vec<Segment>) -> Result<(), CliError> {
    segments.iter().try_for_each(|segment| match segment {
        Segment::Plain(text) => print(text),
        Segment::Dimmed(text) => print_dimmed(text),
    })
}

fn count(count: usize) -> String {
    HumanCount(count as u64).to_string()
}

/// Prints an error, and continues.
fn report(error: &CliError) {
    // The exit code is not used: the program continues.
    let _ = error.report();
}
