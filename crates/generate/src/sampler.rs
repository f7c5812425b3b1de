//! Chooses one token from a model's logits.
//!
//! The steps have the order of `transformers`: divide the logits by the temperature; keep the `top_k` largest; keep the
//! smallest set of the most probable tokens whose probabilities sum to `top_p`; keep the tokens at least `min_p` times
//! as probable as the most probable one; draw one of them. (vLLM applies `min_p` first, which keeps fewer tokens if
//! `top_p` is below 1.)

use std::cmp::Ordering;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::distribution::Distribution;
use crate::error::{LogitsError, SettingError};
use crate::ranges::NumberRange;

/// The range of [`SamplerConfig::temperature`].
pub(crate) const TEMPERATURE: NumberRange = NumberRange::at_least(0.0);
/// The range of [`SamplerConfig::top_p`].
pub(crate) const TOP_P: NumberRange = NumberRange::above(0.0).to(1.0);
/// The range of [`SamplerConfig::min_p`].
pub(crate) const MIN_P: NumberRange = NumberRange::at_least(0.0).to(1.0);

/// The settings of a sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Divides the logits. Values below 1 sharpen the distribution, values above 1 flatten it; 0 always chooses the
    /// most probable token.
    pub temperature: f64,
    /// Number of most probable tokens to sample from; 0 for all.
    pub top_k: usize,
    /// Samples from the smallest set of most probable tokens whose probabilities reach this sum; 1 for all.
    pub top_p: f64,
    /// Minimum probability of a token relative to the most probable one; 0 for all.
    pub min_p: f64,
    /// Random seed. The same seed samples the same tokens from the same logits.
    pub seed: u64,
}

impl Default for SamplerConfig {
    /// Samples from the model's own distribution, with seed 0.
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
    /// Greedy decoding: always the most probable token.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        TEMPERATURE.check("temperature", self.temperature)?;
        TOP_P.check("top_p", self.top_p)?;
        MIN_P.check("min_p", self.min_p)
    }
}

/// A token that may be drawn.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    /// `exp((logit - largest) / temperature)`: the unnormalized probability.
    weight: f64,
}

/// Samples tokens with a random state.
///
/// ```
/// use emberlm_generate::{Sampler, SamplerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = SamplerConfig {
///     temperature: 0.7,
///     top_k: 2,
///     ..SamplerConfig::default()
/// };
/// let mut sampler = Sampler::new(config)?;
/// // One of the two most probable tokens.
/// assert!([1, 2].contains(&sampler.sample(&[0.0, 3.0, 2.5])?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplerConfig,
    rng: ChaCha8Rng,
    /// Reused between calls to avoid allocations.
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

    /// A sampler at the start of one of the seed's independent random streams. Of several samples from one prompt,
    /// sample `n` uses stream `n`.
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

    /// Chooses from `logits` `[vocab_size]`. Of equal logits the lower id ranks first.
    ///
    /// # Errors
    /// The logits are empty or not finite.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, LogitsError> {
        check_finite(logits)?;
        self.sample_among(logits).ok_or(LogitsError::Empty)
    }

    /// As [`Sampler::sample`], among the tokens whose logits are above minus infinity; `None` if there are none. No
    /// logit may be NaN or plus infinity.
    pub(crate) fn sample_among(&mut self, logits: &[f32]) -> Option<u32> {
        let greatest = greatest(logits)?;
        if self.is_greedy() {
            return Some(greatest.id);
        }
        self.keep(logits, &greatest);
        Some(self.draw(greatest.id))
    }

    /// The distribution that [`Sampler::sample_among`] samples from. Does not sample.
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

    /// A uniform random number in `[0, 1)`.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.rng.random()
    }

    fn is_greedy(&self) -> bool {
        self.config.temperature == 0.0 || self.config.top_k == 1
    }

    /// Collects the tokens that may be sampled.
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

    /// The most probable token has weight 1, so a weight is the probability relative to it.
    fn keep_min_p(&mut self) {
        let min_p = self.config.min_p;
        if min_p > 0.0 {
            self.candidates
                .retain(|candidate| candidate.weight >= min_p);
        }
    }

    /// Samples one of the candidates. Returns `fallback` if rounding leaves none.
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

/// Orders by falling probability, then by id: a total order, so the kept set is deterministic.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

struct Greatest {
    id: u32,
    logit: f32,
}

/// Returns true if every logit is finite. The loop is written so that the compiler vectorizes it.
pub(crate) fn check_finite(logits: &[f32]) -> Result<(), LogitsError> {
    let finite = logits.iter().fold(true, |all, x| all & x.is_finite());
    if !finite && let Some(id) = logits.iter().position(|x| !x.is_finite()) {
        let value = logits[id].to_string();
        return Err(LogitsError::NotFinite { id, value });
    }
    Ok(())
}

/// The largest logit and the first token that has it; `None` if no logit is above minus infinity.
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
