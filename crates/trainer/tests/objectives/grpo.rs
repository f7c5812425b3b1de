//! Group relative policy optimization: advantages, losses, gradients and AdamW steps against TRL, and whole runs.

use std::collections::BTreeMap;
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_checkpoint::Model;
use emberlm_data::{PrepareOptions, prepare};
use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{IGNORED, Tokens, TrainingPass, families};
use emberlm_trainer::clip::{clip_factor, global_norm};
use emberlm_trainer::config::{
    AdamWConfig, CommandConfig, DecayConfig, ExactMatchConfig, GrpoConfig, GrpoLoss,
    NextTokenConfig, ObjectiveConfig, RegexConfig, RewardConfig, RewardScale, ScheduleConfig,
};
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::optimizer::Optimizer;
use emberlm_trainer::{
    CompletionBatch, DataConfig, OptimizerConfig, PolicyBatch, PolicyLoss, PolicySequence,
    RunConfig, RunWeights, TokenBatch, TrainConfig, TrainingModel, advantages,
};
use serde_json::Value;

use super::parity::{File, value};
use super::runs::{check_resume, config, evaluations, run, start};
use crate::common::alone;

/// TRL computes log-probabilities in f32; the largest relative errors that were found are about a third of these.
const LOSS: f64 = 2e-5;
const NORM: f64 = 5e-5;

/// Parameters that are stored in the same form here and by transformers.
const SAME_PARAMETERS: [(&str, [&str; 2]); 5] = [
    (
        "tokens",
        ["transformer.wte.weight", "model.embed_tokens.weight"],
    ),
    ("head", ["lm_head.weight", ""]),
    (
        "norm_final.gain",
        ["transformer.ln_f.weight", "model.norm.weight"],
    ),
    (
        "blocks.0.attention.out.weight",
        [
            "transformer.h.0.attn.c_proj.weight",
            "model.layers.0.self_attn.o_proj.weight",
        ],
    ),
    (
        "blocks.1.feed_forward.down.weight",
        [
            "transformer.h.1.mlp.c_proj.weight",
            "model.layers.1.mlp.down_proj.weight",
        ],
    ),
];

/// The norms of gradients by the paths of their parameters.
struct Norms<'a, I> {
    grads: &'a GradientsParams,
    norms: BTreeMap<String, f64>,
    backend: PhantomData<I>,
}

impl<I: Backend> ParamVisitor<Autodiff<I>> for Norms<'_, I>
where
    Autodiff<I>: TrainingBackend<InnerBackend = I>,
{
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, _: Tensor<Autodiff<I>, D>) {
        if let Some(grad) = self.grads.get::<I, D>(id) {
            let norm = value(grad.square().sum().sqrt());
            self.norms.insert(path.to_owned(), norm);
        }
    }
}

/// The fixture of TRL.
struct Fixture {
    file: File,
    prompts: Vec<Vec<i32>>,
    completions: Vec<Vec<i32>>,
    group: usize,
    max_tokens: usize,
}

impl Fixture {
    fn open() -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let file = File::read(root.join("grpo.safetensors"));
        let read = |name: &str| file.metadata(name);
        Self {
            prompts: serde_json::from_str(&read("prompts")).unwrap(),
            completions: serde_json::from_str(&read("completions")).unwrap(),
            group: serde_json::from_str(&read("group")).unwrap(),
            max_tokens: serde_json::from_str(&read("max_tokens")).unwrap(),
            file,
        }
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.file.metadata(name)).unwrap()
    }

    /// A row of log-probabilities for each completion.
    fn rows(&self, name: &str) -> Vec<Vec<f64>> {
        let values = self.file.values(name).0;
        let rows = values.chunks(self.max_tokens).zip(&self.completions);
        rows.map(|(row, ids)| row[..ids.len()].to_vec()).collect()
    }

    fn batch<B: Backend>(&self, loss: PolicyLoss, sequences: Vec<PolicySequence>) -> TokenBatch<B> {
        let count = self.completions.len();
        let prompt = self.prompts[0].len();
        let seq = prompt + self.max_tokens;
        let (mut ids, mut targets) = (Vec::new(), Vec::new());
        for (row, completion) in self.completions.iter().enumerate() {
            ids.extend(self.prompts[row / self.group].iter().chain(completion));
            ids.resize((row + 1) * seq, 0);
            targets.resize(row * seq + prompt - 1, IGNORED);
            targets.extend(completion);
            targets.resize((row + 1) * seq, IGNORED);
        }
        let tensor = |values: Vec<i32>| {
            let data = TensorData::new(values, [count, seq]);
            Tensor::<B, 2, Int>::from_data(data, &Default::default())
        };
        TokenBatch {
            tokens: Tokens {
                ids: tensor(ids),
                documents: None,
            },
            segments: None,
            padding: None,
            targets: tensor(targets),
            learnt: count,
            completions: Some(CompletionBatch::Policy(PolicyBatch {
                loss,
                sequences: sequences.into(),
            })),
        }
    }
}

fn check_steps<I: Backend>(fixture: &Fixture, model_name: &str, case: &str, recompute: bool)
where
    Autodiff<I>: TrainingBackend<InnerBackend = I>,
{
    let number = |value: &Value| value.as_f64().unwrap();
    let (settings, case_settings) = (fixture.json("adamw"), &fixture.json("cases")[case]);
    let expected = |name: &str| {
        fixture
            .file
            .values(&format!("{model_name}/{case}/{name}"))
            .0
    };
    let near = |what: &str, found: f64, expected: f64, limit: f64| {
        let error = (found - expected).abs() / expected.abs().max(1.0);
        assert!(
            error < limit,
            "{model_name}, {case}: the {what} {found} differs from {expected} by {error:e}"
        );
    };

    let rewards = match case_settings.get("unscored") {
        Some(_) => fixture.json("unscored"),
        None => fixture.json("rewards"),
    };
    let rewards: Vec<Option<f64>> = serde_json::from_value(rewards).unwrap();
    let scale: RewardScale =
        serde_json::from_value(case_settings["scale_rewards"].clone()).unwrap();
    let advantages = advantages(&rewards, fixture.group, scale);
    // TRL holds rewards in f32.
    for (found, expected) in advantages.iter().zip(expected("advantages")) {
        near("advantage", *found, expected, 1e-6);
    }

    let beta = number(&case_settings["beta"]);
    let loss = PolicyLoss {
        epsilon_low: 0.2,
        epsilon_high: case_settings.get("epsilon_high").map_or(0.2, number),
        beta,
    };
    let lengths: Vec<usize> = fixture.completions.iter().map(Vec::len).collect();
    let (count, tokens) = (lengths.len() as f64, lengths.iter().sum::<usize>() as f64);
    let (old, reference) = (
        fixture.rows(&format!("{model_name}/{case}/old")),
        fixture.rows(&format!("{model_name}/{case}/reference")),
    );
    let sequences: Vec<PolicySequence> = (0..lengths.len())
        .map(|row| PolicySequence {
            completion: fixture.prompts[0].len() - 1..fixture.prompts[0].len() - 1 + lengths[row],
            advantage: advantages[row],
            scale: match case_settings["loss"].as_str().unwrap() {
                "grpo" => 1.0 / lengths[row] as f64,
                "dr_grpo" => 1.0 / fixture.max_tokens as f64,
                _ => count / tokens,
            },
            old: match case_settings["first"] == true {
                true => Vec::new(),
                false => old[row].clone(),
            },
            reference: match beta > 0.0 {
                true => reference[row].clone(),
                false => Vec::new(),
            },
            reward: rewards[row],
            deviation: 0.0,
            reached_limit: false,
        })
        .collect();

    let train = TrainConfig {
        clip_norm: number(&settings["clip"]),
        optimizer: OptimizerConfig::AdamW(AdamWConfig {
            beta1: number(&settings["betas"][0]),
            beta2: number(&settings["betas"][1]),
            epsilon: number(&settings["eps"]),
            weight_decay: number(&settings["weight_decay"]),
        }),
        ..TrainConfig::default()
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/families");
    let directory = HuggingFaceModel::open(&root.join(model_name)).unwrap();
    let decoder = directory.decoder::<Autodiff<I>>(&Default::default());
    let mut model: TrainingModel<Autodiff<I>> = decoder.unwrap().into();
    let mut optimizer = Optimizer::<I>::new(&train, model.parameters());
    let (losses, norms) = (expected("losses"), expected("norms"));
    let (clipped, kl) = (expected("clip_share"), expected("kl"));
    for step in 0..losses.len() {
        let batch = fixture.batch(loss, sequences.clone());
        let values = model.valid().completion_scores(&batch).values();
        near(
            "clipped share",
            values.get("clip_share").unwrap(),
            clipped[step],
            1e-6,
        );
        if beta > 0.0 {
            near("KL", values.get("kl").unwrap(), kl[step], LOSS);
        }
        let pass = TrainingPass {
            recompute,
            ..TrainingPass::default()
        };
        let (loss, grads, _) = model.loss_and_gradients(
            fixture.batch(loss, sequences.clone()),
            lengths.len(),
            HeadLossOptions::default(),
            pass,
            None,
        );
        near("loss", value(loss), losses[step], LOSS);
        if step == 0 {
            let names: Vec<String> =
                serde_json::from_value(fixture.json("parameters")[model_name].clone()).unwrap();
            let published: BTreeMap<String, f64> =
                names.into_iter().zip(expected("of_parameters")).collect();
            let mut visitor = Norms::<I> {
                grads: &grads,
                norms: BTreeMap::new(),
                backend: PhantomData,
            };
            visit_params(&model, &mut visitor);
            for (path, names) in SAME_PARAMETERS {
                let published = names.iter().filter_map(|name| published.get(*name)).next();
                if let (Some(found), Some(expected)) = (visitor.norms.get(path), published) {
                    near(path, *found, *expected, NORM);
                }
            }
            assert!(
                visitor.norms.contains_key("tokens"),
                "{:?}",
                visitor.norms.keys()
            );
        }
        let norm = global_norm::<Autodiff<I>, _>(&model, &grads).unwrap();
        near("norm", value(norm.clone()), norms[step], NORM);
        let factor = clip_factor(norm, train.clip_norm);
        let rate = number(&settings["lr"]);
        model = optimizer.update::<Autodiff<I>, _>(model, grads, factor, rate);
    }
}

#[test]
fn advantages_losses_and_steps_are_those_of_trl() {
    let _alone = alone();
    let fixture = Fixture::open();
    for model in ["gpt2-tied", "llama-bias"] {
        for case in ["grpo", "bnpo", "dr_grpo", "dapo", "first", "unscored"] {
            check_steps::<Flex>(&fixture, model, case, false);
        }
    }
    check_steps::<NdArray>(&fixture, "llama-bias", "dapo", false);
    check_steps::<Flex>(&fixture, "gpt2-tied", "dapo", true);
}

/// Sums of two digits.
fn sums(folder: &Path) -> DataConfig {
    let line = |i: usize| {
        let (a, b) = (i % 10, i / 10 % 10);
        format!("{{\"prompt\": \"{a}+{b}=\", \"answer\": {}}}\n", a + b)
    };
    let path = folder.join("sums.jsonl");
    fs::write(&path, (0..100).map(line).collect::<String>()).unwrap();
    DataConfig {
        tokenizer: "byte".to_owned(),
        ..DataConfig::of(path)
    }
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
        let path = folder.path().join("broken.jsonl");
        fs::write(&path, contents).unwrap();
        let data = DataConfig {
            tokenizer: "byte".to_owned(),
            ..DataConfig::of(path)
        };
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
    let base = Model::open(&trained_on_wrong_sums(folder.path())).unwrap();
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
        config.model = base.config().raw().clone().into();
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
