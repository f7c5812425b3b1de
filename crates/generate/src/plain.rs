//! Generation of a single sequence with a key-value cache: one forward pass over the prompt, then one
//! position per token.
//!
//! **End of the context.** A prompt longer than the model's `seq_len` is truncated to its last `seq_len`
//! tokens, and the result states the number of dropped tokens. When the cache is full, the window slides: the
//! last half of the context (`seq_len / 2` tokens, at least one) is processed again from position 0, and
//! generation continues. A slide costs one forward pass over half the context per half context generated.
//! Positions never exceed those of training.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{KvCache, Transformer};

use crate::check::{check_prompt, check_stop_tokens};
use crate::chooser::{Chooser, ChooserConfig, Chosen};
use crate::error::GenerateError;
use crate::logits::floats;

/// Options of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// The maximum number of new tokens.
    pub max_new_tokens: usize,
    /// Tokens that end generation. They are not part of the result.
    pub stop_tokens: Vec<u32>,
    /// The sampling settings, penalties and constraint.
    pub chooser: ChooserConfig,
    /// The index of this sample among those of the same prompt and seed. Each index uses its own random
    /// stream.
    pub sample: usize,
}

impl Default for GenerateOptions {
    /// Up to 256 tokens from the model's own distribution, without stop tokens.
    fn default() -> Self {
        Self {
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
            chooser: ChooserConfig::default(),
            sample: 0,
        }
    }
}

/// The reason that generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// `max_new_tokens` were generated.
    Length,
    /// This stop token was chosen.
    Stop(u32),
    /// The constraint is satisfied and allows no further token.
    Complete,
    /// The caller ended it.
    Caller,
}

/// The result of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The new tokens, without the prompt and the stop token.
    pub tokens: Vec<u32>,
    /// The reason that generation ended.
    pub finish: Finish,
    /// Tokens dropped from the beginning of the prompt because they exceed the context.
    pub truncated_prompt: usize,
    /// The number of times that the full context was cut to its last half.
    pub slides: usize,
}

/// Generates a continuation of `prompt`, passing each token to `on_token` immediately. Returning `Break` ends
/// generation; the token is still part of the result.
///
/// # Errors
/// A setting is out of range, the prompt is empty or has ids outside the vocabulary, or logits are not
/// finite.
pub fn generate<B: Backend>(
    decoder: &Transformer<B>,
    prompt: &[u32],
    options: &GenerateOptions,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    let mut generator = Generator::new(decoder, prompt, options)?;
    let mut tokens = Vec::new();
    let mut broken_off = false;
    while !broken_off && let Some(token) = generator.next().transpose()? {
        tokens.push(token);
        broken_off = on_token(token).is_break();
    }
    let finish = match generator.finish() {
        Some(finish) if !broken_off => finish,
        _ => Finish::Caller,
    };
    Ok(Generation {
        tokens,
        finish,
        truncated_prompt: generator.truncated_prompt(),
        slides: generator.slides(),
    })
}

/// An iterator over generated tokens. The forward pass for a token runs when the token is requested. The
/// iterator ends after an error.
///
/// ```
/// # use burn::backend::Flex;
/// # use emberlm_model::{TransformerConfig, families};
/// use emberlm_generate::{Finish, GenerateOptions, Generator, SamplerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
/// # (config.vocab_size, config.n_layers) = (Some(16), 1);
/// # let decoder = TransformerConfig::try_from(config)?.init::<Flex>(1, &Default::default());
/// let options = GenerateOptions {
///     max_new_tokens: 3,
///     chooser: SamplerConfig::greedy().into(),
///     ..GenerateOptions::default()
/// };
/// let mut generator = Generator::new(&decoder, &[1, 2], &options)?;
/// let tokens: Vec<u32> = generator.by_ref().collect::<Result<_, _>>()?;
/// assert_eq!(tokens.len(), 3);
/// assert_eq!(generator.finish(), Some(Finish::Length));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Generator<'a, B: Backend> {
    decoder: &'a Transformer<B>,
    chooser: Chooser,
    chosen: Chosen,
    stop_tokens: Vec<u32>,
    left: usize,
    cache: KvCache<B>,
    /// The last tokens, at most `seq_len`, which a slide processes again.
    context: VecDeque<u32>,
    /// The number of tokens at the end of `context` that are not in the cache yet.
    unseen: usize,
    finish: Option<Finish>,
    failed: bool,
    truncated_prompt: usize,
    slides: usize,
}

impl<'a, B: Backend> Generator<'a, B> {
    /// Checks the settings and the prompt without computing anything.
    ///
    /// # Errors
    /// A setting is out of range, or the prompt is empty or has ids outside the vocabulary.
    pub fn new(
        decoder: &'a Transformer<B>,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        let config = decoder.config();
        let stream = options.sample as u64;
        let chooser = Chooser::new(&options.chooser, prompt, config.vocab_size(), stream)?;
        check_stop_tokens(config, &options.stop_tokens)?;
        check_prompt(config, prompt)?;
        let truncated_prompt = prompt.len().saturating_sub(config.seq_len());
        let kept = &prompt[truncated_prompt..];
        let needed = kept.len().saturating_add(options.max_new_tokens);
        let capacity = needed.min(config.seq_len());
        Ok(Self {
            decoder,
            chooser,
            chosen: Chosen::default(),
            stop_tokens: options.stop_tokens.clone(),
            left: options.max_new_tokens,
            cache: decoder.cache(1, capacity),
            context: kept.iter().copied().collect(),
            unseen: kept.len(),
            finish: None,
            failed: false,
            truncated_prompt,
            slides: 0,
        })
    }

    /// The reason that generation ended. `None` while it continues.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The newest token, with log-probabilities if they were requested. A default value before the first
    /// token.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Tokens dropped from the beginning of the prompt because they exceed the context.
    pub fn truncated_prompt(&self) -> usize {
        self.truncated_prompt
    }

    /// The number of times that the full context was cut to its last half.
    pub fn slides(&self) -> usize {
        self.slides
    }

    fn step(&mut self) -> Result<u32, GenerateError> {
        if self.cache.len() + self.unseen > self.decoder.config().seq_len() {
            self.slide();
        }
        let start = self.context.len() - self.unseen;
        let ids: Vec<i64> = self
            .context
            .range(start..)
            .map(|&id| i64::from(id))
            .collect();
        let shape = [1, ids.len()];
        let device = self.decoder.device();
        let tokens = Tensor::<B, 2, Int>::from_data(TensorData::new(ids, shape), &device); // [1, unseen]
        let rows = std::mem::take(&mut self.unseen);
        let (decoder, cache) = (self.decoder, &mut self.cache);
        // [1, vocab_size]
        let logits = B::run_pass(rows, || decoder.next_logits(tokens, cache).into_data());
        self.chosen = self.chooser.choose(&floats(&logits))?;
        Ok(self.chosen.id)
    }

    /// Cuts the context to its last half, which has to be processed again.
    fn slide(&mut self) {
        let kept = (self.decoder.config().seq_len() / 2).max(1);
        self.context
            .drain(..self.context.len().saturating_sub(kept));
        self.cache.clear();
        self.unseen = self.context.len();
        self.slides += 1;
    }

    fn accept(&mut self, token: u32) {
        self.context.push_back(token);
        self.unseen += 1;
        self.left -= 1;
    }
}

impl<B: Backend> Iterator for Generator<'_, B> {
    type Item = Result<u32, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.finish.is_some() {
            return None;
        }
        if self.chooser.is_complete() {
            self.finish = Some(Finish::Complete);
            return None;
        }
        if self.left == 0 {
            self.finish = Some(Finish::Length);
            return None;
        }
        match self.step() {
            Ok(token) if self.stop_tokens.contains(&token) => {
                self.finish = Some(Finish::Stop(token));
                None
            }
            Ok(token) => {
                self.accept(token);
                Some(Ok(token))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}
