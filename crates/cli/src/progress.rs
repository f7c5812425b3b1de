//! Progress bars on stderr, shown only if it is a terminal.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use emberlm_system::text::escaped;
use emberlm_trainer::Rank;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// A bar over `tokens` tokens, with throughput and remaining time. Hidden if stderr is not a terminal, and on other ranks
/// than 0.
pub fn tokens(tokens: u64, rank: Rank) -> ProgressBar {
    if !rank.is_zero() {
        return ProgressBar::hidden();
    }
    const TEMPLATE: &str =
        "{wide_bar} {percent:>3}%  {human_pos} of {human_len} tokens  {rate}  {eta} left";
    let rate = |state: &ProgressState, out: &mut dyn Write| {
        // A failed write leaves the throughput out.
        let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
    };
    let style = ProgressStyle::with_template(TEMPLATE);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(tokens);
    bar.set_style(style.with_key("rate", rate));
    // Draws the bar before the first batch, when there is no throughput to show yet.
    bar.tick();
    bar
}

/// A bar over `bytes` bytes, labelled with the action `doing`. Hidden if stderr is not a terminal.
pub fn bytes(doing: &'static str, bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "{msg:>11} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(TEMPLATE);
    // The template is a constant, so the fallback is never used.
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes)
        .with_style(style.progress_chars("=> "))
        .with_message(doing)
}

/// A spinner on stderr while a model is loaded, removed on drop. Hidden if stderr is not a terminal.
pub struct LoadingSpinner(ProgressBar);

/// Shows a spinner for loading the model at `path`.
pub fn loading(path: &Path) -> LoadingSpinner {
    const TICK: Duration = Duration::from_millis(120);
    let style = ProgressStyle::with_template("{spinner} loading {wide_msg}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_message(escaped(&path.to_string_lossy()).into_owned());
    bar.enable_steady_tick(TICK);
    LoadingSpinner(bar)
}

impl Drop for LoadingSpinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
