//! Builds llama.cpp's programs for this machine.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{error::Error, workspace};

/// Settings of the build: every instruction of this CPU, and only the tools, without the network.
const SETTINGS: [&str; 9] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
];

/// The programs that are used.
const PROGRAMS: [&str; 2] = ["llama-bench", "llama-quantize"];

/// A build of llama.cpp.
pub struct LlamaCpp {
    build: PathBuf,
}

impl LlamaCpp {
    /// Builds the sources. A folder that has been built before is only checked for changes.
    pub fn build(sources: &Path, build: &Path) -> Result<Self, Error> {
        // Stdout is for the results. Compilers report errors on stderr.
        eprintln!("building llama.cpp in {}", build.display());
        workspace::success(&mut configure(sources, build))?;
        workspace::success(&mut compile(build))?;
        Ok(Self::at(build))
    }

    /// The programs of a build folder.
    pub fn at(build: &Path) -> Self {
        Self {
            build: build.to_owned(),
        }
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        self.build.join("bin").join(name)
    }
}

fn configure(sources: &Path, build: &Path) -> Command {
    let mut command = Command::new("cmake");
    command.arg("-S").arg(sources).arg("-B").arg(build);
    command.args(["--log-level=WARNING"]).args(SETTINGS);
    command.stdout(Stdio::null());
    command
}

fn compile(build: &Path) -> Command {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("cmake");
    command.arg("--build").arg(build);
    command.args(["-j", &jobs.to_string(), "--target"]);
    command.args(PROGRAMS).stdout(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_uses_every_instruction_of_the_cpu() {
        let configure = workspace::shown(&configure(Path::new("sources"), Path::new("build")));
        assert!(
            configure.starts_with("cmake -S sources -B build "),
            "{configure}"
        );
        for setting in ["-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "=Release"] {
            assert!(configure.contains(setting), "{configure}");
        }
        let compile = workspace::shown(&compile(Path::new("build")));
        assert!(
            compile.ends_with("--target llama-bench llama-quantize"),
            "{compile}"
        );
    }
}
