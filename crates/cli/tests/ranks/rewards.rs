//! Runs that learn from rewards on several ranks equal those of one process, to the bit.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::launch::Launcher;
use crate::launch::{process_of_rank, wait_until};
use crate::support::Sandbox;

/// Groups of 4 completions in micro-batches of 6, so the second group lies in those of both ranks. A part that is sampled
/// together has one group in 5 slots.
const SETTINGS: &str = "--from base --data sums.jsonl --set train.micro_batch=6 --accumulation 2 --set train.log_interval=1 \
    --set train.schedule.decay_steps=50 --set train.schedule.learning_rate=0.003 --eval-interval 3 --renderer plain";

/// A sandbox with a model `base`, the prompts `sums.jsonl`, and the objective `NAME.toml` with `settings` and `rewards`.
fn with_objective(name: &str, settings: &str, rewards: &str) -> Sandbox {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --steps 20 --out base");
    let record = |i: usize| {
        let (first, second) = (i % 10, i * i % 90);
        let sum = first + second;
        format!("{{\"prompt\": \"{first} and {second} make \", \"answer\": {sum}}}\n")
    };
    sandbox.write("sums.jsonl", (0..80).map(record).collect::<String>());
    add_objective(&sandbox, name, settings, rewards);
    sandbox
}

fn add_objective(sandbox: &Sandbox, name: &str, settings: &str, rewards: &str) {
    let objective = format!(
        "[train.objective]\nkind = \"grpo\"\ngroup = 4\nmax_new_tokens = 7\nslots = 5\n{settings}\n{rewards}"
    );
    sandbox.write(&format!("{name}.toml"), objective);
}

const DIGITS: &str = "[[train.objective.rewards]]\nkind = \"regex\"\npattern = \"^[0-9]{2}\"\n
    [[train.objective.rewards]]\nkind = \"regex\"\npattern = \"[amk]\"\nweight = 0.3\n";

/// Asserts that two runs have the same checkpoint after `step` steps and the same log.
#[track_caller]
fn assert_same_runs(sandbox: &Sandbox, [one, other]: [&str; 2], step: usize) {
    for kind in ["step", "evaluation", "sample"] {
        let found = sandbox.events(other, kind);
        assert!(!found.is_empty(), "{kind}");
        assert_eq!(sandbox.events(one, kind), found, "{kind}");
    }
    assert!(
        sandbox.checkpoint(one, step) == sandbox.checkpoint(other, step),
        "{one} and {other}"
    );
}

#[test]
fn ranks_that_sample_equal_one_process_and_are_resumed_exactly() {
    // A checkpoint after 4 steps is within the second rollout of three steps, and holds it.
    let sandbox = with_objective("several", "iterations = 3\nbeta = 0.1", DIGITS);
    add_objective(
        &sandbox,
        "one",
        "loss = \"bnpo\"\nscale_rewards = \"batch\"\nbeta = 0.02",
        DIGITS,
    );
    for (objective, options) in [("several", ""), ("one", "--adapter lora")] {
        let line = format!("train --config {objective}.toml {SETTINGS} {options}");
        let runs @ [whole, ranks, moved] =
            &["whole", "ranks", "moved"].map(|run| format!("{run}-{objective}"));
        sandbox.succeeds(&format!("{line} --steps 7 --out {whole}"));
        sandbox.launches(&[(2, &format!("{line} --steps 7 --out {ranks}"))]);
        sandbox.launches(&[(2, &format!("{line} --steps 4 --out {moved}"))]);
        let resume = format!("train --resume {moved} --renderer plain");
        sandbox.succeeds(&format!("{resume} --steps 5"));
        sandbox.launches(&[(2, &format!("{resume} --steps 7"))]);
        assert_same_runs(&sandbox, [whole, ranks], 7);
        assert!(sandbox.checkpoint(whole, 7) == sandbox.checkpoint(moved, 7));
        let steps = runs.each_ref().map(|run| sandbox.events(run, "step"));
        // A run that was stopped and resumed has more evaluations, so its lines have other numbers.
        let figures = |step: &Value| (step["loss"].clone(), step["metrics"].clone());
        let [whole, _, moved] = &steps;
        let [whole, moved] = [whole, moved].map(|of| of.iter().map(figures).collect::<Vec<_>>());
        assert_eq!(whole, moved);
        // Something was learnt, in which all completions count.
        let rewards = steps[0].iter().map(|step| &step["metrics"]["reward_std"]);
        assert!(rewards.clone().any(|std| std.as_f64() > Some(0.0)));
        assert!(steps[0].iter().all(|step| step["learnt"] == 12));
    }
}

#[test]
fn a_reward_command_that_fails_on_one_rank_ends_the_job_with_its_rank() {
    let command =
        "[[train.objective.rewards]]\nkind = \"command\"\ncommand = [\"sh\", \"judge.sh\"]\n";
    let sandbox = with_objective("judged", "", command);
    // Each rank rewards two of the four parts of a step. The command fails on rank 1 from the third step on.
    let judge = "calls=calls-$RANK; echo >> $calls\n\
        [ $RANK = 1 ] && [ $(wc -l < $calls) -gt 16 ] && exit 3\necho 1\n";
    sandbox.write("judge.sh", judge.replace("RANK", Launcher::chosen().rank()));
    let line = format!(
        "train --config judged.toml {SETTINGS} --set train.micro_batch=8 --set train.checkpoints.interval=1 --steps 6 --out run"
    );
    let ran = sandbox.launched(&[(2, &line)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran}");
    let host = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let expected = format!(
        "error: rank 1 of 2 on {}: 8 of 16 completions lack a reward: `sh` failed with exit status: 3",
        host.trim()
    );
    ran.says(&expected);
    assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran}");
    assert_eq!(sandbox.losses("run").len(), 2);
    assert!(sandbox.path("run/checkpoints/step-00000002").exists());
}

#[test]
fn a_stop_of_any_rank_interrupts_sampling_and_the_resumed_run_repeats_it() {
    let command =
        "[[train.objective.rewards]]\nkind = \"command\"\ncommand = [\"sh\", \"judge.sh\"]\n";
    let sandbox = with_objective("judged", "", command);
    sandbox.write("judge.sh", "sleep 0.1; tr -dc 0-9 | wc -c\n");
    let line = format!("train --config judged.toml {SETTINGS} --steps 6");
    sandbox.launches(&[(2, &format!("{line} --out whole"))]);
    let mut command = sandbox.launcher(&[(2, &format!("{line} --out run"))]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("step 1", || sandbox.events_so_far("run", "step") == 1);
    let process = Pid::from_raw(process_of_rank(child.id(), 1)).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(sandbox.losses("run").len() < 6);
    let resume = "train --resume run --renderer plain";
    sandbox.launches(&[(2, resume)]);
    assert_same_runs(&sandbox, ["whole", "run"], 6);
}
