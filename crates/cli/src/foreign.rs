//! Hints for words of other programs (llama.cpp, ollama, LitGPT, nanoGPT, vLLM, Hugging Face's libraries): commands, options
//! and values that emberlm calls something else. `foreign/words.txt` is the table.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The hint for an invalid command line of `program`. `args` are its words after the program's name.
pub fn hint(program: &Command, error: &clap::Error, args: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = args.iter().find(|arg| !arg.starts_with('-'));
    let command = command.map_or("", String::as_str);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let parent = if word == command { "*" } else { command };
            subcommand(parent, word)
        }
        // A subcommand in the place of the command's path, such as `runs delete NAME`.
        ErrorKind::ArgumentConflict => {
            let after = args.iter().skip_while(|arg| *arg != command).nth(1)?;
            subcommand(command, after)
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            let option = whole(word, args);
            let same = with_dashes(program, command, option);
            same.or_else(|| unknown_option(command, option)).map(used)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let option = text(ContextKind::InvalidArg)?;
            let option = option.split_whitespace().next().unwrap_or_default();
            let given = text(ContextKind::InvalidValue)?;
            // `-ngl 99` of a command with `-n` is read as `-n gl`.
            let letters = args
                .iter()
                .find(|arg| is_of_letters(arg) && arg.ends_with(given));
            let of_letters = letters.and_then(|letters| unknown_option(command, letters));
            of_letters
                .or_else(|| value(command, option, given))
                .map(used)
        }
        _ => None,
    }
}

/// The hint for a word that may be meant as a subcommand of `parent`, such as `delete` of `runs`.
pub fn subcommand(parent: &str, word: &str) -> Option<String> {
    find("command", parent, &word.to_ascii_lowercase())
}

fn unknown_option(command: &str, option: &str) -> Option<String> {
    find("option", command, &plain(option))
}

fn value(command: &str, option: &str, value: &str) -> Option<String> {
    let kind = format!("value of --{}", plain(option));
    let value = value.to_ascii_lowercase();
    // `cuda:0` names a device, too.
    let (name, number) = value.split_once(':').unwrap_or((&value, ""));
    let hint = find(&kind, command, name)?;
    Some(match number.parse::<usize>() {
        Ok(number) => format!("{hint}: `--device {number}`"),
        Err(_) => hint,
    })
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    kind: &'static str,
    commands: &'static str,
    words: &'static str,
    hint: &'static str,
}

fn rows() -> impl Iterator<Item = Row> {
    include_str!("foreign/words.txt")
        .lines()
        .filter_map(|line| {
            let mut columns = line.splitn(4, '|').map(str::trim);
            Some(Row {
                kind: columns.next()?,
                commands: columns.next()?,
                words: columns.next()?,
                hint: columns.next()?,
            })
        })
}

/// The hint for a word of this kind that was given to a command.
fn find(kind: &str, command: &str, word: &str) -> Option<String> {
    let has = |list: &str, word: &str| list.split_whitespace().any(|it| it == word);
    let found = rows().find(|row| {
        let is_for_all = row.commands == "*" && row.kind != "command";
        let is_for = is_for_all || has(row.commands, command);
        row.kind == kind && is_for && has(row.words, word)
    })?;
    Some(found.hint.replace("COMMAND", command))
}

/// The option of the command that is written with underscores.
fn with_dashes(program: &Command, command: &str, option: &str) -> Option<String> {
    let name = plain(option);
    let command = program.find_subcommand(command)?;
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long()
            .into_iter()
            .chain(aliases)
            .any(|it| it == name)
    })?;
    let long = argument.get_long().filter(|_| option.contains('_'))?;
    Some(format!("`--{long}`"))
}

/// Begins a hint that is only an option with a verb.
fn used(hint: String) -> String {
    match hint.starts_with("`--") {
        true => format!("use {hint}"),
        false => hint,
    }
}

/// The option as it was written: clap names only the first letter of `-ngl`.
fn whole<'a>(option: &'a str, args: &'a [String]) -> &'a str {
    let written = args
        .iter()
        .find(|arg| is_of_letters(arg) && arg.starts_with(option));
    match written {
        Some(written) if option.len() == 2 => written,
        _ => option,
    }
}

/// Returns true for words such as `-ngl`.
fn is_of_letters(arg: &str) -> bool {
    let letters = arg.strip_prefix('-').unwrap_or_default();
    letters.len() > 1 && letters.chars().all(|c| c.is_ascii_alphabetic())
}

/// An option's name in its plain form: without dashes at its beginning and a value, and with dashes for underscores.
fn plain(option: &str) -> String {
    let name = option.split('=').next().unwrap_or_default();
    let name = name.trim_start_matches('-');
    name.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests;
