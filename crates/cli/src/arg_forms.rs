//! Forms of values that every option accepts: names in upper or lower case, and negative numbers, which reach the option's own
//! check.

use std::ffi::{OsStr, OsString};

use clap::{Command, Parser};

/// Parses arguments, of which the first is the program.
///
/// # Errors
/// The arguments are invalid, or ask for help or the version.
pub fn parse<C: Parser>(args: impl Iterator<Item = OsString>) -> Result<C, clap::Error> {
    let mut command = ignoring_case(C::command());
    let matches = command.try_get_matches_from_mut(joined(args))?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command whose options ignore the case of the names that they list.
pub fn ignoring_case(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.ignore_case(true),
        false => arg,
    });
    command.mut_subcommands(ignoring_case)
}

/// Joins an option and the negative number after it to `--option=-1`: clap reads `-1` as an option.
fn joined(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut is_literal = false;
    for arg in args {
        is_literal |= arg == "--";
        match joined.last_mut() {
            Some(option) if !is_literal && is_option(option) && is_negative_number(&arg) => {
                option.push("=");
                option.push(arg);
            }
            _ => joined.push(arg),
        }
    }
    joined
}

/// Returns true for `--name` and `-n`.
fn is_option(arg: &OsStr) -> bool {
    let bytes = arg.as_encoded_bytes();
    let is_short = bytes.len() == 2 && bytes[0] == b'-' && bytes[1].is_ascii_alphabetic();
    let is_long = bytes.len() > 2 && bytes.starts_with(b"--") && !bytes.contains(&b'=');
    is_short || is_long
}

/// Returns true for a text that begins like a negative number, such as `-1e-3`, `-.5`, `-inf`, or the list `-1,2`.
fn is_negative_number(arg: &OsStr) -> bool {
    let Some(digits) = arg.to_str().and_then(|text| text.strip_prefix('-')) else {
        return false;
    };
    let digits = digits.strip_prefix('.').unwrap_or(digits);
    let mut is_named = ["inf", "infinity", "nan"].iter();
    digits.starts_with(|first: char| first.is_ascii_digit())
        || is_named.any(|name| digits.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::commands::Cli;

    fn words(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ').map(OsString::from)
    }

    /// Every option that takes a value, with the path of its command.
    fn options(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        for arg in command.get_arguments() {
            if let Some(name) = arg.get_long().filter(|_| arg.get_action().takes_values()) {
                found.push((path.to_owned(), name.to_owned()));
            }
        }
        for inner in command.get_subcommands() {
            options(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    #[test]
    fn negative_numbers_are_values_of_every_option() {
        let mut all = Vec::new();
        options(&Cli::command(), "emberlm", &mut all);
        assert!(all.len() > 200, "{}", all.len());
        for (path, name) in all {
            for value in ["-1", "-0.5", "-1e-3", "-.5", "-inf", "-1,2"] {
                let line = format!("{path} --{name} {value}");
                let Err(error) = parse::<Cli>(words(&line)) else {
                    continue;
                };
                assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{line}: {error}");
            }
        }
        let error = parse::<Cli>(words("emberlm train --learning-rate -1")).expect_err("negative");
        assert!(error.to_string().contains("must be above 0"), "{error}");
        let literal = joined(words("a --b -- -1 --c"));
        assert_eq!(literal, words("a --b -- -1 --c").collect::<Vec<_>>());
    }

    #[test]
    fn listed_names_ignore_case() {
        fn check(command: &Command, path: &str) {
            for arg in command.get_arguments() {
                let Some(name) = arg.get_long().filter(|_| arg.get_action().takes_values()) else {
                    continue;
                };
                for value in arg.get_possible_values() {
                    let value = value.get_name().to_uppercase();
                    let line = format!("{path} --{name} {value}");
                    if let Err(error) = parse::<Cli>(words(&line)) {
                        let kinds = [ErrorKind::InvalidValue, ErrorKind::ValueValidation];
                        assert!(!kinds.contains(&error.kind()), "{line}: {error}");
                    }
                }
            }
            for inner in command.get_subcommands() {
                check(inner, &format!("{path} {}", inner.get_name()));
            }
        }
        check(&Cli::command(), "emberlm");
        for line in [
            "emberlm export model --out m.gguf --format GGUF --type Q4_K_M",
            "emberlm generate model --prompt x --weights INT8 --backend Flex",
        ] {
            assert!(parse::<Cli>(words(line)).is_ok(), "{line}");
        }
    }
}
