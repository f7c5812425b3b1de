//! How far a long computation is, on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `tokens` tokens, with the rate and the time left; nothing is drawn where stderr is no terminal.
pub fn tokens(tokens: u64) -> ProgressBar {
    const TEMPLATE: &str =
        "{bar:24} {percent:>3}%  {human_pos} of {human_len} tokens  {per_sec}  {eta} left";
    let style = ProgressStyle::with_template(TEMPLATE);
    let bar = ProgressBar::new(tokens);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // From the first batch on there is something to reckon with; until then it says that it has begun.
    bar.tick();
    bar
}
