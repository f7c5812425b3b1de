//! Chooses one token from a model's logits.
//!
//! The order is that of Hugging Face's transformers: logits are divided by the temperature, all but the `top_k` largest
//! are dropped, of the probabilities of the rest only the smallest set of the likeliest that reaches `top_p` is kept, and
//! of that only what is at least `min_p` times as likely as the likeliest; one of those is drawn. (vLLM takes `min_p`
//! first, which keeps fewer where `top_p` is below 1.)

use std::cmp::Ordering;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::distribution::Distribution;
use crate::error::{LogitsError, SettingError};
use crate::ranges::{MIN_P, TEMPERATURE, TOP_P};

/// The settings of a sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Divides the logits: below 1 sharpens, above 1 flattens; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Only the fewest of the likeliest tokens whose probabilities reach this sum are drawn from; 1 for all.
    pub top_p: f64,
    /// Only tokens at least so many times as likely as the likeliest are drawn from; 0 for all.
    pub min_p: f64,
    /// The same seed draws the same tokens from the same logits.
    pub seed: u64,
}

impl Default for SamplerConfig {
    /// Draws from the model's own distribution, with seed 0.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

impl SamplerConfig {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        TEMPERATURE.check(self.temperature)?;
        TOP_P.check(self.top_p)?;
        MIN_P.check(self.min_p)
    }
}

/// A token that may be drawn.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    /// `exp((logit - largest) / temperature)`: its probability but for a common factor.
    weight: f64,
}

/// Draws tokens; carries its random state from one to the next.
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplerConfig,
    rng: ChaCha8Rng,
    /// Kept between calls for its memory.
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler at the start of its seed's stream 0.
    ///
    /// # Errors
    /// A setting is out of its range or NaN.
    pub fn new(config: SamplerConfig) -> Result<Self, SettingError> {
        Self::with_stream(config, 0)
    }

    /// A sampler at the start of one of its seed's streams, which are independent of each other: of several samples from
    /// one prompt, number `n` draws from stream `n`, whatever the others do.
    ///
    /// # Errors
    /// As [`Sampler::new`].
    pub fn with_stream(config: SamplerConfig, stream: u64) -> Result<Self, SettingError> {
        config.check()?;
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        rng.set_stream(stream);
        Ok(Self {
            config,
            rng,
            candidates: Vec::new(),
        })
    }

    /// The settings.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// Chooses from `logits` `[vocab_size]`. Among equal logits the lower id counts as the likelier.
    ///
    /// # Errors
    /// No logits, or one that is not finite.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, LogitsError> {
        check_finite(logits)?;
        self.sample_among(logits).ok_or(LogitsError::Empty)
    }

    /// As [`Sampler::sample`], but only among the tokens whose logits are above minus infinity; none where there are none.
    /// No logit may be NaN or plus infinity.
    pub(crate) fn sample_among(&mut self, logits: &[f32]) -> Option<u32> {
        let greatest = greatest(logits)?;
        if self.is_greedy() {
            return Some(greatest.id);
        }
        self.keep(logits, &greatest);
        Some(self.draw(greatest.id))
    }

    /// The distribution that [`Sampler::sample_among`] would draw from; nothing is drawn.
    pub(crate) fn distribution_among(&mut self, logits: &[f32]) -> Option<Distribution> {
        let greatest = greatest(logits)?;
        if self.is_greedy() {
            return Some(Distribution::certain(greatest.id));
        }
        self.keep(logits, &greatest);
        let weights = self.candidates.iter();
        let weights = weights.map(|candidate| (candidate.id, candidate.weight));
        Some(Distribution::of_weights(weights.collect(), greatest.id))
    }

    /// A number that is drawn evenly from 0 up to, and without, 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.rng.random()
    }

    fn is_greedy(&self) -> bool {
        self.config.temperature == 0.0 || self.config.top_k == 1
    }

    /// Makes the tokens that may be drawn the candidates.
    fn keep(&mut self, logits: &[f32], greatest: &Greatest) {
        self.candidates.clear();
        let temperature = self.config.temperature;
        let candidate = |(id, &logit): (usize, &f32)| Candidate {
            id: id as u32,
            logit,
            weight: (f64::from(logit - greatest.logit) / temperature).exp(),
        };
        let among = logits.iter().enumerate();
        let among = among.filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        self.candidates.extend(among.map(candidate));
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
    }

    fn keep_top_k(&mut self) {
        let k = self.config.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, likelier);
            self.candidates.truncate(k);
        }
    }

    fn keep_top_p(&mut self) {
        if self.config.top_p >= 1.0 {
            return;
        }
        self.candidates.sort_unstable_by(likelier);
        let wanted = self.config.top_p * self.total();
        let mut sum = 0.0;
        let reached = self.candidates.iter().position(|candidate| {
            sum += candidate.weight;
            sum >= wanted
        });
        if let Some(last) = reached {
            self.candidates.truncate(last + 1);
        }
    }

    /// The likeliest's weight is 1, so that a weight is how many times as likely as the likeliest a token is.
    fn keep_min_p(&mut self) {
        let min_p = self.config.min_p;
        if min_p > 0.0 {
            self.candidates
                .retain(|candidate| candidate.weight >= min_p);
        }
    }

    /// One of the candidates; `fallback` where rounding leaves none.
    fn draw(&mut self, fallback: u32) -> u32 {
        let mut left = self.rng.random::<f64>() * self.total();
        for candidate in &self.candidates {
            left -= candidate.weight;
            if left < 0.0 {
                return candidate.id;
            }
        }
        fallback
    }

    fn total(&self) -> f64 {
        self.candidates
            .iter()
            .map(|candidate| candidate.weight)
            .sum()
    }
}

/// Likelier first, the lower id first among equals: a total order, so that what is kept is no accident.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

struct Greatest {
    id: u32,
    logit: f32,
}

/// Returns true if every logit is a finite number, in a pass that the compiler makes SIMD of: a vocabulary is long.
pub(crate) fn check_finite(logits: &[f32]) -> Result<(), LogitsError> {
    let finite = logits.iter().fold(true, |all, x| all & x.is_finite());
    if !finite && let Some(id) = logits.iter().position(|x| !x.is_finite()) {
        let value = logits[id].to_string();
        return Err(LogitsError::NotFinite { id, value });
    }
    Ok(())
}

/// The largest logit, and the first token that has it; none where there is none above minus infinity.
fn greatest(logits: &[f32]) -> Option<Greatest> {
    const LANES: usize = 16;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *x);
        }
    }
    let logit = lanes.iter().chain(rest).copied();
    let logit = logit.fold(f32::NEG_INFINITY, larger);
    let id = logits.iter().position(|x| *x == logit);
    let id = id.filter(|_| logit > f32::NEG_INFINITY)? as u32;
    Some(Greatest { id, logit })
}
