//! Generation of a single sequence with a key-value cache: one forward pass over the prompt, then one
//! position per token, or several with a draft model.
//!
//! **End of the context.** A prompt longer than the model's `seq_len` is truncated to its last `seq_len`
//! tokens, and the result states the number of dropped tokens. When the cache is full, the window slides: the
//! last half of the context (`seq_len / 2` tokens, at least one) is processed again from position 0, and
//! generation continues. A slide costs one forward pass over half the context per half context generated.
//! Positions never exceed those of training.
//!
//! **Encoder–decoders.** The prompt is a source, which the encoder reads first, and the generated sequence is its target,
//! after the start token. Penalties count the target only. Neither is truncated.
//!
//! **Draft models.** A small model drafts a few tokens, and the large one reads them all in one pass.
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

mod draft;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::slice;

use emberlm_kernels::Backend;
use emberlm_model::kv_cache::ROLLBACK_TOKENS;
use emberlm_model::{RequestedOutput, Transformer};

use crate::check::check_stop_tokens;
use crate::chooser::{Chooser, ChooserConfig, Chosen};
use crate::error::{GenerateError, SettingError};
use crate::logits::floats;
use crate::sequence::Sequence;
pub use draft::DraftAcceptance;
pub(crate) use draft::check_draft;
use draft::{Draft, decide};

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

/// Generates a continuation of `prompt` (with an encoder–decoder, the target of this source), passing each token to `on_token` immediately. Returning `Break` ends
/// generation; the token is still part of the result.
///
/// # Errors
/// A setting is out of range, the prompt is empty or has ids outside the vocabulary, or logits are not
/// finite.
pub fn generate<B: Backend>(
    model: &Transformer<B>,
    prompt: &[u32],
    options: &GenerateOptions,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    let mut generator = Generator::new(model, prompt, options)?;
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
    model: &'a Transformer<B>,
    sequence: Sequence<B>,
    draft: Option<Draft<'a, B>>,
    chooser: Chooser,
    stop_tokens: Vec<u32>,
    left: usize,
    /// Tokens that are chosen but not yet returned.
    ready: VecDeque<Chosen>,
    chosen: Chosen,
    /// The reason for the end, reported after the tokens that are ready.
    end: Option<Result<Finish, GenerateError>>,
    finish: Option<Finish>,
    over: bool,
    truncated_prompt: usize,
    slides: usize,
}

impl<'a, B: Backend> Generator<'a, B> {
    /// The maximum number of draft tokens per pass.
    pub const MOST_AHEAD: usize = ROLLBACK_TOKENS;

    /// Checks the settings and the prompt without computing anything; only an encoder–decoder's source is encoded.
    ///
    /// # Errors
    /// A setting is out of range, or the prompt is empty or has ids outside the vocabulary.
    pub fn new(
        model: &'a Transformer<B>,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        let vocab_size = model.config().vocab_size();
        let start = model.config().start_token();
        // Of a target, penalties do not count the source.
        let counted = start.as_ref().map_or(prompt, slice::from_ref);
        let stream = options.sample as u64;
        let chooser = Chooser::new(&options.chooser, counted, vocab_size, stream)?;
        check_stop_tokens(vocab_size, &options.stop_tokens)?;
        let sequence = Sequence::begin(model, prompt, options.max_new_tokens)?;
        Ok(Self {
            truncated_prompt: counted.len() - sequence.tokens.len(),
            model,
            sequence,
            draft: None,
            chooser,
            stop_tokens: options.stop_tokens.clone(),
            left: options.max_new_tokens,
            ready: VecDeque::new(),
            chosen: Chosen::default(),
            end: None,
            finish: None,
            over: false,
            slides: 0,
        })
    }

    /// Adds a draft model, which proposes `ahead` tokens before each pass. Otherwise as [`Generator::new`].
    ///
    /// # Errors
    /// Those of [`Generator::new`], the models have different vocabularies, or one of them has linear attention, whose
    /// state cannot be rolled back by a token.
    pub fn with_draft(
        model: &'a Transformer<B>,
        draft: &'a Transformer<B>,
        ahead: usize,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        if !(1..=Self::MOST_AHEAD).contains(&ahead) {
            let rule = format!("must be between 1 and {}", Self::MOST_AHEAD);
            return Err(SettingError::new("draft_tokens", ahead, rule).into());
        }
        check_draft(model.config(), draft.config())?;
        let generator = Self::new(model, prompt, options)?;
        Ok(Self {
            draft: Some(Draft::new(draft, ahead, prompt, options)?),
            ..generator
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

    /// The acceptance statistics of the draft model so far; `None` without a draft model.
    pub fn acceptance(&self) -> Option<DraftAcceptance> {
        self.draft.as_ref().map(|draft| draft.acceptance)
    }

    /// Runs one pass of the model, which adds at least one token or ends the generation.
    fn round(&mut self) -> Result<Option<Finish>, GenerateError> {
        if let Some(finish) = self.ended() {
            return Ok(Some(finish));
        }
        self.slides += usize::from(self.sequence.make_room(1));
        if let Some(mut draft) = self.draft.take() {
            let end = self.draft_round(&mut draft);
            self.draft = Some(draft);
            return end;
        }
        let logits = self.sequence.read(self.model, RequestedOutput::Last)?;
        let chosen = self.chooser.choose(&floats(&logits))?;
        self.sequence.tokens.push(chosen.id);
        Ok(self.accept(chosen))
    }

    /// Runs one pass over the tokens that the draft model proposes.
    fn draft_round(&mut self, draft: &mut Draft<'_, B>) -> Result<Option<Finish>, GenerateError> {
        self.sequence.read_all_but_last(self.model);
        // A pass returns one token more than it accepts.
        let most = (self.left - 1).min(self.sequence.room());
        let proposed = draft.propose(most)?;
        let before = self.sequence.tokens.len();
        let ids = proposed.iter().map(|(id, _)| *id);
        self.sequence.tokens.extend(ids);
        let logits = self.sequence.read(self.model, RequestedOutput::All)?;
        draft.acceptance.passes += 1;
        draft.acceptance.made += proposed.len() as u64;

        let made = proposed.len();
        let mut proposed = proposed.into_iter();
        let (mut taken, mut other, mut end) = (0, None, None);
        let logits = floats(&logits);
        for row in logits.chunks_exact(self.model.config().vocab_size()) {
            let (id, accepted) = decide(&mut self.chooser, row, proposed.next())?;
            match accepted {
                true => taken += 1,
                false => other = Some(id),
            }
            let chosen = self.chooser.take(id, row)?;
            end = self.accept(chosen);
            if other.is_some() || end.is_some() {
                break;
            }
        }
        draft.acceptance.taken += taken as u64;
        self.sequence.keep(before + taken);
        self.sequence.tokens.extend(other);
        draft.follow(made - taken, other);
        Ok(end)
    }

    /// Adds a chosen token to those that are ready. Returns the reason for the end if it is the last one.
    fn accept(&mut self, chosen: Chosen) -> Option<Finish> {
        if self.stop_tokens.contains(&chosen.id) {
            return Some(Finish::Stop(chosen.id));
        }
        self.ready.push_back(chosen);
        self.left -= 1;
        self.ended()
    }

    fn ended(&self) -> Option<Finish> {
        match self.chooser.is_complete() {
            true => Some(Finish::Complete),
            false => (self.left == 0).then_some(Finish::Length),
        }
    }
}

impl<B: Backend> Iterator for Generator<'_, B> {
    type Item = Result<u32, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(chosen) = self.ready.pop_front() {
                self.chosen = chosen;
                return Some(Ok(self.chosen.id));
            }
            if self.over {
                return None;
            }
            match self.end.take() {
                // Tokens chosen before an error are returned first.
                None => self.end = self.round().transpose(),
                Some(end) => {
                    self.over = true;
                    self.finish = end.as_ref().ok().copied();
                    return end.err().map(Err);
                }
            }
        }
    }
}
