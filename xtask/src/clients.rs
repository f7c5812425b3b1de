//! `cargo xtask test-clients`: tests the real server with commonly used clients, and then with a storm of
//! concurrent clients.
//!
//! Unlike `cargo xtask test`, these tests need packages from PyPI and npm, and a browser. If one is unavailable, the
//! scripts that need it are skipped with a message, unless `--strict` is given. The storm needs neither.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use cargo_metadata::Metadata;

use crate::{
    attack::{self, AttackArgs},
    error::Error,
    node::Scripts,
    python::{Environment, absolute, announced},
    served::small_model,
    test, workspace,
};

/// The scripts in JavaScript, of which there is one.
const JAVASCRIPT: Scripts = Scripts {
    name: "clients-node",
    folder: "tests/clients/javascript",
};
const JAVASCRIPT_CLIENTS: &str = "clients.mjs";

/// The Python scripts of one folder, which share an environment.
struct Suite {
    folder: &'static str,
    scripts: &'static [&'static str],
    environment: Environment<'static>,
    /// True if the scripts drive a browser and create their models themselves.
    browser: bool,
}

const SUITES: [Suite; 4] = [
    Suite {
        folder: "tests/clients",
        scripts: &[
            "openai_client.py",
            "anthropic_client.py",
            "ollama_client.py",
            "described.py",
        ],
        environment: Environment {
            name: "clients-venv",
            requirements: &["tests/clients/requirements.txt"],
        },
        browser: false,
    },
    // They need an older version of the first suite's client.
    Suite {
        folder: "tests/clients",
        scripts: &["frameworks.py"],
        environment: Environment {
            name: "frameworks-venv",
            requirements: &["tests/clients/frameworks.txt"],
        },
        browser: false,
    },
    // Its packages are large, and needed by nothing else.
    Suite {
        folder: "tests/clients",
        scripts: &["harness.py", "analysis.py"],
        environment: Environment {
            name: "harness-venv",
            requirements: &["tests/clients/harness.txt"],
        },
        browser: false,
    },
    Suite {
        folder: "tests/browser",
        scripts: &["playground.py", "watch.py"],
        environment: Environment {
            name: "browser-venv",
            requirements: &["tests/browser/requirements.txt"],
        },
        browser: true,
    },
];

/// Names of browsers that Playwright can drive.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Arguments of `cargo xtask test-clients`.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientsArgs {
    /// Fail if packages of Python or JavaScript or a browser are unavailable, instead of skipping the scripts.
    #[arg(long)]
    strict: bool,
    /// Test this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The browser [default: the first installed Chromium].
    #[arg(long, value_name = "FILE")]
    chromium: Option<PathBuf>,
    /// Seconds of the storm; 0 skips it.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    storm: u64,
}

/// Builds, creates a model, runs all suites and prints the names of those that failed.
pub fn run(args: &ClientsArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => build(&metadata)?,
    };
    let folder = metadata.target_directory.join("test-clients");
    let model = small_model::make(&binary, folder.as_std_path())?;
    let mut failed = Vec::new();
    for suite in &SUITES {
        match ready(suite, args, &metadata) {
            Ok((python, chromium)) => {
                for script in suite.scripts {
                    let mut command = command(suite, script, &metadata, &python, &binary);
                    match &chromium {
                        Some(chromium) => command.arg("--chromium").arg(chromium),
                        None => command.arg("--model").arg(&model),
                    };
                    if let Err(error) = announced(&mut command) {
                        eprintln!("{error}");
                        failed.push((*script).to_owned());
                    }
                }
            }
            Err(reason) if args.strict => return Err(reason),
            Err(reason) => println!("skipped {}: {reason}", suite.scripts.join(", ")),
        }
    }
    match JAVASCRIPT.ready(JAVASCRIPT_CLIENTS, &metadata) {
        Ok(script) => {
            let mut command = Command::new("node");
            command.arg(script).arg("--binary").arg(&binary);
            if let Err(error) = announced(command.arg("--model").arg(&model)) {
                eprintln!("{error}");
                failed.push(JAVASCRIPT_CLIENTS.to_owned());
            }
        }
        Err(reason) if args.strict => return Err(reason),
        Err(reason) => println!("skipped {JAVASCRIPT_CLIENTS}: {reason}"),
    }
    if args.storm > 0 {
        let storm = AttackArgs::storm(&binary, &model, args.storm);
        if attack::run(&storm)? != ExitCode::SUCCESS {
            failed.push("the storm".to_owned());
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Error::Checks {
        names: failed.join(", "),
    })
}

/// The tools of a suite: its Python, and a browser if it drives one.
fn ready(
    suite: &Suite,
    args: &ClientsArgs,
    metadata: &Metadata,
) -> Result<(PathBuf, Option<PathBuf>), Error> {
    let chromium = match suite.browser {
        true => Some(chromium(args)?),
        false => None,
    };
    Ok((suite.environment.python(metadata, false)?, chromium))
}

fn chromium(args: &ClientsArgs) -> Result<PathBuf, Error> {
    if let Some(chromium) = &args.chromium {
        return absolute(chromium);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    first_browser(&folders).ok_or(Error::NoBrowser)
}

/// The first browser in `folders`, in the order of [`BROWSERS`].
fn first_browser(folders: &[PathBuf]) -> Option<PathBuf> {
    let places = BROWSERS.iter().flat_map(|name| {
        let in_folder = move |folder: &PathBuf| folder.join(name);
        folders.iter().map(in_folder)
    });
    places.into_iter().find(|place| place.is_file())
}

fn command(
    suite: &Suite,
    script: &str,
    metadata: &Metadata,
    python: &Path,
    binary: &Path,
) -> Command {
    let root = metadata.workspace_root.as_std_path();
    let mut command = Command::new(python);
    command.arg(root.join(suite.folder).join(script));
    command.arg("--binary").arg(binary);
    command
        .current_dir(root)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The binary of the test build, so that nothing is compiled again after the tests.
fn build(metadata: &Metadata) -> Result<PathBuf, Error> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-run", "--test=cli"]);
    command.arg(format!(
        "--features={}",
        test::workspace_features(metadata).join(",")
    ));
    announced(&mut command)?;
    let name = format!("emberlm{}", std::env::consts::EXE_SUFFIX);
    Ok(metadata.target_directory.join("debug").join(name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_requirements_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        for suite in SUITES {
            for script in suite.scripts {
                assert!(root.join(suite.folder).join(script).is_file(), "{script}");
            }
            for file in suite.environment.requirements {
                assert!(root.join(file).is_file(), "{file}");
            }
        }
    }

    #[test]
    fn a_browser_is_found_in_any_folder() {
        let folder = std::env::temp_dir().join(format!("emberlm-browsers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let folders = [folder.join("none"), folder.clone()];
        assert_eq!(first_browser(&folders), None);
        for name in ["google-chrome", "chromium"] {
            std::fs::write(folder.join(name), "").unwrap();
            assert_eq!(first_browser(&folders), Some(folder.join(name)));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
