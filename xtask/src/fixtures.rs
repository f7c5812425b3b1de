//! `cargo xtask fixtures`: runs the Python scripts that generate the committed fixtures, and prints the files
//! that differ.
//!
//! Builds and tests use the committed fixtures. Run this task after changing a script or adding a family, or to
//! verify that the fixtures are reproducible.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode},
};

use cargo_metadata::MetadataCommand;

use crate::{
    error::Error,
    python::{Environment, absolute, announced},
    workspace,
};

/// The requirements files of the scripts.
const REQUIREMENTS: [&str; 8] = [
    "crates/cli/tests/fixtures/requirements.txt",
    "crates/data/tests/fixtures/requirements.txt",
    "crates/generate/tests/fixtures/requirements.txt",
    "crates/hub/tests/fixtures/requirements.txt",
    "crates/kernels/tests/fixtures/requirements.txt",
    "crates/model/tests/fixtures/requirements.txt",
    "crates/tokenizer/tests/fixtures/requirements.txt",
    "crates/trainer/tests/fixtures/requirements.txt",
];

const ENVIRONMENT: Environment<'_> = Environment {
    name: "fixtures-venv",
    requirements: &REQUIREMENTS,
};

/// The scripts. Each is listed after the scripts whose output it reads.
const SCRIPTS: &[Script] = &[
    Script::new("crates/cli/tests/fixtures/make_scaling.py"),
    Script::new("crates/data/tests/fixtures/datasets/make.py"),
    Script::new("crates/data/tests/fixtures/make_conversations.py"),
    Script::new("crates/data/tests/fixtures/make_inputs.py"),
    Script::new("crates/generate/tests/fixtures/make_schemas.py"),
    Script::new("crates/generate/tests/fixtures/make_generation_fields.py"),
    Script::new("crates/hub/tests/fixtures/make_cache.py"),
    Script::new("crates/kernels/tests/fixtures/make_blocks.py"),
    Script::new("crates/model/tests/fixtures/make.py"),
    Script::new("crates/model/tests/fixtures/make_families.py"),
    Script::new("crates/model/tests/fixtures/make_text_parts.py"),
    Script::new("crates/model/tests/fixtures/make_activations.py"),
    Script {
        argument: Argument::LlamaCpp,
        ..Script::new("crates/model/tests/fixtures/make_gguf.py")
    },
    Script::new("crates/model/tests/fixtures/make_adapters.py"),
    Script::new("crates/model/tests/fixtures/make_additions.py"),
    Script::new("crates/model/tests/fixtures/make_encoders.py"),
    Script::new("crates/model/tests/fixtures/make_encoder_decoder.py"),
    Script::new("crates/model/tests/fixtures/make_attentions.py"),
    Script::new("crates/serve/tests/fixtures/make_harmony.py"),
    Script::new("crates/trainer/tests/fixtures/make_objectives.py"),
    Script::new("crates/trainer/tests/fixtures/make_preferences.py"),
    Script::new("crates/trainer/tests/fixtures/make_grpo.py"),
    Script::new("crates/model/tests/fixtures/make_gptq.py"),
    Script::new("crates/model/tests/fixtures/make_quantized.py"),
    Script::new("crates/trainer/tests/fixtures/make.py"),
    Script::new("crates/trainer/tests/fixtures/make_variants.py"),
    Script::new("crates/model/tests/fixtures/make_tasks.py"),
    Script::new("crates/model/tests/fixtures/make_harness.py"),
    Script::new("crates/trainer/tests/fixtures/make_harness_metrics.py"),
    Script::new("crates/model/tests/fixtures/make_isolated.py"),
    Script::new("crates/model/tests/fixtures/make_scores.py"),
    Script::new("crates/model/tests/fixtures/make_config_fields.py"),
    Script::new("crates/model/tests/fixtures/make_peft_fields.py"),
    Script {
        argument: Argument::Vocabularies,
        ..Script::new("crates/tokenizer/tests/fixtures/make.py")
    },
    Script {
        repeats: false,
        ..Script::new("crates/tokenizer/tests/fixtures/make_files.py")
    },
    Script {
        argument: Argument::Vocabularies,
        ..Script::new("crates/tokenizer/tests/fixtures/make_chat.py")
    },
    Script::new("crates/tokenizer/tests/fixtures/make_conversations.py"),
    Script::new("crates/tokenizer/tests/fixtures/make_trained.py"),
    Script::new("crates/tokenizer/tests/fixtures/make_sentence_piece.py"),
];

/// The folders that the scripts write, and the files in them that no script generates.
const FIXTURES: [&str; 13] = [
    "crates/cli/tests/fixtures",
    "crates/data/tests/fixtures",
    "crates/generate/tests/fixtures",
    "crates/hub/tests/fixtures",
    "crates/kernels/tests/fixtures",
    "crates/model/tests/fixtures",
    "crates/serve/tests/fixtures",
    "crates/tokenizer/tests/fixtures",
    "crates/trainer/tests/fixtures",
    ":(exclude)*.py",
    ":(exclude)*.mjs",
    ":(exclude)*/zod_schemas.json",
    ":(exclude)*/requirements.txt",
];

/// The crate that carries OpenAI's vocabularies.
const VOCABULARIES: &str = "tiktoken-rs";

/// Arguments of `cargo xtask fixtures`.
#[derive(Clone, Debug, clap::Args)]
pub struct FixturesArgs {
    /// Run the scripts with this Python, which has the packages, instead of a separate environment in the
    /// target folder.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Fail if a file differs from the commit.
    #[arg(long)]
    check: bool,
    /// Also run make_files.py, which retrains its tokenizers and therefore writes different files each time.
    #[arg(long, conflicts_with = "check")]
    retrain: bool,
    /// Also run make_gguf.py, which converts models with this checkout of llama.cpp.
    #[arg(long, value_name = "DIR")]
    llama_cpp: Option<PathBuf>,
}

/// A script that generates fixtures.
struct Script {
    /// The path in the workspace.
    path: &'static str,
    /// The folder that the script takes.
    argument: Argument,
    /// True if the script writes the same bytes in every run.
    repeats: bool,
}

/// A folder that a script takes as its argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    None,
    /// OpenAI's vocabularies.
    Vocabularies,
    /// A checkout of llama.cpp. Without one, the script is left out.
    LlamaCpp,
}

impl Script {
    const fn new(path: &'static str) -> Self {
        Self {
            path,
            argument: Argument::None,
            repeats: true,
        }
    }
}

/// Generates the fixtures and prints what changed.
pub fn run(args: &FixturesArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let python = match &args.python {
        // The scripts run in the workspace's root, whatever the current directory is.
        Some(python) => absolute(python)?,
        None => ENVIRONMENT.python(&metadata, false)?,
    };
    let llama_cpp = args.llama_cpp.as_deref().map(absolute).transpose()?;
    for script in SCRIPTS.iter().filter(|s| s.repeats || args.retrain) {
        if script.argument == Argument::LlamaCpp && llama_cpp.is_none() {
            eprintln!("left out without --llama-cpp: {}", script.path);
            continue;
        }
        let mut command = Command::new(&python);
        command.arg(script.path).current_dir(root);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        match script.argument {
            Argument::None => {}
            Argument::Vocabularies => {
                command.arg(vocabularies()?);
            }
            Argument::LlamaCpp => {
                command.args(&llama_cpp);
            }
        }
        announced(&mut command)?;
    }
    // The fixtures that differ from the commit or are not committed.
    let mut git = Command::new("git");
    git.current_dir(root)
        .args(["status", "--short", "--untracked-files=all", "--"]);
    let changed = workspace::stdout(git.args(FIXTURES))?;
    print!("{changed}");
    eprintln!("fixtures: {} file(s) changed", changed.lines().count());
    Ok(match changed.is_empty() || !args.check {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The folder of the vocabularies that the tokenizer crate embeds. Unlike in other tasks, dependencies must be
/// resolved to find it.
pub(crate) fn vocabularies() -> Result<OsString, Error> {
    let metadata = MetadataCommand::new().exec()?;
    let mut packages = metadata.packages.iter();
    let package = packages.find(|package| package.name.as_str() == VOCABULARIES);
    let folder = package.and_then(|package| package.manifest_path.parent());
    match folder {
        Some(folder) => Ok(folder.join("assets").into()),
        None => Err(Error::NoPackage { name: VOCABULARIES }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_requirements_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        let paths = SCRIPTS.iter().map(|script| script.path);
        for path in paths.chain(REQUIREMENTS) {
            assert!(root.join(path).is_file(), "{path}");
        }
    }

    #[test]
    fn every_script_beside_a_fixture_is_run() {
        let root = workspace::metadata().unwrap().workspace_root;
        for folder in FIXTURES.iter().filter(|path| !path.starts_with(':')) {
            for entry in root.join(folder).read_dir_utf8().unwrap() {
                let name = entry.unwrap().file_name().to_owned();
                let path = format!("{folder}/{name}");
                let known = SCRIPTS.iter().any(|script| script.path == path);
                assert!(known || !name.ends_with(".py"), "{path}");
            }
        }
    }
}
