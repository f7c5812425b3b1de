//! Loss scaling: a power of two is exact in f32, so runs with a scale are bit-identical.

use emberlm_kernels::Precision;

use super::*;
use crate::config::{DecayConfig, ScheduleConfig};

/// The schedule of the other tests, with a different end.
fn schedule(decay_steps: usize) -> ScheduleConfig {
    ScheduleConfig::Cosine(DecayConfig {
        learning_rate: 1e-2,
        warmup_steps: 4,
        decay_steps,
        ..DecayConfig::default()
    })
}

const WAYS: [ReadPolicy; 2] = [ReadPolicy::EveryStep, ReadPolicy::WhenDue];

#[test]
fn a_fixed_loss_scale_is_exact() {
    let place = TestFolder::new(60);
    for (optimizer, clip_norm) in [
        (OptimizerKind::AdamW, 0.5),
        (OptimizerKind::AdamW, 0.0),
        (OptimizerKind::Muon, 0.5),
        (OptimizerKind::Lion, 0.0),
    ] {
        let mut config = place.config();
        (config.train.optimizer, config.train.clip_norm) = (optimizer.into(), clip_norm);
        config.train.steps = 10;
        config.train.accumulation = 2;
        config.train.log_interval = 3;
        let name = |scale: &str| format!("{optimizer:?}-{clip_norm}-{scale}");
        run::<Flex>(&place, &config, &name("none"), ReadPolicy::EveryStep).unwrap();
        config.train.precision.loss_scale = 1024.0;
        for read_policy in WAYS {
            let out = name(&format!("{read_policy:?}"));
            run::<Flex>(&place, &config, &out, read_policy).unwrap();
            assert_same(&place, &name("none"), &out);
        }
        assert!(!skipped(&place, &name("none")).is_empty());
    }
}

/// The losses of the skipped steps, and the reasons.
fn overflows(place: &TestFolder, run: &str) -> Vec<(f64, String)> {
    let events = events::read(&place.path(run)).unwrap().events;
    let found = events.into_iter().filter_map(|event| match event {
        Event::Skipped { loss, reason, .. } => Some((loss.unwrap(), reason)),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_too_large_loss_scale_is_halved() {
    let place = TestFolder::new(1);
    let mut config = place.config();
    config.train.steps = 40;
    config.train.schedule = schedule(40);
    config.train.seed = 3;
    config.train.log_interval = 7;
    // Steps that are skipped unexpectedly would end the run at this limit.
    config.train.skip.set_limit(2);
    config.train.checkpoints.interval = 4;
    // With gradients of about 1, the sum of squares overflows f32 for scales down to about 2⁶⁴.
    let engine = |read_policy| EngineOptions {
        read_policy,
        loss_scale: Some(LossScale::at(70f64.exp2())),
    };
    for read_policy in WAYS {
        let out = format!("{read_policy:?}");
        let ended = scaled_run::<Flex>(&place, &config, &out, engine(read_policy)).unwrap();
        let state = ended.state;
        let found = overflows(&place, &out);
        assert!((3..12).contains(&found.len()), "{found:?}");
        for (n, (loss, reason)) in found.iter().enumerate() {
            assert!((1.0..10.0).contains(loss), "{loss} is the scaled loss");
            let halved = (69.0 - n as f64).exp2();
            let expected = format!(
                "gradients are beyond the range of f16: the loss scale was halved to {halved}"
            );
            assert_eq!(*reason, expected);
        }
        let last = (70.0 - found.len() as f64).exp2();
        assert_eq!(state.loss_scale.unwrap().factor(), last);
        assert_eq!(state.watch.total(), found.len());
    }
    assert_same(&place, "EveryStep", "WhenDue");
    // Stop while the scale is being found, and resume to the end.
    config.train.steps = 4;
    scaled_run::<Flex>(&place, &config, "stopped", engine(ReadPolicy::WhenDue)).unwrap();
    config.train.steps = 40;
    let engine = EngineOptions {
        loss_scale: Some(LossScale::default()),
        ..engine(ReadPolicy::WhenDue)
    };
    resume::<Flex>(&place, &config, "stopped", engine);
    let last = |run: &str| {
        let (_, mut files) = outcome(&place, run);
        files.retain(|(name, _)| name.contains("step-00000040"));
        files
    };
    assert!(last("stopped").len() > 3 && last("stopped") == last("WhenDue"));
}

/// The scale does not cause a NaN loss.
#[test]
fn steps_with_a_nan_loss_do_not_halve_the_scale() {
    let place = TestFolder::new(60);
    let mut config = place.config();
    config.train.log_interval = 7;
    for read_policy in WAYS {
        let engine = EngineOptions {
            read_policy,
            loss_scale: Some(LossScale::default()),
        };
        let ended =
            scaled_run::<Flex>(&place, &config, &format!("{read_policy:?}"), engine).unwrap();
        let scale = ended.state.loss_scale.unwrap();
        assert_eq!(scale.factor(), LossScale::default().factor());
    }
    assert_same(&place, "EveryStep", "WhenDue");
    run::<Flex>(&place, &config, "none", ReadPolicy::EveryStep).unwrap();
    // The scale is a metric of runs that have one.
    let scale = "\"metrics\":{\"loss_scale\":65536.0},";
    let (lines, _) = outcome(&place, "WhenDue");
    assert!(lines[0].contains(scale), "{}", lines[0]);
    let unscaled: Vec<String> = lines.iter().map(|line| line.replace(scale, "")).collect();
    assert_eq!(outcome(&place, "none").0, unscaled);
    assert!(!skipped(&place, "none").is_empty());
}

#[test]
fn the_scale_doubles_at_its_step_with_any_read_policy() {
    let place = TestFolder::new(1);
    let mut config = place.config();
    config.train.seed = 3;
    config.train.log_interval = 1000;
    let text = r#"{"factor":65536.0,"taken":1990}"#;
    for read_policy in WAYS {
        let scale = Some(serde_json::from_str(text).unwrap());
        let engine = EngineOptions {
            read_policy,
            loss_scale: scale,
        };
        let ended =
            scaled_run::<Flex>(&place, &config, &format!("{read_policy:?}"), engine).unwrap();
        let found = serde_json::to_string(&ended.state.loss_scale).unwrap();
        assert_eq!(found, r#"{"factor":131072.0,"taken":14}"#);
    }
    assert_same(&place, "EveryStep", "WhenDue");
}

#[test]
fn only_f16_products_use_an_adaptive_scale() {
    let mut config = TestFolder::new(1).config().train;
    for precision in Precision::ALL {
        config.precision.products = precision;
        let engine = EngineOptions::of::<Flex>(&config, &Default::default());
        // The CPU has no f16 products.
        let expected = EngineOptions {
            read_policy: ReadPolicy::EveryStep,
            loss_scale: None,
        };
        assert_eq!(engine, expected, "{precision:?}");
    }
}
