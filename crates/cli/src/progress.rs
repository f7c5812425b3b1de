//! Progress bars of long computations, on stderr, where that is a terminal.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use emberlm_system::text::escaped;
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

/// A sign on stderr that a model is being loaded, where stderr is a terminal; removed when this is dropped.
pub struct LoadingSign(ProgressBar);

/// Shows that the model at `path` is being loaded.
pub fn loading(path: &Path) -> LoadingSign {
    const TICK: Duration = Duration::from_millis(120);
    let style = ProgressStyle::with_template("{spinner} loading {wide_msg}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_message(escaped(&path.to_string_lossy()).into_owned());
    bar.enable_steady_tick(TICK);
    LoadingSign(bar)
}

impl Drop for LoadingSign {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
