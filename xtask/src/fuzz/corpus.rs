//! The corpus in the repository: `fuzz/corpus/TARGET.txt`, one escaped input per line.
//!
//! libFuzzer's merge selects the inputs: each adds coverage to the seeds and to the inputs before it. The lines are
//! sorted by the length of the input, so that equal corpora are equal files.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
    fs,
    path::{Path, PathBuf},
};

use crate::{error::Error, workspace};

/// The folder with the corpora, relative to the repository.
const FOLDER: &str = "fuzz/corpus";
/// Longer inputs are left out.
pub const LONGEST: usize = 4 << 10;
/// Maximum size of a target's file. The longest inputs that exceed it are left out.
const LARGEST: usize = 160 << 10;

/// The corpus of a target.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    /// The inputs, the shortest first.
    inputs: Vec<Vec<u8>>,
}

/// The change that a merge makes to a corpus.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    added: usize,
    removed: usize,
    /// The number of inputs that `LARGEST` leaves out.
    left_out: usize,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            added,
            removed,
            left_out,
        } = self;
        write!(f, "{added} input(s) added to {FOLDER}, {removed} removed")?;
        if *left_out > 0 {
            write!(
                f,
                ", {left_out} left out: the file may have {LARGEST} bytes"
            )?;
        }
        Ok(())
    }
}

impl Corpus {
    /// Reads the corpus of a target. It is empty if the target has no file.
    pub fn read(root: &Path, target: &str) -> Result<Self, Error> {
        let path = file(root, target);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).map_err(Error::read(&path))?;
        Self::parse(&text).map_err(|reason| Error::Invalid { path, reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let parse = |(number, line)| {
            unescaped(line).ok_or_else(|| format!("line {} has an invalid escape", number + 1))
        };
        let inputs = text.lines().enumerate().map(parse);
        Ok(Self {
            inputs: inputs.collect::<Result<_, _>>()?,
        })
    }

    /// The corpus of the given inputs, and the number of inputs that it leaves out.
    pub fn of(inputs: impl IntoIterator<Item = Vec<u8>>) -> (Self, usize) {
        let mut inputs: Vec<_> = inputs.into_iter().collect();
        inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        inputs.dedup();
        let mut size = 0;
        let fits = |input: &&Vec<u8>| {
            size += escaped(input).len() + 1;
            size <= LARGEST
        };
        let fitting = inputs.iter().take_while(fits).count();
        let left_out = inputs.split_off(fitting).len();
        (Self { inputs }, left_out)
    }

    /// The number of inputs.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Writes the file of a target.
    pub fn write(&self, root: &Path, target: &str) -> Result<(), Error> {
        let path = file(root, target);
        fs::write(&path, self.text()).map_err(Error::write(&path))
    }

    /// The text of the file.
    fn text(&self) -> String {
        let lines = self.inputs.iter().map(|input| escaped(input) + "\n");
        lines.collect()
    }

    /// Writes the inputs as files into an emptied folder.
    pub fn unpack(&self, folder: &Path) -> Result<(), Error> {
        workspace::emptied(folder)?;
        for (number, input) in self.inputs.iter().enumerate() {
            let path = folder.join(format!("kept-{number:05}"));
            fs::write(&path, input).map_err(Error::write(&path))?;
        }
        Ok(())
    }

    /// The change to another corpus that leaves out a number of inputs.
    pub fn change_to(&self, new: &Self, left_out: usize) -> Change {
        let [old, new] = [self, new].map(|corpus| corpus.inputs.iter().collect::<BTreeSet<_>>());
        Change {
            added: new.difference(&old).count(),
            removed: old.difference(&new).count(),
            left_out,
        }
    }
}

/// The file with the corpus of a target.
fn file(root: &Path, target: &str) -> PathBuf {
    root.join(FOLDER).join(target).with_extension("txt")
}

/// Writes bytes as a line: printable ASCII except the backslash as it is, all others as in Rust's byte strings.
fn escaped(bytes: &[u8]) -> String {
    let mut line = String::new();
    for &byte in bytes {
        match byte {
            b'\\' => line += "\\\\",
            b'\n' => line += "\\n",
            b'\r' => line += "\\r",
            b'\t' => line += "\\t",
            0 => line += "\\0",
            b' '..=b'~' => line.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
    line
}

/// The bytes of a line of [`escaped`]. `None` if it has an invalid escape.
fn unescaped(line: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, after) = rest.split_first()?;
        rest = after;
        bytes.push(match kind {
            b'\\' => b'\\',
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn every_byte_round_trips_through_a_line() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let (corpus, left_out) =
            Corpus::of([all, b"\\x41 \\n".to_vec(), Vec::new(), vec![0, b'0']]);
        let text = corpus.text();
        assert_eq!(left_out, 0);
        assert_eq!(text.lines().count(), 4);
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte))
        );
        assert_eq!(Corpus::parse(&text), Ok(corpus));
    }

    #[test]
    fn invalid_escapes_are_errors_with_their_line() {
        for line in ["\\", "\\y", "\\x4", "\\xg0", "\\x\u{e9}"] {
            let error = Corpus::parse(&format!("a\n{line}\n")).unwrap_err();
            assert!(error.contains("line 2"), "{line}: {error}");
        }
    }

    #[test]
    fn inputs_are_sorted_by_length_and_the_longest_left_out() {
        let inputs = [
            b"bb".to_vec(),
            b"c".to_vec(),
            b"c".to_vec(),
            vec![b'd'; LARGEST - 6],
        ];
        let (corpus, left_out) = Corpus::of(inputs.clone());
        assert_eq!((corpus.text().len(), left_out), (LARGEST, 0));
        assert_eq!(corpus.inputs[..2], [b"c".to_vec(), b"bb".to_vec()]);
        let (corpus, left_out) = Corpus::of(inputs.into_iter().chain([b"a".to_vec()]));
        assert_eq!((corpus.text().as_str(), left_out), ("a\nc\nbb\n", 1));
    }

    #[test]
    fn changes_are_counted() {
        let [old, new] = [["a", "b"], ["b", "c"]]
            .map(|inputs| Corpus::of(inputs.map(|input| input.as_bytes().to_vec())).0);
        let change = Change {
            added: 1,
            removed: 1,
            left_out: 2,
        };
        assert_eq!(old.change_to(&new, 2), change);
    }

    #[test]
    fn every_corpus_of_the_repository_is_within_its_limits() {
        let metadata = workspace::metadata().unwrap();
        let root = &metadata.workspace_root;
        let files = tidy::entries(root.join(FOLDER).as_std_path()).unwrap();
        for path in files.iter().filter(|path| path.extension().is_some()) {
            let target = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(
                super::super::targets::chosen(&metadata, std::slice::from_ref(&target)).is_ok(),
                "{target}"
            );
            let corpus = Corpus::read(root.as_std_path(), &target).unwrap();
            let text = fs::read_to_string(path).unwrap();
            assert_eq!(Corpus::of(corpus.inputs.clone()), (corpus, 0), "{target}");
            assert!(text.len() <= LARGEST, "{target}");
        }
    }
}
