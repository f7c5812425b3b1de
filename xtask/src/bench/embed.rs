//! `cargo xtask bench embed`: embeddings of short and of long texts, interleaved with sentence-transformers and
//! onnxruntime.

use std::{
    fmt::Write as _,
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use emberlm_system::measure::{Ratio, Unit};

use super::programs::{Field, OursArgs, Program, PythonArgs, contender};
use super::session::{Session, cores};
use crate::{error::Error, python::absolute};

/// Arguments of `cargo xtask bench embed`.
#[derive(Debug, clap::Args)]
pub struct EmbedArgs {
    /// A Hugging Face directory of an encoder with sentence-transformers' files, such as all-MiniLM-L6-v2.
    model: PathBuf,
    /// Threads of the Python programs [default: one per core].
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

/// The programs of `xtask/peers/embed.py`.
const PEERS: [&str; 2] = ["sentence-transformers", "onnxruntime"];

/// The speed, and the largest absolute difference of a vector's element from ours.
const FIELDS: [Field; 3] = [
    Field("texts_per_second", "", Unit::TextsPerSecond),
    Field("peak_rss_mib", "peak", Unit::Bytes),
    Field("difference", "difference", Unit::Relative),
];

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

/// Builds, creates the Python environment if needed, and measures.
pub fn run(args: &EmbedArgs, session: &mut Session) -> Result<(), Error> {
    let programs = Programs {
        args,
        python: args.python.ready(&session.metadata)?,
        binary: args.ours.ready(Program::Bench, session)?,
        script: session.root().join("xtask/peers/embed.py"),
        model: absolute(&args.model)?,
        folder: session.folder("bench-embed")?,
    };
    let words = documentation(&session.root())?;
    let words: Vec<&str> = words.split_whitespace().collect();
    for texts in TEXTS {
        let file = programs.folder.join(format!("{}.txt", texts.name));
        fs::write(&file, texts.lines(&words)).map_err(Error::write(&file))?;
        let ours = contender("emberlm", &FIELDS, || programs.ours(&file));
        let peers = PEERS.map(|peer| {
            let (programs, file) = (&programs, &file);
            contender(peer, &FIELDS, move || programs.peer(file, peer))
        });
        let contenders = std::iter::once(ours).chain(peers).collect();
        let workload = format!("{} texts", texts.name);
        let rounds = session.rounds(3);
        session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
    }
    Ok(())
}

/// The text of this project's explanations.
fn documentation(root: &Path) -> Result<String, Error> {
    let mut text = String::new();
    for page in ["training-step", "kernels", "performance", "numerics"] {
        let path = root.join(format!("docs/explanations/{page}.md"));
        text += &fs::read_to_string(&path).map_err(Error::read(&path))?;
    }
    Ok(text)
}

/// The programs and their files.
struct Programs<'a> {
    args: &'a EmbedArgs,
    binary: PathBuf,
    python: PathBuf,
    script: PathBuf,
    model: PathBuf,
    folder: PathBuf,
}

impl Programs<'_> {
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
        let threads = self.args.threads.map_or_else(cores, NonZero::get);
        let mut command = Command::new(&self.python);
        command.arg(&self.script).arg(program);
        command.arg(&self.model).arg(texts);
        command.args(["--threads", &threads.to_string()]);
        command.arg("--onnx").arg(self.folder.join("model.onnx"));
        command.arg("--vectors").arg(self.vectors());
        command
    }
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
    fn the_documentation_has_enough_words() {
        let root = crate::workspace::metadata().unwrap().workspace_root;
        assert!(documentation(root.as_std_path()).unwrap().len() > 10_000);
    }
}
