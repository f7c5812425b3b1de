//! Reads a corpus in waves of many texts, which keeps all threads busy with bounded memory.

use std::path::PathBuf;

use emberlm_data::{InputOptions, for_each_text};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::CliError;

/// Bytes of text per wave.
const WAVE_BYTES: usize = 16 << 20;

/// Calls `work` with the texts of `inputs`, one wave at a time, and shows progress on stderr.
///
/// Long texts are split. BPE vocabularies produce the same tokens for the parts as for the whole. Other
/// vocabularies may produce one token more or less at a split, of which there is one per several hundred
/// kilobytes.
pub(super) fn for_each_wave(
    inputs: &[PathBuf],
    mut work: impl FnMut(&[String]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    // Any built-in tokenizer works, since all patterns allow splits at the same positions.
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

/// A progress display of bytes and throughput on stderr. Hidden if it is not a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("reading {bytes}  {bytes_per_sec}");
    // The template is a constant, so the fallback is never used.
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}
