//! One generation: a pass over the prompt, then one position per token, over a key-value cache.
//!
//! **The context's end.** A prompt longer than the model's `seq_len` keeps its newest `seq_len` tokens, and the result
//! says how many were left out. When the cache is full, it slides: the newest half of the context (`seq_len / 2`
//! tokens, at least one) is read again from position 0, and generation continues. A slide costs one pass over half the
//! context every half context; positions stay within what the model was trained on.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{Decoder, KvCache};

use crate::check::{check_prompt, check_stop_tokens};
use crate::chooser::{Chooser, ChooserConfig, Chosen};
use crate::error::GenerateError;
use crate::logits::floats;

/// The options of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// At most so many tokens.
    pub max_new_tokens: usize,
    /// Ends when one of these is chosen; it is not among the result's tokens.
    pub stop_tokens: Vec<u32>,
    /// The choice of tokens.
    pub chooser: ChooserConfig,
    /// The number of this sample among those of one prompt and seed: each draws from its own stream.
    pub sample: usize,
}

impl Default for GenerateOptions {
    /// 256 tokens of the model's own distribution, without stop tokens.
    fn default() -> Self {
        Self {
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
            chooser: ChooserConfig::default(),
            sample: 0,
        }
    }
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// `max_new_tokens` were made.
    Length,
    /// This stop token was chosen.
    Stop(u32),
    /// The constraint is met, and nothing may follow.
    Complete,
    /// The caller broke off.
    Caller,
}

/// The outcome of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The new tokens, without the prompt and without the stop token.
    pub tokens: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Tokens at the prompt's beginning that the context had no room for.
    pub truncated_prompt: usize,
    /// The number of times that the context was full and continued from its newest half.
    pub slides: usize,
}

/// Generates after `prompt`, giving each token to `on_token` as it is made; `Break` from it ends generation, that token
/// counted.
///
/// # Errors
/// A setting out of its range, an empty prompt, an id outside of the vocabulary, logits that are not finite.
pub fn generate<B: Backend>(
    decoder: &Decoder<B>,
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

/// Generation as an iterator over the new tokens; the work for a token is done when it is asked for. After an error
/// it has ended.
#[derive(Debug)]
pub struct Generator<'a, B: Backend> {
    decoder: &'a Decoder<B>,
    chooser: Chooser,
    chosen: Chosen,
    stop_tokens: Vec<u32>,
    left: usize,
    cache: KvCache<B>,
    /// The newest tokens, at most `seq_len`: what a slide reads again.
    context: VecDeque<u32>,
    /// The number of tokens at the context's end that the cache has not seen.
    unseen: usize,
    finish: Option<Finish>,
    failed: bool,
    truncated_prompt: usize,
    slides: usize,
}

impl<'a, B: Backend> Generator<'a, B> {
    /// Checks settings and prompt; nothing is computed yet.
    ///
    /// # Errors
    /// A setting out of its range, an empty prompt, an id outside of the vocabulary.
    pub fn new(
        decoder: &'a Decoder<B>,
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
            cache: KvCache::new(config, 1, capacity, &decoder.device()),
            context: kept.iter().copied().collect(),
            unseen: kept.len(),
            finish: None,
            failed: false,
            truncated_prompt,
            slides: 0,
        })
    }

    /// Why it ended; none before it has.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The newest token with its log-probability, where that was asked for; nothing yet before the first.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Tokens at the prompt's beginning that the context had no room for.
    pub fn truncated_prompt(&self) -> usize {
        self.truncated_prompt
    }

    /// The number of times that the context was full and continued from its newest half.
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
        self.unseen = 0;
        let (decoder, cache) = (self.decoder, &mut self.cache);
        // [1, vocab_size]
        let logits = B::run(|| decoder.next_logits(tokens, cache).into_data());
        self.chosen = self.chooser.choose(&floats(&logits))?;
        Ok(self.chosen.id)
    }

    /// Forgets all but the newest half of the context, which is then read again.
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
