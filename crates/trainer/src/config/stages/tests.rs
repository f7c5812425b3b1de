use emberlm_data::Mix;
use emberlm_model::config::Window;
use emberlm_model::families;

use super::super::{DataConfig, MixedDataset};
use super::weights::WeightChange;
use super::*;

fn config(stages: &str) -> TrainConfig {
    let text = format!("steps = 100\nmicro_batch = 3\naccumulation = 2\nstages = {stages}");
    toml::from_str(&text).expect("settings")
}

#[test]
fn sequences_are_counted_over_the_stages() {
    let train = config(
        "[{ step = 10, accumulation = 4 }, { step = 20, seq_len = 8 }, { step = 30, accumulation = 5 }]",
    );
    train.check().expect("legal");
    let of_steps: Vec<usize> = (0..100).map(|done| train.accumulation_at(done)).collect();
    let expected = [[2; 10], [4; 10], [2; 10]].concat();
    assert_eq!(of_steps[..30], expected);
    assert!(of_steps[30..].iter().all(|&count| count == 5));
    for steps in 0..=100 {
        let sum: usize = of_steps[..steps].iter().sum();
        assert_eq!(train.sequences_before(steps), 3 * sum as u64, "{steps}");
        if steps > 0 {
            assert_eq!(train.steps_of(3 * sum as u64), steps);
            assert_eq!(train.steps_of(3 * sum as u64 - 1), steps);
        }
    }
    assert_eq!(train.accumulations().collect::<Vec<_>>(), [2, 4, 2, 5]);
    let cuts = [0, 10, 19, 20, 29, 30].map(|done| train.cut_at(done));
    assert_eq!(cuts, [None, None, None, Some(8), Some(8), None]);
}

#[test]
fn a_run_without_stages_has_equal_steps() {
    let train = config("[]");
    assert_eq!(train.sequences_before(7), 42);
    assert_eq!(train.steps_of(43), 8);
    // A stage at the beginning replaces the settings; one after the end has no effect.
    let train = config("[{ step = 0, accumulation = 1 }, { step = 100, accumulation = 9 }]");
    assert_eq!(train.sequences_before(100), 300);
    assert_eq!(train.accumulations().max(), Some(1));
}

#[test]
fn settings_have_the_same_sequences_up_to_a_step() {
    let train = config("[{ step = 10, accumulation = 4 }]");
    let later = config("[{ step = 10, accumulation = 4 }, { step = 20, accumulation = 1 }]");
    let halves: TrainConfig = toml::from_str(
        "micro_batch = 1\naccumulation = 6\nstages = [{ step = 10, accumulation = 12 }]",
    )
    .expect("settings");
    for (other, same, differs) in [(&later, 20, 21), (&halves, 100, 101)] {
        assert!(train.has_same_sequences(other, same) && other.has_same_sequences(&train, same));
        let is_same = train.has_same_sequences(other, differs);
        assert_eq!(is_same, differs == 101);
    }
    // The sums are equal again, but not those between.
    let other =
        config("[{ step = 5, accumulation = 1 }, { step = 10, accumulation = 3 }, { step = 15 }]");
    assert_eq!(
        other.sequences_before(20),
        config("[]").sequences_before(20)
    );
    assert!(!other.has_same_sequences(&config("[]"), 20));
}

#[test]
fn weights_change_at_stages() {
    let train = config(
        "[{ step = 0, weights = [1, 0] }, { step = 5, accumulation = 3, weights = [1, 0] }, { step = 9 }, \
         { step = 12, seq_len = 8 }, { step = 20, weights = [3, 1] }, { step = 30, weights = [0, 1] }]",
    );
    let expected = [(0, [1.0, 0.0]), (9, [3.0, 1.0]), (30, [0.0, 1.0])];
    let expected = expected.map(|(step, weights)| WeightChange {
        step,
        weights: weights.to_vec(),
        continues: false,
    });
    assert_eq!(train.weight_changes(&[3.0, 1.0]), expected);
    assert_eq!(config("[{ step = 5 }]").weight_changes(&[1.0]), []);
}

#[test]
fn shares_go_linearly_to_those_of_a_stage() {
    let train = config(
        "[{ step = 10, weights = [0, 5], transition = 4 }, { step = 20, weights = [2, 2], transition = 1 }]",
    );
    train.check().expect("legal");
    let changes = train.weight_changes(&[6.0, 2.0]);
    let expected = [
        (10, [0.65625, 0.34375], false),
        (11, [0.46875, 0.53125], true),
        (12, [0.28125, 0.71875], true),
        (13, [0.09375, 0.90625], true),
        (14, [0.0, 5.0], true),
        (20, [0.25, 0.75], false),
        (21, [2.0, 2.0], true),
    ];
    let found = changes.iter();
    let found: Vec<_> = found
        .map(|change| (change.step, &change.weights[..], change.continues))
        .collect();
    assert_eq!(
        found,
        expected
            .iter()
            .map(|(step, weights, continues)| (*step, &weights[..], *continues))
            .collect::<Vec<_>>()
    );
    // A long transition has few changes, with the mean shares of their steps.
    let train = config("[{ weights = [0, 1], transition = 5001 }]");
    let changes = train.weight_changes(&[1.0, 0.0]);
    assert_eq!(changes.len(), 1002);
    assert_eq!((changes[0].step, changes[1].step), (0, 5));
    let shares: f64 = changes
        .iter()
        .zip(&changes[1..])
        .fold(0.0, |sum, (change, next)| {
            sum + change.weights[1] * (next.step - change.step) as f64
        });
    assert!((shares - 2500.5).abs() < 1e-6, "{shares}");
    // No transition, since the weights are the same.
    let train = config("[{ weights = [2, 1], transition = 50 }]");
    assert_eq!(train.weight_changes(&[2.0, 1.0]), []);
}

#[test]
fn the_sequences_of_a_transition_follow_the_line() {
    let train = config(
        "[{ step = 5, weights = [0, 1], transition = 40 }, { step = 60, accumulation = 5 }]",
    );
    let mut mix = Mix::new(&[1.0, 0.0]).expect("weights");
    for change in train.weight_changes(&[1.0, 0.0]) {
        let first = train.sequences_before(change.step);
        mix = change.applied_to(mix, first).expect("weights");
    }
    let begin = train.sequences_before(5);
    for done in 5..=45 {
        let sequences = train.sequences_before(done);
        // The integral of the line: a triangle.
        let expected = (done as f64 - 5.0).powi(2) / 80.0 * 6.0;
        let found = mix.counts(sequences)[1] as f64;
        assert!(
            (found - expected).abs() <= 0.5 + 1e-6,
            "{found}, {expected}"
        );
    }
    let counts = mix.counts(train.sequences_before(60));
    assert_eq!(counts, [begin + 120, 120 + 15 * 6]);
    // A stage without weights has those of the mix.
    let counts = mix.counts(train.sequences_before(61));
    assert_eq!(counts, [begin + 120 + 15, 120 + 15 * 6]);
}

#[test]
fn weights_are_those_of_the_datasets() {
    let data = |datasets: usize| DataConfig {
        mix: vec![
            MixedDataset {
                dataset: "a".into(),
                weight: 1.0,
            };
            datasets
        ],
        ..DataConfig::default()
    };
    for (weights, datasets, rule) in [
        ("[1.0]", 0, "must be absent without data.mix"),
        (
            "[1.0]",
            2,
            "must have one weight for each of the 2 datasets of data.mix",
        ),
        ("[0.0, 0.0]", 2, "must have a weight above 0"),
        ("[-1.0, 1.0]", 2, "must be at least 0 and finite"),
        ("[inf, 1.0]", 2, "must be at least 0 and finite"),
    ] {
        let train = config(&format!("[{{ step = 3, weights = {weights} }}]"));
        let error = train.check_mix(&data(datasets)).expect_err("refused");
        let expected = format!("train.stages.weights = {weights}: {rule}");
        assert_eq!(error.to_string(), expected);
    }
    let train = config("[{ weights = [0, 1] }]\noverfit_batch = true");
    let error = train.check_mix(&data(2)).expect_err("refused").to_string();
    let expected = "train.stages.weights = [0.0, 1.0]: must be absent with train.overfit_batch";
    assert_eq!(error, expected);
    let train = config("[{ weights = [0, 1] }]");
    train.check_mix(&data(2)).expect("legal");
}

#[test]
fn stages_out_of_order_and_out_of_range_are_refused() {
    let error = |stages: &str| config(stages).check().expect_err("refused").to_string();
    for (stages, expected) in [
        (
            "[{ step = 5 }, { step = 5 }]",
            "train.stages.step = 5: must be above that of the stage before",
        ),
        (
            "[{ transition = 7 }]",
            "train.stages.transition = 7: must be 0 in a stage without weights",
        ),
        (
            "[{ step = 3, weights = [1], transition = 7 }, { step = 9 }]",
            "train.stages.transition = 7: must be at most 6, since the next stage begins at step 9",
        ),
        (
            "[{ accumulation = 0 }]",
            "train.stages.accumulation = 0: must be at least 1",
        ),
        (
            "[{ accumulation = 4000000 }]",
            "train.stages.accumulation = 4000000: must be at most",
        ),
        (
            "[{ seq_len = 0 }]",
            "train.stages.seq_len = 0: must be at least 1",
        ),
        (
            "[{ seq_len = 8 }]\ndocuments = \"isolated\"",
            "train.stages.seq_len = 8: must be absent unless",
        ),
        (
            "[{ accumulation = 2 }]\noverfit_batch = true",
            "train.stages.accumulation = 2: must be absent with train.overfit_batch",
        ),
    ] {
        let error = error(stages);
        assert!(error.starts_with(expected), "{error}");
    }
    let train = config("[{ seq_len = 12 }]");
    let error = train.sequence_tokens(32).expect_err("refused").to_string();
    let expected = "train.stages.seq_len = 12: must divide the sequences of 32 tokens";
    assert_eq!(error, expected);
    assert_eq!(train.sequence_tokens(24).expect("legal"), 24);
}

#[test]
fn windows_are_at_most_those_of_the_model() {
    let mut model = families::preset("llama-nano").expect("a preset").config;
    let train = config("[{ window = 64 }]");
    let error = |model: &ModelConfig| train.check_model(model).expect_err("refused").to_string();
    let expected =
        "train.stages.window = 64: must be absent without model.attention.window in a decoder";
    assert_eq!(error(&model), expected);
    model.attention = AttentionKind::windowed(Window::new(32));
    let expected =
        "train.stages.window = 64: must be between 1 and model.attention.window.tokens = 32";
    assert_eq!(error(&model), expected);
    model.attention = AttentionKind::windowed(Window::new(64));
    train.check_model(&model).expect("legal");
}
