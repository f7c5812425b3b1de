//! Texts taken from a corpus many at a time, so that all threads have work and memory does not grow with the corpus.

use std::path::PathBuf;

use emberlm_data::{InputOptions, for_each_text};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::CliError;

/// Bytes of text that are held at once.
const WAVE_BYTES: usize = 16 << 20;

/// Calls `work` with the texts of `inputs`, some megabytes at a time, and reports its progress on stderr.
///
/// Long texts come in parts. They are cut where byte-pair vocabularies make the same tokens of the parts; others may make
/// one token more or less at a cut, of which there is one in hundreds of kilobytes.
pub(super) fn for_each_wave(
    inputs: &[PathBuf],
    mut work: impl FnMut(&[String]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    // Any of those would do: all patterns have these places in common.
    let cutter = Tokenizer::builtin(TokenizerKind::Gpt2)?;
    let bar = progress_bar();
    let (mut wave, mut bytes) = (Vec::new(), 0);
    let outcome = for_each_text(inputs, &InputOptions::default(), &cutter, |text: String| {
        bytes += text.len();
        wave.push(text);
        if bytes < WAVE_BYTES {
            return Ok(());
        }
        work(&wave)?;
        bar.inc(bytes as u64);
        (wave, bytes) = (Vec::new(), 0);
        Ok::<(), CliError>(())
    });
    outcome.and_then(|()| work(&wave))?;
    bar.finish_and_clear();
    Ok(())
}

/// Bytes so far and their rate, on stderr; nothing where that is no terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("reading {bytes}  {bytes_per_sec}");
    // The template is a constant: what it falls back to is never seen.
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}
