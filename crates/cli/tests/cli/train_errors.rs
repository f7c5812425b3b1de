//! Errors of `train`.

use super::support::Sandbox;

fn refused(sandbox: &Sandbox, line: &str) -> String {
    let ran = sandbox.words(&format!("train --renderer plain {line}"));
    assert!(matches!(ran.code, Some(1 | 2)), "{ran}");
    assert_eq!(ran.stdout, "");
    ran.stderr
}

fn with_data() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "a few words to learn from\n".repeat(30));
    sandbox
        .words("prepare text.txt --out data --tokenizer char")
        .ok();
    sandbox
}

#[test]
fn keys_and_values_by_name() {
    let sandbox = with_data();
    for (line, expected) in [
        ("--set model.d_modle=8", "unknown field `d_modle`"),
        ("--set train.steps=many", "train.steps"),
        (
            "--set train.schedule.learning_rate=nan",
            "train.schedule.learning_rate = NaN: must be 0 or above",
        ),
        (
            "--set train.schedule.cooldown_steps=5",
            "unknown field `cooldown_steps`, expected one of `learning_rate`",
        ),
        (
            "--set train.micro_batch=0",
            "train.micro_batch = 0: must be at least 1",
        ),
        (
            "--set model.heads=5 --data data",
            "model.heads = 5: must divide d_model = ",
        ),
        (
            "--set model.vocab_size=3 --data data",
            "model.vocab_size = 3: must be at least the dataset's",
        ),
        ("--preset nothing", "unknown preset `nothing`"),
        ("--config nowhere.toml", "cannot read nowhere.toml"),
    ] {
        let message = refused(&sandbox, line);
        assert!(message.contains(expected), "{line}:\n{message}");
    }
    // No run was started.
    assert_eq!(sandbox.names(), ["data", "text.txt"]);
}

#[test]
fn a_window_longer_than_the_dataset() {
    let sandbox = with_data();
    let message = refused(&sandbox, "--data data --out run --set model.seq_len=4096");
    assert!(
        message.contains("4096") || message.contains("4097"),
        "{message}"
    );
    assert!(message.contains("hint: "), "{message}");
    assert!(!sandbox.path("run").exists());
}

#[test]
fn missing_datasets_are_reported() {
    let sandbox = Sandbox::new();
    let message = refused(&sandbox, "--data nowhere");
    assert!(
        message.contains("nowhere") && message.contains("hint: "),
        "{message}"
    );
}

#[test]
fn a_directory_that_holds_a_run() {
    let sandbox = with_data();
    sandbox.write("run/config.toml", "");
    let message = refused(&sandbox, "--data data --out run");
    assert!(message.contains("run already holds a run"), "{message}");
    assert!(message.contains("hint: "), "{message}");
}

#[test]
fn a_dashboard_without_a_terminal() {
    let sandbox = with_data();
    let ran = sandbox.words("train --data data --renderer dashboard");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("needs a terminal"), "{ran}");
}

/// The variables are those of Open MPI, MPICH and Slurm.
#[cfg(not(feature = "mpi"))]
#[test]
fn copies_of_a_run_that_a_launcher_started() {
    let sandbox = with_data();
    for variables in [
        &[("OMPI_COMM_WORLD_SIZE", "4")][..],
        &[("PMI_SIZE", "4")],
        &[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")],
        &[("PMIX_RANK", "1")],
    ] {
        let mut command = sandbox.command(["train", "--data", "data", "--out", "run"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        let (name, value) = variables[0];
        let expected = format!(
            "error: a launcher started several processes ({name} = {value}), but this binary was built without MPI"
        );
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains("hint: build with MPI"), "{message}");
    }
    assert!(!sandbox.path("run").exists());
    // A batch script of an allocation of four tasks runs once.
    let mut command = sandbox.command(["train", "--print-config"]);
    command.envs([("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]);
    assert!(command.output().unwrap().status.success());
}
