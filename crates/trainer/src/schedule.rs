//! The rate at a step: a plain function, so that nothing about it has to be carried or resumed.

use std::f64::consts::PI;

use crate::config::TrainConfig;

/// The rate of the update after `done` earlier ones: linear warm-up over `warmup_steps`, then a half cosine from
/// `learning_rate` to `min_learning_rate` at `decay_steps`, and `min_learning_rate` from there on. As nanoGPT has it,
/// `learning_rate · (done + 1) / (warmup_steps + 1)` while warming up.
pub fn learning_rate(config: &TrainConfig, done: usize) -> f64 {
    let (peak, min) = (config.learning_rate, config.min_learning_rate);
    let warmup = config.warmup_steps;
    let end = match config.decay_steps {
        0 => config.steps,
        steps => steps,
    };
    if done < warmup {
        peak * (done + 1) as f64 / (warmup + 1) as f64
    } else if done >= end {
        min
    } else {
        let progress = (done - warmup) as f64 / (end - warmup) as f64;
        min + (peak - min) * 0.5 * (1.0 + (PI * progress).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // By hand from nanoGPT's formula with warm-up 100, decay 2000, 1e-3 to 1e-4.
    #[test]
    fn nano_gpts_schedule() {
        let config = TrainConfig::default();
        let close = |done, expected: f64| {
            let rate = learning_rate(&config, done);
            assert!((rate - expected).abs() < 1e-12, "{done}: {rate}");
        };
        close(0, 1e-3 / 101.0);
        close(99, 1e-3 * 100.0 / 101.0);
        close(100, 1e-3);
        close(1050, 5.5e-4);
        close(2000, 1e-4);
        close(1_000_000, 1e-4);
    }

    #[test]
    fn a_decay_that_ends_within_the_warm_up_goes_on_at_the_minimum() {
        let config = TrainConfig {
            decay_steps: 50,
            ..TrainConfig::default()
        };
        assert!(learning_rate(&config, 99) > config.min_learning_rate);
        assert_eq!(learning_rate(&config, 100), config.min_learning_rate);
    }
}
