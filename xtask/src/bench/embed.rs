//! `cargo xtask bench embed`: embeddings of short and of long texts, interleaved with sentence-transformers and
//! onnxruntime.

mod report;

use std::{
    fmt::Write as _,
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;

use self::report::{EmbedReport, Run, Workload};
use super::programs::{OursArgs, Program, PythonArgs, last_json};
use super::report::Report;
use crate::{error::Error, python::absolute, workspace};

/// Arguments of `cargo xtask bench embed`.
#[derive(Debug, clap::Args)]
pub struct EmbedArgs {
    /// A Hugging Face directory of an encoder with sentence-transformers' files, such as all-MiniLM-L6-v2.
    model: PathBuf,
    /// Threads of the Python programs [default: one per core].
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Runs of each program; medians are printed.
    #[arg(long, default_value = "3")]
    rounds: NonZero<usize>,
    /// Print one line of JSON instead of the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

/// The programs of `xtask/peers/embed.py`.
const PEERS: [&str; 2] = ["sentence-transformers", "onnxruntime"];

/// Texts of similar length: `count` texts of `shortest` to `longest` words.
#[derive(Debug, Clone, Copy)]
struct Texts {
    name: &'static str,
    count: usize,
    shortest: usize,
    longest: usize,
}

const TEXTS: [Texts; 2] = [
    Texts {
        name: "short",
        count: 600,
        shortest: 4,
        longest: 20,
    },
    Texts {
        name: "long",
        count: 60,
        shortest: 100,
        longest: 160,
    },
];

impl Texts {
    /// One text per line, cut from `words`, which are repeated as often as needed.
    fn lines(self, words: &[&str]) -> String {
        let mut words = words.iter().cycle();
        let mut lines = String::new();
        for number in 0..self.count {
            // Lengths in an order that does not sort them.
            let spread = self.longest - self.shortest + 1;
            let length = self.shortest + number * 7 % spread;
            let text: Vec<&str> = words.by_ref().take(length).copied().collect();
            let _ = writeln!(lines, "{}", text.join(" "));
        }
        lines
    }
}

/// Builds, creates the Python environment if needed, measures and prints.
pub fn run(args: &EmbedArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let python = args.python.ready(&metadata)?;
    let binary = args.ours.ready(Program::Bench, &metadata)?;
    let folder = metadata.target_directory.join("bench-embed");
    let folder = folder.as_std_path();
    let measurement = Measurement {
        args,
        metadata: &metadata,
        binary,
        python,
        model: absolute(&args.model)?,
        folder,
    };
    fs::create_dir_all(folder).map_err(|source| Error::Write {
        path: folder.to_owned(),
        source,
    })?;
    let words = documentation(&metadata)?;
    let words: Vec<&str> = words.split_whitespace().collect();
    let workloads = TEXTS.map(|texts| measurement.workload(texts, &texts.lines(&words)));
    let report = EmbedReport {
        rounds: args.rounds.get(),
        workloads: workloads.into_iter().collect::<Result<_, _>>()?,
    };
    report.print(args.json);
    Ok(())
}

/// The text of this project's explanations.
fn documentation(metadata: &Metadata) -> Result<String, Error> {
    let mut text = String::new();
    for page in ["training-step", "kernels", "performance", "numerics"] {
        let path = metadata
            .workspace_root
            .join(format!("docs/explanations/{page}.md"));
        text += &fs::read_to_string(&path).map_err(|source| Error::Read {
            path: path.into(),
            source,
        })?;
    }
    Ok(text)
}

/// The programs and their files.
struct Measurement<'a> {
    args: &'a EmbedArgs,
    metadata: &'a Metadata,
    binary: PathBuf,
    python: PathBuf,
    model: PathBuf,
    folder: &'a Path,
}

impl Measurement<'_> {
    fn workload(&self, texts: Texts, lines: &str) -> Result<Workload, Error> {
        let file = self.folder.join(format!("{}.txt", texts.name));
        fs::write(&file, lines).map_err(|source| Error::Write {
            path: file.clone(),
            source,
        })?;
        let mut runs = [Vec::new(), Vec::new(), Vec::new()];
        for round in 1..=self.args.rounds.get() {
            eprintln!("{} texts, round {round}", texts.name);
            runs[0].push(run_and_print(&mut self.ours(&file))?);
            for (peer, runs) in PEERS.iter().zip(&mut runs[1..]) {
                runs.push(run_and_print(&mut self.peer(&file, peer))?);
            }
        }
        let [ours, peers @ ..] = runs.map(Run::median);
        Ok(Workload {
            name: texts.name,
            ours,
            peers: peers.into_iter().flatten().collect(),
        })
    }

    fn vectors(&self) -> PathBuf {
        self.folder.join("vectors.f32")
    }

    fn ours(&self, texts: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("embed").arg(&self.model).arg(texts);
        command.args(["--backend", &self.args.ours.backend]);
        command.arg("--vectors").arg(self.vectors());
        command
    }

    fn peer(&self, texts: &Path, program: &str) -> Command {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.args.threads.map_or_else(cores, NonZero::get);
        let script = self.metadata.workspace_root.join("xtask/peers/embed.py");
        let mut command = Command::new(&self.python);
        command.arg(script).arg(program).arg(&self.model).arg(texts);
        command.args(["--threads", &threads.to_string()]);
        command.arg("--onnx").arg(self.folder.join("model.onnx"));
        command.arg("--vectors").arg(self.vectors());
        command
    }
}

/// Runs a program and prints the completed run.
fn run_and_print(command: &mut Command) -> Result<Run, Error> {
    let run = Run::of(&last_json(command, "texts_per_second")?);
    eprintln!("  {}: {:.1} texts/s", run.program, run.texts_per_second);
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_requested_lengths() {
        for texts in TEXTS {
            let lines = texts.lines(&["a", "b", "c"]);
            let lengths = lines.lines().map(|line| line.split(' ').count());
            let lengths: Vec<usize> = lengths.collect();
            assert_eq!(lengths.len(), texts.count);
            assert_eq!(lengths.iter().min(), Some(&texts.shortest));
            assert_eq!(lengths.iter().max(), Some(&texts.longest));
        }
    }

    #[test]
    fn peer_files_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        assert!(root.join("xtask/peers/embed.py").is_file());
        assert!(
            documentation(&workspace::metadata().unwrap())
                .unwrap()
                .len()
                > 10_000
        );
    }
}
