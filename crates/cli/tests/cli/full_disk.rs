//! Full disks, simulated by a limit on the file size. The signal is ignored, so that writes fail with an error instead.

use std::fs;

use emberlm_model::{ModelConfig, families};

use super::support::Sandbox;
use super::support::model::write_run;

#[test]
fn export_reports_a_full_disk() {
    let sandbox = Sandbox::with_char_model();
    fs::remove_dir_all(sandbox.path("run")).unwrap();
    let config = ModelConfig {
        seq_len: 8,
        d_model: 16,
        n_layers: 2,
        heads: 2,
        head_dim: Some(8),
        vocab_size: Some(100),
        ..families::preset("gpt2").unwrap().config
    };
    write_run(&sandbox.path("run"), &config, None, &[1]);
    sandbox.check_messages("full_disk_export");
}

#[test]
fn pictures_are_written_atomically() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --steps 4");
    sandbox.write("a.svg", "before");
    sandbox.check_messages("full_disk_plot");
}

#[test]
fn a_failed_checkpoint_is_reported() {
    let sandbox = Sandbox::with_data();
    let line = format!(
        "train {} --data data --out run --steps 2",
        super::support::train::TINY
    );
    let ran = sandbox.sh(&format!(
        "trap '' XFSZ; ulimit -f 40; exec \"$EMBERLM\" {line}"
    ));
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("without a checkpoint: ");
    ran.says("File too large");
}

#[test]
fn prepare_reports_a_full_disk() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "hello small world\n".repeat(2000));
    sandbox.check_messages("full_disk_prepare");
}
