//! What `emberlm generate` shows of tokens: text as it becomes complete, or JSON at the end.

use emberlm_generate::{Chosen, Finish, Guesses, StopStrings};
use emberlm_tokenizer::{DecodeStream, Tokenizer};
use serde::Serialize;

use crate::error::CliError;
use crate::output::{print, print_json};

/// Shows tokens as they come, or gathers their text for JSON.
pub struct Writer {
    stream: Option<DecodeStream>,
    stops: StopStrings,
    stopped: bool,
    json: bool,
    /// The text so far, for JSON.
    text: String,
    tokens: Vec<u32>,
    /// None where they were not asked for.
    logprobs: Option<Vec<LogProb>>,
}

/// `--json`'s output.
#[derive(Serialize)]
struct Made {
    tokens: Vec<u32>,
    text: Option<String>,
    finish: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<LogProb>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft: Option<Guessed>,
}

/// What became of a draft's guesses.
#[derive(Serialize)]
struct Guessed {
    guesses: u64,
    taken: u64,
    passes: u64,
}

impl From<Guesses> for Guessed {
    fn from(guesses: Guesses) -> Self {
        Self {
            guesses: guesses.made,
            taken: guesses.taken,
            passes: guesses.passes,
        }
    }
}

/// A token's log-probability, and those of the likeliest in its place.
#[derive(Serialize)]
struct LogProb {
    id: u32,
    logprob: Option<f32>,
    alternatives: Vec<Alternative>,
}

#[derive(Serialize)]
struct Alternative {
    id: u32,
    logprob: f32,
}

impl From<&Chosen> for LogProb {
    fn from(chosen: &Chosen) -> Self {
        let alternatives = chosen.alternatives.iter();
        Self {
            id: chosen.id,
            logprob: chosen.logprob,
            alternatives: alternatives
                .map(|&(id, logprob)| Alternative { id, logprob })
                .collect(),
        }
    }
}

impl Writer {
    /// What is made stands after the prompt: some tokenizers drop the blank of a text's first token.
    pub fn new(
        tokenizer: Option<&Tokenizer>,
        prompt: &[u32],
        stops: StopStrings,
        json: bool,
        logprobs: bool,
    ) -> Result<Self, CliError> {
        let mut stream = tokenizer.map(Tokenizer::stream);
        if let Some(stream) = &mut stream {
            let known = |id: &u32| tokenizer.is_some_and(|t| t.decode_bytes(&[*id]).is_ok());
            let ids: Vec<u32> = prompt.iter().copied().filter(known).collect();
            stream.skip(&ids)?;
        }
        Ok(Self {
            stream,
            stops,
            stopped: false,
            json,
            text: String::new(),
            tokens: Vec::new(),
            logprobs: logprobs.then(Vec::new),
        })
    }

    /// Shows a token, or what of its text comes before a stop string.
    pub fn write(&mut self, chosen: &Chosen) -> Result<(), CliError> {
        let id = chosen.id;
        let piece = match &mut self.stream {
            // A model may have more ids than its tokenizer: those stand for nothing.
            Some(stream) => stream.push(id).unwrap_or_else(|_| '\u{FFFD}'.to_string()),
            None if self.tokens.is_empty() => id.to_string(),
            None => format!(",{id}"),
        };
        self.tokens.push(id);
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.push(chosen.into());
        }
        self.show(&piece)
    }

    /// Whether a stop string has come: nothing is shown any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn show(&mut self, piece: &str) -> Result<(), CliError> {
        let passed = self.stops.push(piece.as_bytes());
        self.stopped = passed.stopped.is_some();
        self.show_bytes(&passed.bytes)
    }

    /// Pieces and stop strings are whole characters, and so is what of them is held back and what is not.
    fn show_bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let text = String::from_utf8_lossy(bytes);
        match self.json {
            true => self.text += &text,
            false => print(&text)?,
        }
        Ok(())
    }

    /// Shows what was held back, and ends the output; of a draft's guesses it tells on stderr, or in JSON.
    pub fn finish(
        mut self,
        finish: Option<Finish>,
        guesses: Option<Guesses>,
    ) -> Result<(), CliError> {
        let has_text = self.stream.is_some();
        let rest = self.stream.take().map(DecodeStream::finish);
        self.show(&rest.unwrap_or_default())?;
        let stops = std::mem::take(&mut self.stops);
        self.show_bytes(&stops.finish())?;
        if !self.json {
            print("\n")?;
            if let Some((guesses, rate)) = guesses.and_then(|all| Some((all, all.rate()?))) {
                let Guesses {
                    made,
                    taken,
                    passes,
                } = guesses;
                let percent = (100.0 * rate).round();
                eprintln!(
                    "{taken} of the draft's {made} guesses were taken ({percent}%): {} tokens in {passes} passes",
                    self.tokens.len()
                );
            }
            return Ok(());
        }
        let by_length = !self.stopped && finish == Some(Finish::Length);
        print_json(&Made {
            tokens: self.tokens,
            text: has_text.then_some(self.text),
            finish: if by_length { "length" } else { "stop" },
            logprobs: self.logprobs,
            draft: guesses.map(Guessed::from),
        })
    }
}
