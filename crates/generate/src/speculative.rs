//! Speculative decoding: a small model drafts a few tokens, and the large one reads them all in one pass.
//!
//! ```text
//! draft    … last ─► x₁ ─► x₂ ─► … ─► x_k          one cheap pass each, xᵢ drawn from qᵢ
//! target   last x₁ x₂ … x_k ─► p₁ p₂ … p_{k+1}     one pass, which reads the weights once for all of them
//! ```
//!
//! Draft tokens are verified in order: `xᵢ` is accepted with probability `min(1, pᵢ(xᵢ) / qᵢ(xᵢ))`. The first rejected
//! token is replaced by a draw from `max(0, pᵢ - qᵢ)`, and the tokens after it are discarded. If all are accepted, one
//! more token is drawn from `p_{k+1}`. The output has the target model's distribution for any draft model (Leviathan,
//! Kalman and Matias 2023, "Fast Inference from Transformers via Speculative Decoding", section 2.3); the draft model
//! only affects the speed. At temperature 0 the output equals plain generation token for token, except for near-ties,
//! because a matrix product of several rows rounds differently. Above 0 it is a different draw from the same
//! distribution, because the random numbers are used in a different order.
//!
//! `p` includes all sampling settings, penalties and constraints; `q` includes only temperature, top-k, top-p and
//! min-p.

use std::collections::VecDeque;

use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::config::AttentionKind;
use emberlm_model::kv_cache::ROLLBACK_TOKENS;
use emberlm_model::{KvCache, RequestedOutput, SequenceChunk, Transformer};

use crate::check::{check_prompt, check_stop_tokens};
use crate::chooser::{Chooser, Chosen};
use crate::distribution::Distribution;
use crate::error::{GenerateError, LogitsError, SettingError};
use crate::logits::floats;
use crate::plain::{Finish, GenerateOptions};
use crate::sampler::{Sampler, check_finite};

/// The acceptance statistics of the draft model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftAcceptance {
    /// Draft tokens that the target model verified.
    pub made: u64,
    /// Draft tokens that were accepted.
    pub taken: u64,
    /// Forward passes of the target model after the prompt's. Each returns one token more than it accepts.
    pub passes: u64,
}

impl DraftAcceptance {
    /// The acceptance rate, 0 to 1; `None` before the first draft token.
    pub fn rate(&self) -> Option<f64> {
        (self.made > 0).then(|| self.taken as f64 / self.made as f64)
    }
}

/// Speculative generation as an iterator over the new tokens. It ends after an error.
#[derive(Debug)]
pub struct Speculator<'a, B: Backend> {
    target: Reader<'a, B>,
    draft: Reader<'a, B>,
    ahead: usize,
    chooser: Chooser,
    /// Samples the draft tokens.
    guesser: Sampler,
    stop_tokens: Vec<u32>,
    left: usize,
    /// Tokens that are chosen but not yet returned.
    ready: VecDeque<Chosen>,
    chosen: Chosen,
    /// The reason for the end, reported after the tokens that are ready.
    end: Option<Result<Finish, GenerateError>>,
    finish: Option<Finish>,
    over: bool,
    guesses: DraftAcceptance,
}

impl<'a, B: Backend> Speculator<'a, B> {
    /// The maximum number of draft tokens per pass.
    pub const MOST_AHEAD: usize = ROLLBACK_TOKENS;

    /// Checks settings, models and prompt without computing anything. The draft model proposes `ahead` tokens before
    /// each pass.
    ///
    /// # Errors
    /// A setting is out of range, the prompt is empty, an id is outside the vocabulary, the models have different
    /// vocabularies, or one of them has linear attention, whose state cannot be rolled back by a token.
    pub fn new(
        target: &'a Transformer<B>,
        draft: &'a Transformer<B>,
        ahead: usize,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        let config = target.config();
        if !(1..=Self::MOST_AHEAD).contains(&ahead) {
            let rule = format!("must be between 1 and {}", Self::MOST_AHEAD);
            return Err(SettingError::new("draft_tokens", ahead, rule).into());
        }
        let vocab_size = draft.config().vocab_size();
        if vocab_size != config.vocab_size() {
            let rule = format!("the draft's must be the model's {}", config.vocab_size());
            return Err(SettingError::new("vocab_size", vocab_size, rule).into());
        }
        for (model, whose) in [(config, "the model"), (draft.config(), "the draft")] {
            if matches!(model.attention(), AttentionKind::Linear { .. }) {
                let rule = format!(
                    "{whose} must support removing tokens from the cache, as softmax attention does"
                );
                return Err(SettingError::new("attention", "linear", rule).into());
            }
        }
        let stream = options.sample as u64;
        let chooser = Chooser::new(&options.chooser, prompt, config.vocab_size(), stream)?;
        // A random stream that no sample uses.
        let guesser = Sampler::with_stream(options.chooser.sampler, u64::MAX - stream)?;
        check_stop_tokens(config, &options.stop_tokens)?;
        check_prompt(config, prompt)?;
        let most = prompt.len().saturating_add(options.max_new_tokens);
        Ok(Self {
            target: Reader::new(target, prompt, most),
            draft: Reader::new(draft, prompt, most),
            ahead,
            chooser,
            guesser,
            stop_tokens: options.stop_tokens.clone(),
            left: options.max_new_tokens,
            ready: VecDeque::new(),
            chosen: Chosen::default(),
            end: None,
            finish: None,
            over: false,
            guesses: DraftAcceptance::default(),
        })
    }

    /// The newest token with its log-probability, if requested; `None` before the first token.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The reason for the end; `None` before it.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The acceptance statistics of the draft model so far.
    pub fn guesses(&self) -> DraftAcceptance {
        self.guesses
    }

    /// Runs one pass of the target model, which adds at least one token or ends the generation.
    fn round(&mut self) -> Result<Option<Finish>, GenerateError> {
        if let Some(finish) = self.ended() {
            return Ok(Some(finish));
        }
        self.target.make_room(1);
        self.target.read_all_but_last();
        // A pass returns one token more than it accepts.
        let ahead = self.ahead.min(self.left - 1).min(self.target.room());
        let guesses = self.guess(ahead)?;
        let before = self.target.tokens.len();
        self.target
            .tokens
            .extend(guesses.iter().map(|guess| guess.0));
        let logits = self.target.read(RequestedOutput::All)?;
        self.guesses.passes += 1;
        self.guesses.made += guesses.len() as u64;

        let logits = floats(&logits);
        let (mut taken, mut other) = (0, None);
        let made = guesses.len();
        let mut guesses = guesses.into_iter();
        let width = self.target.decoder.config().vocab_size();
        for row in logits.chunks_exact(width) {
            let id = match self.decide(row, guesses.next())? {
                Decision::Taken(id) => {
                    taken += 1;
                    id
                }
                Decision::Other(id) => {
                    other = Some(id);
                    id
                }
            };
            let chosen = self.chooser.take(id, row)?;
            if self.stop_tokens.contains(&id) {
                self.guesses.taken += taken as u64;
                return Ok(Some(Finish::Stop(id)));
            }
            self.ready.push_back(chosen);
            self.left -= 1;
            if other.is_some() || self.ended().is_some() {
                break;
            }
        }
        self.guesses.taken += taken as u64;
        self.target.keep(before + taken);
        let draft = self.draft.tokens.len();
        self.draft.keep(draft - made + taken);
        self.target.tokens.extend(other);
        self.draft.tokens.extend(other);
        Ok(self.ended())
    }

    /// Returns the draft tokens, each with the distribution that it was sampled from.
    fn guess(&mut self, ahead: usize) -> Result<Vec<(u32, Distribution)>, GenerateError> {
        let mut guesses = Vec::with_capacity(ahead);
        if ahead == 0 {
            return Ok(guesses);
        }
        self.draft.make_room(ahead);
        for _ in 0..ahead.min(self.draft.room()) {
            let logits = self.draft.read(RequestedOutput::Last)?;
            let logits = floats(&logits);
            check_finite(&logits)?;
            let guess = self.guesser.distribution_among(&logits);
            let guess = guess.ok_or(LogitsError::Empty)?;
            let id = guess.draw(self.guesser.uniform());
            self.draft.tokens.push(id);
            guesses.push((id, guess));
        }
        Ok(guesses)
    }

    /// Chooses the token at the target's `logits`, with or without a draft token for this position.
    fn decide(
        &mut self,
        logits: &[f32],
        guess: Option<(u32, Distribution)>,
    ) -> Result<Decision, LogitsError> {
        let wanted = self.chooser.distribution(logits)?;
        let Some((id, guess)) = guess else {
            return Ok(Decision::Other(wanted.draw(self.chooser.uniform())));
        };
        // Strictly below, so that a draw of 0 does not accept a token of probability 0.
        if self.chooser.uniform() * guess.of(id) < wanted.of(id) {
            return Ok(Decision::Taken(id));
        }
        let rest = wanted.without(&guess);
        Ok(Decision::Other(rest.draw(self.chooser.uniform())))
    }

    fn ended(&self) -> Option<Finish> {
        match self.chooser.is_complete() {
            true => Some(Finish::Complete),
            false => (self.left == 0).then_some(Finish::Length),
        }
    }
}

/// The outcome for a draft token.
enum Decision {
    /// The draft token.
    Taken(u32),
    /// The target model's own choice.
    Other(u32),
}

impl<B: Backend> Iterator for Speculator<'_, B> {
    type Item = Result<u32, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(chosen) = self.ready.pop_front() {
                self.chosen = chosen;
                return Some(Ok(self.chosen.id));
            }
            match self.end.take() {
                Some(Ok(finish)) => {
                    self.finish = Some(finish);
                    self.over = true;
                }
                Some(Err(error)) => {
                    self.over = true;
                    return Some(Err(error));
                }
                None => {}
            }
            if self.over {
                return None;
            }
            // Tokens chosen before an error are returned first.
            self.end = self.round().transpose();
        }
    }
}

/// A model with its cache and its context.
#[derive(Debug)]
struct Reader<'a, B: Backend> {
    decoder: &'a Transformer<B>,
    cache: KvCache<B>,
    /// The tokens in the cache, then the tokens still to be read into it.
    tokens: Vec<u32>,
}

impl<'a, B: Backend> Reader<'a, B> {
    /// Creates the state for a text of at most `most` tokens that begins with `prompt`. A prompt longer than the
    /// context is truncated to its newest tokens.
    fn new(decoder: &'a Transformer<B>, prompt: &[u32], most: usize) -> Self {
        let config = decoder.config();
        let capacity = most.min(config.seq_len());
        let kept = prompt.len().saturating_sub(config.seq_len());
        Self {
            decoder,
            cache: decoder.cache(1, capacity),
            tokens: prompt[kept..].to_vec(),
        }
    }

    /// The number of tokens that still fit into the context.
    fn room(&self) -> usize {
        self.cache.capacity().saturating_sub(self.tokens.len())
    }

    /// Makes room for `more` tokens: if they do not fit after the current ones (the last of which is not yet in the
    /// cache), the newest half of the context is kept and read again.
    fn make_room(&mut self, more: usize) {
        let capacity = self.cache.capacity();
        if self.tokens.len() + more > capacity + 1 {
            let kept = (capacity / 2).max(1);
            self.tokens.drain(..self.tokens.len().saturating_sub(kept));
            self.cache.clear();
        }
    }

    /// Reads a prompt, or the kept half of a context, except for its last token, whose logits are needed.
    fn read_all_but_last(&mut self) {
        let last = self.tokens.len().saturating_sub(1);
        if self.cache.len() < last {
            self.pass(last, RequestedOutput::None);
        }
    }

    /// Reads the tokens that are not in the cache. Returns the logits, `[rows, vocab_size]`.
    fn read(&mut self, logits: RequestedOutput) -> Result<TensorData, LogitsError> {
        let all = self.tokens.len();
        self.pass(all, logits).ok_or(LogitsError::Empty)
    }

    fn pass(&mut self, end: usize, logits: RequestedOutput) -> Option<TensorData> {
        let chunk = SequenceChunk {
            tokens: &self.tokens[self.cache.len()..end],
            cache: &mut self.cache,
            output: logits,
            source: None,
            adapter: None,
        };
        let decoder = self.decoder;
        B::run_pass(chunk.tokens.len(), || {
            decoder.ragged(&mut [chunk]).logits.map(Tensor::into_data)
        })
    }

    /// Truncates to the first `len` tokens.
    fn keep(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.cache.truncate(len);
    }
}
