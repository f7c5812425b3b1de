//! `cargo xtask fixtures`: runs the Python scripts that made the committed fixtures, and says what came out otherwise.
//!
//! Neither a build nor a test needs this: the fixtures are committed. It is for whoever changes a script, adds a family
//! or wants to see that the numbers are what the references compute.

use std::{
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use cargo_metadata::{Metadata, MetadataCommand};

use crate::{error::Error, workspace};

/// What the scripts need, beside them.
const REQUIREMENTS: [&str; 3] = [
    "crates/data/tests/fixtures/requirements.txt",
    "crates/model/tests/fixtures/requirements.txt",
    "crates/tokenizer/tests/fixtures/requirements.txt",
];

/// The scripts, each after those whose files it reads.
const SCRIPTS: [Script; 11] = [
    Script::new("crates/data/tests/fixtures/datasets/make.py"),
    Script::new("crates/data/tests/fixtures/make_inputs.py"),
    Script::new("crates/model/tests/fixtures/make.py"),
    Script::new("crates/model/tests/fixtures/make_families.py"),
    Script::new("crates/trainer/tests/fixtures/make.py"),
    Script::new("crates/model/tests/fixtures/make_tasks.py"),
    Script {
        vocabularies: true,
        ..Script::new("crates/tokenizer/tests/fixtures/make.py")
    },
    Script {
        repeats: false,
        ..Script::new("crates/tokenizer/tests/fixtures/make_files.py")
    },
    Script {
        vocabularies: true,
        ..Script::new("crates/tokenizer/tests/fixtures/make_chat.py")
    },
    Script::new("crates/tokenizer/tests/fixtures/make_trained.py"),
    Script::new("crates/tokenizer/tests/fixtures/make_sentence_piece.py"),
];

/// Where the scripts write, and what lies there besides that no script wrote.
const FIXTURES: [&str; 7] = [
    "crates/data/tests/fixtures",
    "crates/kernels/tests/fixtures",
    "crates/model/tests/fixtures",
    "crates/tokenizer/tests/fixtures",
    "crates/trainer/tests/fixtures",
    ":(exclude)*.py",
    ":(exclude)*/requirements.txt",
];

/// The crate that carries OpenAI's vocabularies.
const VOCABULARIES: &str = "tiktoken-rs";
/// What the environment was made for, within it; written last, so that one half made is made again.
const STAMP: &str = "emberlm-requirements.txt";

/// Arguments of `cargo xtask fixtures`.
#[derive(Clone, Debug, clap::Args)]
pub struct FixturesArgs {
    /// Run the scripts with this Python, which has the packages, in place of an environment of their own in the target
    /// folder.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Fail if a file differs from the commit.
    #[arg(long)]
    check: bool,
    /// Run make_files.py too, which trains its tokenizers anew and so writes other files each time.
    #[arg(long, conflicts_with = "check")]
    retrain: bool,
}

/// A script that writes fixtures.
struct Script {
    /// From the workspace's root.
    path: &'static str,
    /// Whether it is given the folder of OpenAI's vocabularies.
    vocabularies: bool,
    /// Whether another run writes the same bytes.
    repeats: bool,
}

impl Script {
    const fn new(path: &'static str) -> Self {
        Self {
            path,
            vocabularies: false,
            repeats: true,
        }
    }
}

/// Makes the fixtures and shows what changed.
pub fn run(args: &FixturesArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let python = match &args.python {
        Some(python) => absolute(python)?,
        None => environment(&metadata)?,
    };
    for script in SCRIPTS.iter().filter(|s| s.repeats || args.retrain) {
        let mut command = Command::new(&python);
        command.arg(script.path).current_dir(root);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        if script.vocabularies {
            command.arg(vocabularies()?);
        }
        announced(&mut command)?;
    }
    let changed = changed(root)?;
    eprintln!("fixtures: {} file(s) changed", changed.len());
    if changed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    show(root, &changed)?;
    Ok(if args.check {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The scripts run in the workspace's root, wherever this was called.
fn absolute(python: &Path) -> Result<PathBuf, Error> {
    // A name alone is looked for where programs are.
    if python.components().count() == 1 {
        return Ok(python.to_owned());
    }
    std::path::absolute(python).map_err(|source| Error::Read {
        path: python.to_owned(),
        source,
    })
}

/// The Python of the scripts' own environment, made or made again where the requirements have changed.
fn environment(metadata: &Metadata) -> Result<PathBuf, Error> {
    let root = metadata.workspace_root.as_std_path();
    let folder = metadata.target_directory.join("fixtures-venv");
    let folder = folder.as_std_path();
    let python = folder.join(if cfg!(windows) {
        "Scripts/python.exe"
    } else {
        "bin/python"
    });
    let files = REQUIREMENTS.map(|file| root.join(file));
    let wanted = files
        .iter()
        .map(|file| read(file))
        .collect::<Result<String, _>>()?;
    let stamp = folder.join(STAMP);
    if std::fs::read_to_string(&stamp).is_ok_and(|made_for| made_for == wanted) && python.is_file()
    {
        return Ok(python);
    }
    make_environment(folder)?;
    announced(&mut install(&python, &files))?;
    std::fs::write(&stamp, wanted).map_err(|source| Error::Write {
        path: stamp,
        source,
    })?;
    Ok(python)
}

/// An empty environment.
fn make_environment(folder: &Path) -> Result<(), Error> {
    let mut command = Command::new(if cfg!(windows) { "python" } else { "python3" });
    command.args(["-m", "venv", "--clear"]).arg(folder);
    announced(&mut command).map_err(|error| match error {
        Error::Start { command, source } if source.kind() == ErrorKind::NotFound => {
            Error::NoPython { command }
        }
        Error::Failed { command, status } => Error::NoVenv { command, status },
        other => other,
    })
}

fn install(python: &Path, requirements: &[PathBuf]) -> Command {
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    for file in requirements {
        command.arg("-r").arg(file);
    }
    command
}

/// The folder of the vocabularies that the tokenizer crate is compiled with. Dependencies must be resolved for it, which
/// the other tasks spare themselves.
pub(crate) fn vocabularies() -> Result<OsString, Error> {
    let metadata = MetadataCommand::new().exec()?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == VOCABULARIES);
    let folder = package.and_then(|package| package.manifest_path.parent());
    match folder {
        Some(folder) => Ok(folder.join("assets").into()),
        None => Err(Error::NoPackage { name: VOCABULARIES }),
    }
}

/// The fixtures that differ from the commit or are not in it.
fn changed(root: &Path) -> Result<Vec<String>, Error> {
    let mut command = git(root);
    command.args(["status", "--porcelain", "--untracked-files=all", "--"]);
    let listed = workspace::stdout(command.args(FIXTURES))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn show(root: &Path, changed: &[String]) -> Result<(), Error> {
    let mut command = git(root);
    command.args(["diff", "--stat", "HEAD", "--"]);
    print!("{}", workspace::stdout(command.args(FIXTURES))?);
    for line in changed {
        if let Some(new) = line.strip_prefix("?? ") {
            println!(" {new} | new");
        }
    }
    Ok(())
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root).arg("--no-pager");
    command
}

/// Says what is run, and runs it to success.
fn announced(command: &mut Command) -> Result<(), Error> {
    eprintln!("running {}", workspace::shown(command));
    workspace::success(command)
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_requirements_are_where_they_are_looked_for() {
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

    #[test]
    fn a_python_is_found_from_the_root_too() {
        let found = |path| absolute(Path::new(path)).unwrap();
        assert_eq!(found("python3"), PathBuf::from("python3"));
        assert!(found("peer/bin/python").is_absolute());
    }
}
