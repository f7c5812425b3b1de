//! Group relative policy optimization: whole runs.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_checkpoint::Model;
use emberlm_data::{PrepareOptions, prepare};
use emberlm_model::families;
use emberlm_trainer::config::{
    CommandConfig, DecayConfig, ExactMatchConfig, GrpoConfig, GrpoLoss, NextTokenConfig,
    ObjectiveConfig, RegexConfig, RewardConfig, ScheduleConfig,
};
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::{DataConfig, RunConfig, RunWeights};

use super::whole_run::{check_resume, config, evaluations, records, run, start};
use crate::common::alone;

/// Sums of two digits.
fn sums(folder: &Path) -> DataConfig {
    let line = |i: usize| {
        let (a, b) = (i % 10, i / 10 % 10);
        format!("{{\"prompt\": \"{a}+{b}=\", \"answer\": {}}}\n", a + b)
    };
    records(
        folder,
        "sums.jsonl",
        &(0..100).map(line).collect::<String>(),
    )
}

fn exact_match() -> RewardConfig {
    RewardConfig::ExactMatch(ExactMatchConfig::default())
}

/// A share of digits is a reward that a model without training gets now and then.
fn digits() -> RewardConfig {
    RewardConfig::Regex(RegexConfig {
        weight: 0.5,
        pattern: "[0-9]".to_owned(),
        field: String::new(),
    })
}

fn grpo(rewards: Vec<RewardConfig>) -> GrpoConfig {
    GrpoConfig {
        group: 4,
        max_new_tokens: 6,
        slots: 3,
        rewards,
        ..GrpoConfig::default()
    }
}

fn grpo_config(objective: GrpoConfig, data: DataConfig) -> RunConfig {
    let mut raw = families::preset("char-nano").unwrap().config;
    (raw.seq_len, raw.d_model, raw.n_layers, raw.heads) = (32, 16, 2, 2);
    config(raw, ObjectiveConfig::Grpo(objective), data)
}

/// The values of a metric at each step.
fn values(run: &Path, name: &str) -> Vec<f64> {
    let events = events::read(run).unwrap().events;
    let of_step = |event: &Event| match event {
        Event::Step { metrics, .. } => metrics.get(name),
        _ => None,
    };
    events.iter().filter_map(of_step).collect()
}

#[test]
fn rewards_are_learnt_and_resumed_exactly() {
    let _alone = alone();
    for (loss, iterations, beta) in [(GrpoLoss::Grpo, 1, 0.0), (GrpoLoss::Dapo, 3, 0.1)] {
        let folder = tempfile::tempdir().unwrap();
        let objective = GrpoConfig {
            loss,
            iterations,
            beta,
            ..grpo(vec![exact_match(), digits()])
        };
        let config = grpo_config(objective, sums(folder.path()));
        // A checkpoint at step 5 is in the middle of the second rollout of three steps.
        let run = check_resume(config, folder.path());
        let state = fs::read_to_string(run.join("checkpoints/step-00000005/state.json")).unwrap();
        assert_eq!(state.contains("\"rollout\""), iterations > 1);
        let clipped = values(&run, "clip_share");
        assert_eq!(clipped.len(), 12);
        for (step, clipped) in clipped.iter().enumerate() {
            // The first step on a rollout trains the model that has sampled it.
            assert!(
                *clipped == 0.0 || step % iterations != 0,
                "step {step}: {clipped}"
            );
        }
        let kl = values(&run, "kl");
        match beta > 0.0 {
            true => assert!(kl[0].abs() < 1e-6 && kl[11] > 1e-6, "{kl:?}"),
            false => assert!(kl.is_empty()),
        }
        let rewards = values(&run, "reward");
        assert!(rewards.iter().any(|reward| *reward > 0.0), "{rewards:?}");
        let limits = values(&run, "limit_share");
        assert!(limits.iter().all(|share| (0.0..=1.0).contains(share)));
        // Evaluations show a completion.
        let events = events::read(&run).unwrap().events;
        let is_sample = |event: &&Event| matches!(event, Event::Sample { text, .. } if text.contains("=") && text.contains("[reward: "));
        assert_eq!(events.iter().filter(is_sample).count(), 2);
        assert_eq!(evaluations(&run).len(), 2);
    }
}

#[test]
fn division_into_micro_batches_does_not_change_the_samples() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let first_rewards = |micro_batch: usize, slots: usize| {
        let objective = GrpoConfig {
            slots,
            ..grpo(vec![digits()])
        };
        let mut config = grpo_config(objective, sums(folder.path()));
        (config.train.micro_batch, config.train.accumulation) = (micro_batch, 8 / micro_batch);
        config.train.steps = 1;
        let out = folder.path().join(format!("{micro_batch}"));
        run(&config, &out).unwrap();
        (values(&out, "reward"), values(&out, "completion_tokens"))
    };
    let whole = first_rewards(8, 16);
    assert_eq!(first_rewards(2, 16), whole);
    assert_eq!(first_rewards(4, 16), whole);
}

#[test]
fn unusable_prompts_and_settings_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let error = |contents: &str, change: fn(&mut GrpoConfig)| {
        let data = records(folder.path(), "broken.jsonl", contents);
        let mut objective = grpo(vec![exact_match()]);
        change(&mut objective);
        let found = run(&grpo_config(objective, data), &folder.path().join("run"));
        assert!(!folder.path().join("run").exists());
        found.unwrap_err().to_string()
    };
    let good = "{\"prompt\": \"a\", \"answer\": \"b\"}\n";
    let same = |_: &mut GrpoConfig| {};
    let missing = error(&format!("{good}{{\"prompt\": \"a\"}}\n"), same);
    assert!(
        missing.contains("broken.jsonl: line 2: `answer` is missing"),
        "{missing}"
    );
    assert!(error(good, same).contains("at least 2 records"));
    let messages = "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"answer\": \"b\"}\n";
    assert!(error(&messages.repeat(2), same).contains("no chat template"));
    let long = "{\"prompt\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", \"answer\": \"b\"}\n";
    assert!(error(&long.repeat(4), same).contains("at least 2 records"));
    let good = good.repeat(4);
    for (change, rule) in [
        (
            (|c| c.group = 1) as fn(&mut GrpoConfig),
            "group = 1: must be at least 2",
        ),
        (
            |c| c.group = 3,
            "group = 3: must divide the 8 completions of a step",
        ),
        (|c| c.max_new_tokens = 20, "must leave room for a prompt"),
        (|c| c.rewards.clear(), "must have at least one reward"),
        (|c| c.temperature = 0.0, "temperature = 0: must be above 0"),
    ] {
        let found = error(&good, change);
        assert!(found.contains(rule), "{found}");
    }
}

/// A learning rate that falls to 0.
fn linear(learning_rate: f64) -> ScheduleConfig {
    ScheduleConfig::Linear(DecayConfig {
        learning_rate,
        min_learning_rate: 0.0,
        warmup_steps: 10,
        ..DecayConfig::default()
    })
}

/// A model that has seen sums of which half are wrong.
fn trained_on_wrong_sums(folder: &Path) -> PathBuf {
    let line = |i: usize| {
        let (a, b) = (i % 10, i / 10 % 10);
        // Right, or off by one or two.
        let off = [0, 1, 2, 3, 4, 2, 2, 2][i / 100 % 8];
        format!(
            "{{\"text\": \"{a}+{b}={}\"}}\n",
            (a + b + off).saturating_sub(2)
        )
    };
    let input = folder.join("wrong.jsonl");
    fs::write(&input, (0..4000).map(line).collect::<String>()).unwrap();
    let options = PrepareOptions {
        tokenizer: "byte".parse().unwrap(),
        ..PrepareOptions::default()
    };
    let data = folder.join("data");
    prepare(&[input], &data, &options, &|_| {}).unwrap();
    let mut raw = families::preset("char-nano").unwrap().config;
    (raw.seq_len, raw.d_model, raw.n_layers, raw.heads) = (32, 64, 2, 4);
    let next_token = ObjectiveConfig::NextToken(NextTokenConfig::default());
    let mut config = config(raw, next_token, DataConfig::of(data));
    (config.train.steps, config.train.micro_batch) = (1500, 16);
    config.train.accumulation = 1;
    config.train.seq_len = 32;
    config.train.log_interval = 1000;
    config.train.evaluation.interval = 1500;
    config.train.schedule = linear(2e-3);
    let out = folder.join("base");
    run(&config, &out).unwrap();
    out
}

#[test]
fn a_model_learns_sums_from_rewards() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let base = Model::open(trained_on_wrong_sums(folder.path())).unwrap();
    let sums = sums(folder.path());
    for seed in 1..=3 {
        let objective = GrpoConfig {
            group: 8,
            max_new_tokens: 4,
            slots: 16,
            ..grpo(vec![exact_match()])
        };
        let data = DataConfig {
            validation: sums.dataset.clone(),
            ..sums.clone()
        };
        let mut config = grpo_config(objective, data);
        config.model = base.config().raw();
        config.train.steps = 150;
        (config.train.micro_batch, config.train.accumulation) = (8, 8);
        config.train.seq_len = 32;
        config.train.seed = seed;
        config.train.schedule = linear(1e-3);
        config.train.evaluation.interval = 150;
        let out = folder.path().join(format!("rewarded-{seed}"));
        let decoder = base.decoder(&Default::default()).unwrap();
        start(&config, &out, Some(RunWeights::from(decoder))).unwrap();
        let rewards = values(&out, "reward");
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let (first, last) = (mean(&rewards[..10]), mean(&rewards[140..]));
        println!("seed {seed}: {first:.3} to {last:.3}");
        // The share of right answers among the sampled ones.
        assert!(last > first + 0.1, "seed {seed}: {first} to {last}");
    }
}

#[cfg(unix)]
#[test]
fn a_failing_command_ends_the_run_with_a_checkpoint() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // Fails from the third step on.
    let script = format!(
        "echo >> {0}/calls; [ $(wc -l < {0}/calls) -le 16 ] && echo 1",
        folder.path().display()
    );
    let command = RewardConfig::Command(CommandConfig {
        command: vec!["sh".to_owned(), "-c".to_owned(), script],
        ..CommandConfig::default()
    });
    let config = grpo_config(grpo(vec![command]), sums(folder.path()));
    let out = folder.path().join("run");
    let error = run(&config, &out).unwrap_err().to_string();
    assert_eq!(
        error,
        "8 of 8 completions lack a reward: `sh` failed with exit status: 1"
    );
    assert_eq!(values(&out, "reward"), [1.0, 1.0]);
    assert!(out.join("checkpoints/step-00000002").exists());
}
