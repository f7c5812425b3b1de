//! Complete runs with and without skipped steps.

use super::*;

/// All kinds of state carried between steps, with readings at steps 1, 7, 11, 14, 20, 21, 22, …
fn carried(place: &TestFolder, optimizer: OptimizerKind) -> RunConfig {
    let mut config = place.config();
    config.model.dropout = 0.1;
    let train = &mut config.train;
    train.steps = 46;
    train.accumulation = 2;
    train.micro_batch = 1;
    train.ema = 0.9;
    train.optimizer = optimizer.into();
    train.decay_schedule = DecayScheduleKind::Linear.into();
    train.log_interval = 7;
    train.checkpoints.interval = 11;
    train.evaluation.interval = 20;
    config
}

#[test]
fn runs_without_skipped_steps() {
    for optimizer in OptimizerKind::ALL {
        // `Z` is in one window only, which none of these steps reaches.
        let place = TestFolder::new(1);
        let mut config = carried(&place, optimizer);
        config.train.steps = 20;
        config.train.seed = 3;
        let found = compare::<Flex>(&place, &config);
        assert_eq!(found, [] as [usize; 0], "{optimizer:?}");
    }
}

#[test]
fn runs_with_skipped_steps() {
    for optimizer in OptimizerKind::ALL {
        let place = TestFolder::new(60);
        let config = carried(&place, optimizer);
        let found = compare::<Flex>(&place, &config);
        // In the middle of an interval, two in a row, and many applied ones.
        assert!(found.iter().any(|step| (2..7).contains(&(step % 7))));
        assert!(
            found.windows(2).any(|two| two[0] + 1 == two[1]),
            "{found:?}"
        );
        assert!((5..25).contains(&found.len()), "{found:?}");
    }
}

#[test]
fn runs_with_skipped_steps_on_ndarray() {
    let place = TestFolder::new(60);
    let config = carried(&place, OptimizerKind::AdamW);
    let found = compare::<NdArray>(&place, &config);
    assert!((5..25).contains(&found.len()), "{found:?}");
}

/// The interval of readings does not matter: the runs are equal except for their log lines.
#[test]
fn the_log_interval_does_not_change_a_run() {
    let place = TestFolder::new(60);
    let mut config = carried(&place, OptimizerKind::AdamW);
    config.train.checkpoints.interval = 1000;
    config.train.evaluation.interval = 1000;
    let [one, five, never] = [1, 5, 1000].map(|log_interval| {
        config.train.log_interval = log_interval;
        let out = format!("every-{log_interval}");
        run::<Flex>(&place, &config, &out, ReadPolicy::WhenDue).unwrap();
        outcome(&place, &out).1
    });
    assert!(one == five && five == never);
}

/// A skipped first update leaves no moments.
#[test]
fn a_skipped_first_step_leaves_no_moments() {
    let place = TestFolder::new(60);
    let mut config = place.config();
    config.train.steps = 3;
    config.train.checkpoints.interval = 1;
    let seed = (1..100).find(|&seed| {
        config.train.seed = seed;
        let out = format!("seed-{seed}");
        run::<Flex>(&place, &config, &out, ReadPolicy::EveryStep).unwrap();
        skipped(&place, &out) == [1, 2]
    });
    config.train.seed = seed.unwrap();
    config.train.log_interval = 10;
    assert_eq!(compare::<Flex>(&place, &config), [1, 2]);
}

#[test]
fn a_step_without_targets_is_skipped() {
    let place = TestFolder::new(60);
    let path = place.path("data/dataset.json");
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let shard = &mut manifest["splits"]["train"]["shards"][0];
    let tokens = shard["tokens"].as_u64().unwrap();
    let mask: Vec<u8> = (0..tokens).map(|at| u8::from(at % 64 < 16)).collect();
    let learnt = mask.iter().filter(|&&byte| byte == 1).count();
    let hash = blake3::hash(&mask).to_hex();
    shard["mask"] = serde_json::json!({
        "file": "train.mask", "learnt": learnt, "blake3": hash.as_str(),
    });
    fs::write(place.path("data/train.mask"), mask).unwrap();
    fs::write(&path, manifest.to_string()).unwrap();
    let mut config = carried(&place, OptimizerKind::AdamW);
    config.train.accumulation = 1;
    let found = compare::<Flex>(&place, &config);
    let text = fs::read_to_string(place.path("due/events.jsonl")).unwrap();
    let passed_over = text.matches("none of its targets").count();
    assert!(passed_over > 3 && found.len() > passed_over, "{found:?}");
}

/// Not bit-identical: a fused kernel that also selects may round its update differently.
#[cfg(feature = "vulkan")]
#[test]
fn runs_with_skipped_steps_on_vulkan() {
    use burn::backend::Vulkan;

    let place = TestFolder::new(60);
    let mut config = place.config();
    config.train.steps = 14;
    config.train.log_interval = 7;
    let losses = |out: &str, read_policy| {
        run::<Vulkan>(&place, &config, out, read_policy).unwrap();
        let events = events::read(&place.path(out)).unwrap().events;
        let losses = events.into_iter().filter_map(|event| match event {
            Event::Step { loss, .. } | Event::Evaluation { loss, .. } => Some(loss),
            _ => None,
        });
        (skipped(&place, out), losses.collect::<Vec<f64>>())
    };
    let (skipped, every) = losses("every", ReadPolicy::EveryStep);
    let (frozen, due) = losses("due", ReadPolicy::WhenDue);
    assert_eq!(skipped, frozen);
    assert!((2..12).contains(&skipped.len()), "{skipped:?}");
    assert_eq!(every.len(), due.len());
    for (a, b) in every.iter().zip(&due) {
        assert!((a - b).abs() < 1e-4, "{every:?}\n{due:?}");
    }
}
