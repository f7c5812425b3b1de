//! `emberlm generate`: continues a text, shown as it is made.

use std::ops::ControlFlow;

use burn::tensor::Device;
use emberlm_generate::{GenerateOptions, SamplerConfig, generate};
use emberlm_kernels::TrainingBackend;
use emberlm_model::WeightFormat;
use emberlm_tokenizer::{DecodeStream, Tokenizer};
use serde::Serialize;

use crate::args::GenerateArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::model_source::{Model, needed};
use crate::output::{print, print_json};

/// Generates, and shows it as text, ids or JSON.
pub fn run(args: GenerateArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = Model::open(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let prompt = prompt(&args, &model, tokenizer.as_ref())?;
    let options = GenerateOptions {
        max_new_tokens: args.max_new_tokens,
        stop_tokens: model.stop_tokens(tokenizer.as_ref()),
        sampler: SamplerConfig {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            seed: args.seed,
        },
    };
    backend.run(Generate {
        model: &model,
        tokenizer: tokenizer.as_ref(),
        prompt,
        options,
        weights: args.weights,
        json: args.json,
    })?
}

/// What to continue: the ids given, the text given, or a document's beginning.
fn prompt(
    args: &GenerateArgs,
    model: &Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<Prompt, CliError> {
    let silent = |ids| Prompt {
        ids,
        echo: String::new(),
    };
    if let Some(tokens) = &args.tokens {
        return Ok(silent(tokens.clone()));
    }
    let tokenizer = needed(tokenizer, &args.model)?;
    let given = args.prompt.as_deref().filter(|text| !text.is_empty());
    let (text, ids) = match (given, model.beginning(tokenizer)) {
        (Some(text), _) => (text, tokenizer.encode_prompt(text)?),
        (None, Some(beginning)) => return Ok(silent(vec![beginning])),
        (None, None) => {
            let no_line_break = |_| {
                let message = "without a prompt a line break begins the text, which this model's tokenizer lacks";
                CliError::new(message).hint("give a prompt: --prompt TEXT")
            };
            let ids = tokenizer.encode("\n").map_err(no_line_break)?;
            if ids.is_empty() {
                let message = "without a prompt a line break begins the text, which is nothing to this tokenizer";
                return Err(CliError::new(message).hint("give a prompt: --prompt TEXT"));
            }
            ("\n", ids)
        }
    };
    let echo = text.to_owned();
    Ok(Prompt { ids, echo })
}

struct Prompt {
    ids: Vec<u32>,
    /// Shown before what is made.
    echo: String,
}

struct Generate<'a> {
    model: &'a Model,
    tokenizer: Option<&'a Tokenizer>,
    prompt: Prompt,
    options: GenerateOptions,
    weights: WeightFormat,
    json: bool,
}

impl Job for Generate<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self
            .model
            .for_inference::<B::InnerBackend>(self.weights, &device)?;
        let mut writer = Writer::new(self.tokenizer, &self.prompt.ids, self.json)?;
        if !self.json {
            print(&self.prompt.echo)?;
        }
        let mut written = Ok(());
        let made = generate(&decoder, &self.prompt.ids, &self.options, |id| {
            written = writer.write(id);
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        written?;
        writer.finish(made?.tokens)
    }
}

/// Shows tokens as they come, or gathers their text for JSON.
struct Writer {
    stream: Option<DecodeStream>,
    json: bool,
    /// The text so far, for JSON.
    text: String,
    count: usize,
}

/// `--json`'s output.
#[derive(Serialize)]
struct Made {
    tokens: Vec<u32>,
    text: Option<String>,
}

impl Writer {
    /// What is made stands after the prompt: some tokenizers drop the blank of a text's first token.
    fn new(tokenizer: Option<&Tokenizer>, prompt: &[u32], json: bool) -> Result<Self, CliError> {
        let mut stream = tokenizer.map(Tokenizer::stream);
        if let Some(stream) = &mut stream {
            let known = |id: &u32| tokenizer.is_some_and(|t| t.decode_bytes(&[*id]).is_ok());
            let ids: Vec<u32> = prompt.iter().copied().filter(known).collect();
            stream.skip(&ids)?;
        }
        Ok(Self {
            stream,
            json,
            text: String::new(),
            count: 0,
        })
    }

    fn write(&mut self, id: u32) -> Result<(), CliError> {
        let piece = match &mut self.stream {
            // A model may have more ids than its tokenizer: those stand for nothing.
            Some(stream) => stream.push(id).unwrap_or_else(|_| '\u{FFFD}'.to_string()),
            None if self.count == 0 => id.to_string(),
            None => format!(",{id}"),
        };
        self.count += 1;
        match self.json {
            true => self.text += &piece,
            false => print(&piece)?,
        }
        Ok(())
    }

    fn finish(self, tokens: Vec<u32>) -> Result<(), CliError> {
        let has_text = self.stream.is_some();
        let rest = self.stream.map(DecodeStream::finish).unwrap_or_default();
        if !self.json {
            return print(&(rest + "\n"));
        }
        let text = has_text.then(|| self.text + &rest);
        print_json(&Made { tokens, text })
    }
}
