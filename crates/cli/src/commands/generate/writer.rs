//! Output of `emberlm generate`: streamed text, or JSON at the end.

use emberlm_generate::{Beam, Chosen, DraftAcceptance, Finish};
use emberlm_tokenizer::{StopStrings, TextStream, Tokenizer};
use serde::Serialize;

use crate::console;
use crate::error::CliError;
use crate::output::print;

/// Prints tokens as they are generated, or collects them for JSON.
pub struct Writer {
    /// `None` without a tokenizer. Token ids are printed instead.
    stream: Option<TextStream>,
    stopped: bool,
    json: bool,
    /// The text collected for JSON.
    text: String,
    tokens: Vec<u32>,
    /// `None` unless requested.
    logprobs: Option<Vec<LogProb>>,
}

/// The output of `--json`.
#[derive(Serialize)]
pub struct GenerationOutput {
    tokens: Vec<u32>,
    text: Option<String>,
    finish: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<LogProb>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft: Option<DraftStatistics>,
}

/// Acceptance statistics of the draft tokens.
#[derive(Serialize)]
struct DraftStatistics {
    guesses: u64,
    taken: u64,
    passes: u64,
}

impl From<DraftAcceptance> for DraftStatistics {
    fn from(guesses: DraftAcceptance) -> Self {
        Self {
            guesses: guesses.made,
            taken: guesses.taken,
            passes: guesses.passes,
        }
    }
}

/// A token's log-probability and the most probable alternatives.
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
    /// Creates a writer of the text after `prompt`. The prompt matters because some tokenizers drop the
    /// leading space of a text's first token.
    pub fn new(
        tokenizer: Option<&Tokenizer>,
        prompt: &[u32],
        stops: StopStrings,
        json: bool,
        logprobs: bool,
    ) -> Self {
        Self {
            stream: tokenizer.map(|tokenizer| TextStream::after(tokenizer, prompt, stops)),
            stopped: false,
            json,
            text: String::new(),
            tokens: Vec::new(),
            logprobs: logprobs.then(Vec::new),
        }
    }

    /// Writes a token, up to a stop string in its text.
    pub fn write(&mut self, chosen: &Chosen) -> Result<(), CliError> {
        let id = chosen.id;
        let shown = match &mut self.stream {
            Some(stream) => {
                let delta = stream.push(id);
                self.stopped = delta.stop.is_some();
                delta.visible
            }
            None if self.tokens.is_empty() => id.to_string(),
            None => format!(",{id}"),
        };
        self.tokens.push(id);
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.push(chosen.into());
        }
        self.show(&shown)
    }

    /// Writes the best of the sequences that a beam search found, and with `verbose` its score on stderr. Returns it for JSON.
    pub fn show_best(
        mut self,
        found: &[Beam],
        verbose: bool,
    ) -> Result<Option<GenerationOutput>, CliError> {
        let Some(best) = found.first() else {
            return Ok(None);
        };
        for &id in &best.tokens {
            self.write(&Chosen {
                id,
                ..Chosen::default()
            })?;
        }
        let output = self.finish(Some(best.finish), None)?;
        if verbose {
            console::note(format_args!("score: {:.4}", best.score));
        }
        Ok(output)
    }

    /// Returns true if a stop string was found. No more text is written then.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn show(&mut self, text: &str) -> Result<(), CliError> {
        match self.json {
            true => self.text += text,
            false => print(text)?,
        }
        Ok(())
    }

    /// Writes the remaining text and ends the output, or returns it for JSON. Reports the acceptance of draft tokens on
    /// stderr or in the JSON.
    pub fn finish(
        mut self,
        finish: Option<Finish>,
        guesses: Option<DraftAcceptance>,
    ) -> Result<Option<GenerationOutput>, CliError> {
        let has_text = self.stream.is_some();
        if let Some(stream) = self.stream.take() {
            let rest = stream.finish();
            self.stopped |= rest.stop.is_some();
            self.show(&rest.visible)?;
        }
        if !self.json {
            print("\n")?;
            if let Some((guesses, rate)) = guesses.and_then(|all| Some((all, all.rate()?))) {
                let DraftAcceptance {
                    made,
                    taken,
                    passes,
                } = guesses;
                let percent = (100.0 * rate).round();
                console::note(format_args!(
                    "{taken} of {made} draft tokens were accepted ({percent}%): {} tokens in {passes} passes",
                    self.tokens.len()
                ));
            }
            return Ok(None);
        }
        let by_length = !self.stopped && finish == Some(Finish::Length);
        Ok(Some(GenerationOutput {
            tokens: self.tokens,
            text: has_text.then_some(self.text),
            finish: if by_length { "length" } else { "stop" },
            logprobs: self.logprobs,
            draft: guesses.map(DraftStatistics::from),
        }))
    }
}
