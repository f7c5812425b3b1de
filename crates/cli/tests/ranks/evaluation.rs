//! Evaluation divided among ranks equals that of one process, to the bit.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::{process_of_rank, wait_until};
use crate::support::train::{TINY, TINY_ENCODER, TINY_ENCODER_DECODER};
use crate::support::{CommandOutput, Sandbox};

/// The output of `emberlm LINE` on several ranks, which must equal that of one process: what is printed, and each
/// warning, once.
#[track_caller]
fn same_on_ranks(sandbox: &Sandbox, ranks: usize, line: &str) {
    let one = sandbox.succeeds(line);
    let ran = sandbox.launched(&[(ranks, line)]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(one.stdout, ran.stdout, "{line}");
    assert_eq!(warnings(&one), warnings(&ran), "{line}");
}

/// The lines that warn, without what the launcher writes.
fn warnings(ran: &CommandOutput) -> Vec<&str> {
    let lines = ran.stderr.lines();
    lines.filter(|line| line.starts_with("warning:")).collect()
}

/// A sandbox with a dataset `data` of several documents.
fn with_documents() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in 0..20 {
        let lines = (0..20 + name).map(|i| format!("{i} and {name} make {}\n", i + name));
        sandbox.write(&format!("docs/{name:02}.txt"), lines.collect::<String>());
    }
    sandbox.ok("prepare docs --out data --tokenizer byte");
    sandbox
}

#[test]
fn eval_prints_the_same_on_any_number_of_ranks() {
    let sandbox = with_documents();
    sandbox.trains("--data data --steps 3 --out run");
    // 16 windows and a shorter one, in one batch or in 17: fewer batches than ranks, and some ranks have one more.
    for (ranks, options) in [
        (3, "--batch 1 --json"),
        (2, "--batch 4 --json --per-position"),
        (3, "--batch 100 --documents isolated"),
        (2, "--batch 2 --split train --json"),
    ] {
        same_on_ranks(&sandbox, ranks, &format!("eval run --data data {options}"));
    }
    let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/tasks");
    let model = tasks.join("model");
    for task in ["hellaswag", "lambada"] {
        let file = tasks.join(format!("{task}.jsonl"));
        let (model, file) = (model.display(), file.display());
        let line = format!("eval {model} --{task} {file} --json --batch 5");
        same_on_ranks(&sandbox, 3, &line);
    }
}

#[test]
fn ranks_that_evaluate_differently_are_refused() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --steps 2 --out run");
    sandbox.trains("--data data --steps 2 --seed 5 --out other");
    let line = "eval run --data data";
    for (other, expected) in [
        ("eval run --data data --batch 3", "--batch-size is 3"),
        (
            "eval run --data data --split train",
            "the hash of the split",
        ),
        ("eval other --data data", "the hash of the weights"),
    ] {
        let ran = sandbox.launched(&[(1, line), (1, other)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran}");
        let expected =
            format!("error: rank 1 of 2 does not evaluate the same as rank 0: {expected}");
        ran.says(&expected);
    }
}

#[test]
fn evaluations_during_training_equal_those_of_one_process() {
    let sandbox = with_documents();
    let labelled = (0..60).map(|i| {
        let label = ["odd", "even"][usize::from(i % 2 == 0)];
        format!("{{\"text\": \"the number {i}\", \"label\": \"{label}\"}}\n")
    });
    sandbox.write("labelled.jsonl", labelled.collect::<String>());
    let pairs = (0..60).map(|i| {
        let [good, bad] = [2 * i + 1, i];
        format!(
            "{{\"prompt\": \"{i} \", \"chosen\": \"make {good}\", \"rejected\": \"make {bad}\"}}\n"
        )
    });
    sandbox.write("pairs.jsonl", pairs.collect::<String>());
    sandbox.trains("--data data --steps 2 --out base");
    sandbox.write_sources();
    let masks = format!("train --objective mlm --data data {TINY_ENCODER}");
    sandbox.succeeds(&format!("{masks} --steps 2 --renderer plain --out bert"));
    let plain = "--renderer plain";
    let common = "--accumulation 2 --steps 6 --eval-interval 3 --set train.micro_batch=2 \
        --set train.evaluation.batch=1";
    for (name, line) in [
        ("windows", format!("train {TINY} --data data {common}")),
        (
            "documents",
            format!(
                "train {TINY} --data data --documents isolated {common} --set train.evaluation.tokens=100"
            ),
        ),
        ("masks", format!("{masks} {plain} {common}")),
        (
            "targets",
            format!(
                "train --objective seq2seq --data sources.jsonl {TINY_ENCODER_DECODER} --set data.tokenizer=byte {plain} {common}"
            ),
        ),
        (
            "labels",
            format!(
                "train --from bert --objective classify --data labelled.jsonl {plain} {common}"
            ),
        ),
        (
            "dpo",
            format!("train --from base --objective dpo --data pairs.jsonl {plain} {common}"),
        ),
    ] {
        let (one, two) = (format!("{name}-1"), format!("{name}-2"));
        sandbox.succeeds(&format!("{line} --out {one}"));
        sandbox.launches(&[(2, &format!("{line} --out {two}"))]);
        let found = sandbox.events(&two, "evaluation");
        assert_eq!(found.len(), 2, "{name}");
        assert_eq!(sandbox.events(&one, "evaluation"), found, "{name}");
    }
}

#[test]
fn a_stop_of_any_rank_interrupts_an_evaluation_and_a_resumed_run_repeats_it() {
    let sandbox = Sandbox::new();
    let lines = (0..20_000).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
    sandbox.write("text.txt", lines.collect::<String>());
    let prepared = sandbox.words("prepare text.txt --out data --tokenizer char --val-fraction 0.4");
    prepared.ok();
    for rank in [0, 1] {
        let out = format!("run-{rank}");
        let line = format!(
            "train {TINY} --data data --accumulation 2 --steps 8 --eval-interval 4 --out {out} \
            --set train.evaluation.batch=1 --set train.evaluation.tokens=0"
        );
        let mut command = sandbox.launcher(&[(2, &line)]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_until("step 4", || sandbox.events_so_far(&out, "step") == 4);
        let process = Pid::from_raw(process_of_rank(child.id(), rank)).unwrap();
        kill_process(process, Signal::TERM).unwrap();
        let stopped = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(sandbox.events(&out, "evaluation").is_empty(), "rank {rank}");
        // The whole evaluation takes several seconds.
        println!("rank {rank}: stopped after {:?}", stopped.elapsed());
        let line = format!("train --resume {out} --steps 5 --renderer plain");
        sandbox.launches(&[(2, &line)]);
        let steps = sandbox.events(&out, "evaluation");
        let steps: Vec<_> = steps.iter().map(|event| &event["step"]).collect();
        assert_eq!(steps, [4, 5]);
    }
    assert_eq!(
        sandbox.events("run-0", "evaluation"),
        sandbox.events("run-1", "evaluation")
    );
}
