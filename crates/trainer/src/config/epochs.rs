//! Conversion between epochs and steps.

/// The number of steps of `step_tokens` tokens each that cover a split of `tokens` tokens `epochs` times; at
/// least 1.
///
/// ```
/// assert_eq!(emberlm_trainer::epochs::steps(3.0, 10_000, 768), 40);
/// ```
pub fn steps(epochs: f64, tokens: u64, step_tokens: u64) -> usize {
    let steps = epochs * tokens as f64 / step_tokens.max(1) as f64;
    (steps.ceil() as usize).max(1)
}

/// The number of epochs over a split of `tokens` tokens that `steps` steps of `step_tokens` tokens cover.
pub fn epochs(steps: usize, tokens: u64, step_tokens: u64) -> f64 {
    steps as f64 * step_tokens as f64 / tokens.max(1) as f64
}
