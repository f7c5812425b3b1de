//! Errors of `train`.

use super::support::Sandbox;

/// A sandbox with a small char dataset `data`.
fn with_data() -> Sandbox {
    Sandbox::with_text("a few words to learn from\n".repeat(30), "char")
}

#[test]
fn settings_datasets_and_folders_that_cannot_be_used() {
    let sandbox = with_data();
    sandbox.write("run/config.toml", "");
    sandbox.check_messages("train_errors");
}

/// A batch script of an allocation of four tasks runs once.
#[test]
fn a_batch_script_is_no_job_of_several_ranks() {
    let sandbox = with_data();
    let mut command = sandbox.command(["train", "--print-config"]);
    command.envs([("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]);
    assert!(command.output().unwrap().status.success());
}

/// The variables of `torchrun` and of the operators of Kubernetes.
#[test]
fn incomplete_variables_of_a_launcher() {
    let sandbox = with_data();
    for (variables, expected) in [
        (
            &[("RANK", "0"), ("WORLD_SIZE", "2")][..],
            "error: MASTER_ADDR is not set, but WORLD_SIZE is\n",
        ),
        (
            &[
                ("RANK", "2"),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "localhost"),
            ],
            "error: RANK = 2: must be less than WORLD_SIZE, which is 2\n",
        ),
    ] {
        let mut command = sandbox.command(["train", "--data", "data", "--out", "run"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.starts_with(expected), "{message}");
        let hint = "hint: start one process without these variables";
        assert!(message.contains(hint), "{message}");
    }
}
