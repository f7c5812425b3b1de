//! Tables of command lines with their exact messages and exit codes, and of requests with their answers, in
//! `tests/messages/NAME.txt`, for review from a user's perspective.
//!
//! A row is a line `$ emberlm ARGUMENTS`, `$ text "STDIN" | emberlm ARGUMENTS`, or `$ sh COMMAND`, where `"$EMBERLM"` is
//! the program, then the output and `[exit CODE]`; or `$ POST PATH BODY`, the answer, and `[status CODE]`. Single quotes
//! enclose an argument with spaces, and `FIXTURES` stands for the folder of the model crate's fixtures. `tables.rs`
//! describes the rest of the form, and how to write the output of a new row.

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
            match row.split_once(' ').unwrap() {
                ("emberlm", arguments) => self.message(arguments),
                ("text", row) => {
                    let (text, line) = row.split_once(" | emberlm ").unwrap();
                    let text: String = serde_json::from_str(text).unwrap();
                    shown(self.feed(&in_fixtures(line), text))
                }
                #[cfg(unix)]
                ("sh", line) => shown(self.sh(&in_fixtures(line))),
                (other, _) => panic!("{other}"),
            }
        });
    }

    /// The output of a command line, up to its exit code.
    #[track_caller]
    fn message(&self, arguments: &str) -> String {
        let before = self.files("");
        let ran = self.run(split(&in_fixtures(arguments)));
        if ran.code != Some(0) {
            assert!(
                self.files("") == before,
                "{arguments} changed a file: {ran}"
            );
        }
        shown(ran)
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

fn in_fixtures(line: &str) -> String {
    line.replace("FIXTURES", fixtures().to_str().unwrap())
}

/// The output up to its exit code, with both streams named if there are two or a stream is unusual for the code.
fn shown(ran: CommandOutput) -> String {
    let code = ran.code.unwrap();
    let output = match ran {
        CommandOutput { stdout, stderr, .. } if code == 0 && stderr.is_empty() => stdout,
        CommandOutput { stdout, stderr, .. } if code != 0 && stdout.is_empty() => stderr,
        CommandOutput { stdout, stderr, .. } => {
            format!("--- stdout\n{stdout}--- stderr\n{stderr}")
        }
    };
    let output = output.replace(fixtures().to_str().unwrap(), "FIXTURES");
    format!("{output}[exit {code}]\n")
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
