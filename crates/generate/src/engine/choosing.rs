//! Where an engine chooses tokens.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::{GenerateError, SettingError};
use crate::sampler::{Sampler, SamplerConfig};

/// The seed that sample `sample` of a request draws from: the request's own for sample 0, for each other the first number
/// of the seed's stream of its number. A plain generation with it gives the same tokens.
pub fn seed_of_sample(seed: u64, sample: usize) -> u64 {
    if sample == 0 {
        return seed;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(sample as u64);
    rng.next_u64()
}

/// Chooses one sample's tokens.
#[derive(Debug)]
pub(super) struct Choosing {
    sampler: Sampler,
}

impl Choosing {
    pub fn new(config: SamplerConfig, sample: usize) -> Result<Self, SettingError> {
        let seed = seed_of_sample(config.seed, sample);
        let sampler = Sampler::new(SamplerConfig { seed, ..config })?;
        Ok(Self { sampler })
    }

    /// The next token, from the logits `[vocab_size]` after the last.
    pub fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerateError> {
        Ok(self.sampler.sample(logits)?)
    }
}
