//! The cost of speculative decoding: the time of a pass of the model over draft tokens, including the draft
//! model's passes.
//!
//! The weights are initial ones, so the draft tokens are random. The cost of a pass is measured, and its gain
//! is computed from the acceptance rate `α`: `k` draft tokens give `1 + α + … + αᵏ` tokens on average
//! (Leviathan et al. 2023, equation 1, for independent acceptances).

use std::time::Instant;

use clap::Args;
use emberlm_generate::{GenerateError, GenerateOptions, Generator};
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, TransformerConfig};
use serde::Serialize;

use super::median;
use emberlm_cli::shared::CliError;
use emberlm_trainer::{presets, run_config};

/// The draft model.
#[derive(Debug, Args)]
pub struct DraftArgs {
    /// The preset of the draft model
    #[arg(long, value_name = "NAME")]
    pub draft: Option<String>,
    /// A value that overrides the draft's preset; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "draft")]
    pub draft_set: Vec<String>,
    /// Numbers of draft tokens per pass, separated by commas
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,2,4,8"
    )]
    pub ahead: Vec<usize>,
}

impl DraftArgs {
    /// The configuration of the draft for a model, with the model's vocabulary and context.
    pub fn config(&self, model: &TransformerConfig) -> Result<Option<TransformerConfig>, CliError> {
        let Some(preset) = &self.draft else {
            return Ok(None);
        };
        let config = run_config::layered(presets::run(preset)?, None, &self.draft_set)?;
        let mut draft = config.decoder()?.clone();
        (draft.vocab_size, draft.seq_len) = (Some(model.vocab_size()), model.seq_len());
        Ok(Some(TransformerConfig::try_from(draft)?))
    }
}

/// The cost of `ahead` draft tokens.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ahead {
    ahead: usize,
    /// The median time of a pass, including the draft model's passes before it.
    seconds_per_pass: f64,
    /// The acceptance rate above which it is faster than one token at a time. `None` if it never is.
    pays_from: Option<f64>,
    /// The speedup at acceptance rates of 60%, 80% and 90%.
    speedups: [f64; 3],
}

impl Ahead {
    fn new(ahead: usize, seconds_per_pass: f64, seconds_per_token: f64) -> Self {
        let cost = seconds_per_pass / seconds_per_token;
        Self {
            ahead,
            seconds_per_pass,
            pays_from: pays_from(ahead, cost),
            speedups: [0.6, 0.8, 0.9].map(|share| tokens(ahead, share) / cost),
        }
    }
}

/// The mean number of tokens per pass if each draft token is accepted with a probability of `share`.
fn tokens(ahead: usize, share: f64) -> f64 {
    (0..=ahead).map(|right| share.powi(right as i32)).sum()
}

/// The acceptance rate at which a pass gives as many tokens as it costs.
fn pays_from(ahead: usize, cost: f64) -> Option<f64> {
    if tokens(ahead, 1.0) < cost {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        match tokens(ahead, middle) < cost {
            true => low = middle,
            false => high = middle,
        }
    }
    Some(high)
}

/// Measures each number of draft tokens, given the seconds of a token without any.
pub fn measure<B: Backend>(
    target: &Transformer<B>,
    draft: &Transformer<B>,
    ahead: &[usize],
    (prompt, options): (&[u32], &GenerateOptions),
    (rounds, seconds_per_token): (usize, f64),
) -> Result<Vec<Ahead>, GenerateError> {
    let measured = |&ahead: &usize| {
        let mut seconds = Vec::new();
        for round in 0..=rounds {
            let mut generator = Generator::with_draft(target, draft, ahead, prompt, options)?;
            let (mut last, mut passes) = (None, 0);
            while let Some(token) = generator.next() {
                token?;
                let made = generator.acceptance().map_or(0, |drafts| drafts.passes);
                if made == passes {
                    // The token is from a pass that gave several.
                    continue;
                }
                passes = made;
                let now = Instant::now();
                // The first pass follows the prompt's.
                if let Some(before) = last.replace(now)
                    && round > 0
                {
                    seconds.push((now - before).as_secs_f64());
                }
            }
        }
        Ok(Ahead::new(ahead, median(seconds), seconds_per_token))
    };
    ahead.iter().map(measured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_pays_where_it_gives_as_much_as_it_costs() {
        // 1 + α tokens for the time of 1.5.
        assert!((pays_from(1, 1.5).unwrap() - 0.5).abs() < 1e-9);
        // 1 + α + α² = 1.75 at (√4 - 1)/2.
        assert!((pays_from(2, 1.75).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(pays_from(2, 3.1), None);
        assert!(pays_from(4, 0.9).unwrap() < 1e-9);
        let ahead = Ahead::new(2, 0.02, 0.01);
        assert!((ahead.speedups[1] - (1.0 + 0.8 + 0.64) / 2.0).abs() < 1e-12);
    }
}
