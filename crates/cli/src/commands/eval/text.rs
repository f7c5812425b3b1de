//! The loss of each token of a text.

use std::path::Path;
use std::{fs, iter};

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;
use emberlm_model::id_tensor;
use emberlm_tokenizer::Tokenizer;

use super::scored_text::{Alternative, Report, ScoredToken};
use super::{EvalArgs, check_memory, check_window, token_page};
use crate::backend::Job;
use crate::error::CliError;
use crate::model::{self, needed};
use crate::output::{print, print_json};
use crate::ranks::Ranks;
use crate::weights_arg::Formats;

/// Number of alternatives to each token.
const ALTERNATIVES: usize = 5;
/// Maximum number of tokens whose logits are held at once.
const ROWS: usize = 128;

/// Scores the text of a file.
pub fn run(args: &EvalArgs, path: &Path, ranks: &Ranks) -> Result<(), CliError> {
    if ranks.rank().world_size() > 1 {
        return Err(
            CliError::usage("--text is scored by one process").hint("start eval without mpirun")
        );
    }
    let backend = args.backend.choose()?;
    let model = args.adapter.open_decoder(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let tokenizer = needed(tokenizer.as_ref(), &args.model)?;
    let text = fs::read_to_string(path).map_err(CliError::io("read", path))?;
    let tokens = tokenizer.encode_prompt(&text)?;
    if tokens.len() < 2 {
        let (path, count) = (path.display(), tokens.len());
        let message = format!("{path} has {count} tokens, of which none is predicted");
        return Err(CliError::new(message).hint("the first token of a text has none before it"));
    }
    let context = model.config().seq_len();
    check_window(args.seq_len, context)?;
    let window = args.seq_len.unwrap_or(context).min(tokens.len() - 1);
    check_memory(args, ranks, backend, &model, 1, window)?;
    let scores = backend.run(Score {
        model: &model,
        formats: args.weights.with_cache(args.cache.cache),
        tokens: &tokens,
        window,
        tokenizer,
    })??;
    let report = Report::new(scores, tokenizer);
    if let Some(out) = &args.out {
        token_page::write(
            &report,
            &format!("{} by {}", path.display(), args.model.display()),
            out,
        )?;
    }
    match args.json {
        true => print_json(&report),
        false => print(&report.text()),
    }
}

/// Computes the scores of a text's tokens.
struct Score<'a> {
    model: &'a Model,
    formats: Formats,
    tokens: &'a [u32],
    /// Number of tokens that the model reads at once.
    window: usize,
    tokenizer: &'a Tokenizer,
}

impl Job for Score<'_> {
    type Output = Result<Vec<ScoredToken>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        let mut scores = Vec::with_capacity(self.tokens.len());
        scores.push(ScoredToken::unpredicted(self.tokens[0], self.tokenizer));
        for window in windows(self.tokens.len() - 1, self.window) {
            let read = &self.tokens[window.start..window.end];
            let hidden =
                decoder.hidden_states(id_tensor::<B::InnerBackend>(read, [1, read.len()], &device)); // [1, window, d_model]
            // The row at a token has the logits of the next one.
            let mut row = scores.len() - 1 - window.start;
            while row < read.len() {
                let rows = ROWS.min(read.len() - row);
                let logits = decoder.logits(hidden.clone().narrow(1, row, rows));
                let width = logits.dims()[2].max(1);
                let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
                for logits in logits.chunks(width) {
                    let id = self.tokens[scores.len()];
                    scores.push(scored(id, logits, self.tokenizer));
                }
                row += rows;
            }
        }
        Ok(scores)
    }
}

/// The windows that predict `count` tokens: after the first, each overlaps the one before it by half, so that every token but those of
/// the first window has at least half a window before it.
fn windows(count: usize, window: usize) -> Vec<std::ops::Range<usize>> {
    let stride = window.div_ceil(2);
    let mut windows: Vec<_> = iter::once(0..window.min(count)).collect();
    while let Some(last) = windows.last().filter(|last| last.end < count) {
        let end = (last.end + stride).min(count);
        windows.push(end.saturating_sub(window)..end);
    }
    windows
}

/// The score of a token by the logits in its place.
fn scored(id: u32, logits: &[f32], tokenizer: &Tokenizer) -> ScoredToken {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    let loss = |logit: f32| sum.ln() - f64::from(logit - max);
    let own = logits.get(id as usize).copied().unwrap_or(f32::NAN);
    let mut best: Vec<usize> = (0..logits.len()).collect();
    let order = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    if best.len() > ALTERNATIVES {
        best.select_nth_unstable_by(ALTERNATIVES - 1, order);
        best.truncate(ALTERNATIVES);
    }
    best.sort_by(order);
    let top = best.into_iter().map(|id| {
        let probability = (-loss(logits[id])).exp();
        Alternative::new(id as u32, probability, tokenizer)
    });
    ScoredToken {
        loss: Some(loss(own)),
        rank: Some(logits.iter().filter(|&&logit| logit >= own).count()),
        top: top.collect(),
        ..ScoredToken::unpredicted(id, tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_in_one_window_and_has_half_a_window_before_it() {
        for count in 1..40 {
            for window in 1..12 {
                let mut predicted = 0;
                for range in windows(count, window) {
                    assert!(range.len() <= window && range.start <= predicted);
                    assert!(predicted == 0 || predicted - range.start >= window / 2);
                    assert!(range.end > predicted);
                    predicted = range.end;
                }
                assert_eq!(predicted, count);
            }
        }
    }
}
