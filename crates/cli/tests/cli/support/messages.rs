//! Tables of command lines with their exact messages and exit codes, and of requests with their answers, in
//! `tests/messages/NAME.txt`, for review from a user's perspective.
//!
//! A row is a line `$ emberlm ARGUMENTS`, the output, and `[exit CODE]`; or `$ POST PATH BODY`, the answer, and
//! `[status CODE]`. Single quotes enclose an argument with spaces,
//! `FIXTURES` stands for the folder of the model crate's fixtures. `tables.rs` describes the rest of the form, and how
//! to write the output of a new row.

use std::fs;
use std::path::{Path, PathBuf};

use super::server::Server;
use super::tables::check_table;
use super::{CommandOutput, Sandbox, fixtures};

impl Sandbox {
    /// Runs the command lines of a table, and compares their output with it. A command that fails must not have changed
    /// the folder.
    #[track_caller]
    pub fn check_messages(&self, table: &str) {
        check_table(&format!("messages/{table}"), |row| {
            self.message(row.strip_prefix("emberlm ").unwrap())
        });
    }

    /// The output of a command line, up to its exit code.
    #[track_caller]
    fn message(&self, arguments: &str) -> String {
        let fixtures = fixtures().display().to_string();
        let before = self.files("");
        let ran = self.run(split(&arguments.replace("FIXTURES", &fixtures)));
        let code = ran.code.unwrap();
        if code != 0 {
            assert!(
                self.files("") == before,
                "{arguments} changed a file: {ran}"
            );
        }
        let output = match ran {
            CommandOutput { stdout, stderr, .. } if code == 0 && stderr.is_empty() => stdout,
            CommandOutput { stdout, stderr, .. } if code != 0 && stdout.is_empty() => stderr,
            CommandOutput { stdout, stderr, .. } => {
                format!("--- stdout\n{stdout}--- stderr\n{stderr}")
            }
        };
        let output = output.replace(&fixtures, "FIXTURES");
        format!("{output}[exit {code}]\n")
    }

    /// The path and the bytes of every file in a folder, except locks, which hold the number of the last process.
    pub fn files(&self, folder: impl AsRef<Path>) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        add_files(&self.path(folder), &mut found);
        found.sort();
        found
    }
}

impl Server {
    /// Sends the requests of a table, and compares the answers with it.
    #[track_caller]
    pub fn check_answers(&self, table: &str) {
        check_table(&format!("messages/{table}"), |row| {
            let request = row.strip_prefix("POST ").unwrap();
            let (path, body) = request.split_once(' ').unwrap();
            let answer = self.post_text(path, body);
            format!("{}\n[status {}]\n", answer.body, answer.status)
        });
    }
}

fn add_files(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => add_files(&path, found),
            false if path.ends_with("lock") => {}
            false => {
                let bytes = fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
}

/// Splits a command line into arguments. Text in single quotes is one argument.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}
