//! Symbolic links in and in place of outputs: nothing outside is changed or removed.

use std::fs;
use std::os::unix::fs::symlink;

use super::support::Sandbox;

impl Sandbox {
    /// A run with checkpoints of the steps 2 and 4 and a folder `outside`.
    fn with_outside() -> Self {
        let sandbox = Self::with_data();
        let settings = "--set train.checkpoints.interval=2 --set train.checkpoints.keep_last=2 \
            --set train.evaluation.interval=2 --set train.evaluation.tokens=64";
        sandbox.trains(&format!("--data data --steps 4 {settings} --out run"));
        fs::create_dir(sandbox.path("outside")).unwrap();
        sandbox.write("outside/file", "precious");
        sandbox
    }

    fn link(&self, link: &str, target: &str) {
        symlink(target, self.path(link)).unwrap();
    }
}

#[test]
fn training_changes_nothing_outside_of_its_run() {
    let sandbox = Sandbox::with_outside();
    for (name, target) in [
        ("lock", "../outside/file"),
        ("events.jsonl", "../outside/file"),
        ("config.toml", "../outside/config.toml"),
        ("ancestry.json", "../outside/none"),
        ("samples", "../outside"),
        ("samples/step-00000006.txt", "../../outside/file"),
        ("checkpoints", "../outside/checkpoints"),
    ] {
        let aside = sandbox.path("aside");
        let path = sandbox.path("run").join(name);
        let existed = fs::rename(&path, &aside).is_ok();
        if existed && aside.is_dir() {
            let copied = format!("cp -r aside outside/{name}");
            assert_eq!(sandbox.sh(&copied).code, Some(0));
        } else if name == "config.toml" {
            fs::copy(&aside, sandbox.path("outside/config.toml")).unwrap();
        }
        symlink(target, &path).unwrap();
        let before = sandbox.sh("ls -lR outside; cat outside/*").stdout;

        for line in [
            "train --resume run --renderer plain --steps 6",
            "train --resume run --restart",
        ] {
            let ran = sandbox.words(line);
            let message = format!("error: run/{name} is a symbolic link");
            assert!(
                ran.code == Some(1) && ran.stderr.contains(&message),
                "{line}: {ran}"
            );
            ran.says("hint: replace the link");
        }
        assert_eq!(
            sandbox.sh("ls -lR outside; cat outside/*").stdout,
            before,
            "{name}"
        );
        // Commands that read follow it.
        if name == "checkpoints" {
            sandbox.ok("generate run --prompt 1 --max-new-tokens 2");
        }

        fs::remove_file(&path).unwrap();
        if existed {
            fs::rename(&aside, &path).unwrap();
        }
    }
    sandbox.link("run/labels.json", "../outside/none");
    let ran = sandbox.words("runs note run hello");
    ran.says("run/labels.json is a symbolic link");
    assert!(!sandbox.path("outside/none").exists());

    // A new run, too.
    fs::create_dir(sandbox.path("new")).unwrap();
    sandbox.link("new/lock", "../outside/file");
    let ran = sandbox.train("--data data --steps 1 --out new");
    ran.says("new/lock is a symbolic link");
    assert_eq!(sandbox.text("outside/file"), "precious");
}

#[test]
fn rotation_removes_links_among_the_checkpoints_and_not_their_targets() {
    let sandbox = Sandbox::with_outside();
    let checkpoints = sandbox.path("run/checkpoints");
    for step in [2, 4] {
        let name = format!("step-{step:08}");
        fs::rename(checkpoints.join(&name), sandbox.path("outside").join(&name)).unwrap();
        symlink(format!("../../outside/{name}"), checkpoints.join(&name)).unwrap();
    }
    symlink("../../outside", checkpoints.join("step-00000001")).unwrap();
    symlink("../../outside", checkpoints.join(".step-00000006.partial")).unwrap();
    symlink("../../outside/gone", checkpoints.join("step-00000006")).unwrap();
    let before = sandbox.sh("ls -lR outside").stdout;
    sandbox.succeeds("train --resume run --renderer plain --steps 8 --keep-last 2");
    assert_eq!(sandbox.sh("ls -lR outside").stdout, before);
    let mut left: Vec<_> = fs::read_dir(&checkpoints)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["step-00000006", "step-00000008"].map(|name| checkpoints.join(name))
    );
    assert!(left.iter().all(|path| path.is_dir() && !path.is_symlink()));
}

#[test]
fn outputs_are_written_to_the_target_of_a_link() {
    let sandbox = Sandbox::with_char_model();
    fs::create_dir(sandbox.path("disk")).unwrap();
    for name in ["new", "model", "model.gguf", "run", "curve.svg"] {
        sandbox.link(&format!("to-{name}"), &format!("disk/{name}"));
    }
    let new = "new --preset llama-nano --vocab-size 30 --set model.d_model=16 --set model.heads=2 --set model.n_layers=1";
    for line in [
        &format!("{new} --out to-new"),
        &format!("{new} --out to-new --force"),
        &format!("{new} --out to-new/ --force"),
    ] {
        sandbox.ok(line);
        assert!(sandbox.path("to-new").is_symlink(), "{line}");
        assert!(sandbox.path("disk/new/model.json").exists(), "{line}");
    }
    for line in [
        "export to-new --format gguf --type f32 --out to-model.gguf",
        "export to-new --format gguf --type f32 --out to-model.gguf --force",
    ] {
        sandbox.ok(line);
        assert!(sandbox.path("to-model.gguf").is_symlink(), "{line}");
        assert!(sandbox.path("disk/model.gguf").is_file(), "{line}");
    }
    sandbox.trains("--data data --steps 2 --out to-run");
    assert!(sandbox.path("to-run").is_symlink());
    sandbox.ok("plot disk/run --out to-curve.svg");
    assert!(sandbox.path("disk/curve.svg").is_file());
    let partial = sandbox.sh("ls -A . disk | grep partial").stdout;
    assert_eq!(partial, "");
}

#[test]
fn circles_of_links_and_special_files_are_refused_as_outputs() {
    Sandbox::with_char_model().check_messages("circles_of_links");
}
