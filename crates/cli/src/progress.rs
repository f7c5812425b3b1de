//! How far a long computation is, on stderr, where that is a terminal.

use std::fmt::Write;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// A bar over `tokens` tokens, with the rate and the time left; nothing is drawn where stderr is no terminal.
pub fn tokens(tokens: u64) -> ProgressBar {
    const TEMPLATE: &str =
        "{wide_bar} {percent:>3}%  {human_pos} of {human_len} tokens  {rate}  {eta} left";
    let rate = |state: &ProgressState, out: &mut dyn Write| {
        // Where it cannot be written nothing is shown.
        let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
    };
    let style = ProgressStyle::with_template(TEMPLATE);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(tokens);
    bar.set_style(style.with_key("rate", rate));
    // From the first batch on there is something to reckon with; until then it says that it has begun.
    bar.tick();
    bar
}

/// A bar over `bytes` bytes, with what is being done, the rate and the time left; nothing is drawn where stderr is no
/// terminal.
pub fn bytes(doing: &'static str, bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "{msg:>11} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(TEMPLATE);
    // The template is a constant: what it falls back to is never seen.
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes)
        .with_style(style.progress_chars("=> "))
        .with_message(doing)
}
