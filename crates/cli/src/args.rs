//! Parses command lines, and rewrites the errors that clap reports.

use std::error::Error;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use emberlm_system::text::{escaped, is_harmless};

use crate::arg_forms;
use crate::error::CliError;
use crate::foreign;

/// Parses this process's arguments. Returns `None` if they asked for help or the version, which is then
/// printed.
///
/// # Errors
/// Returns an error if the arguments are invalid or the requested text cannot be written to stdout.
pub fn parse<C: Parser>() -> Result<Option<C>, CliError> {
    let error = match arg_forms::parse::<C>(std::env::args_os()) {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    let mut error = without_control_characters::<C>(error);
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let hint = foreign::hint(&C::command(), &error, &args);
    if let Some(error) = not_a_number(&error) {
        return Err(hint.into_iter().fold(error, CliError::hint));
    }
    if hint.is_some() {
        // Clap's suggestions are words that are spelt alike.
        for kind in [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedValue,
            ContextKind::Suggested,
        ] {
            error.remove(kind);
        }
    }
    match error.use_stderr() {
        // A failed write to stderr has nowhere to be reported.
        true => drop(error.print()),
        false => error.print().map_err(CliError::stdout)?,
    }
    match error.exit_code() {
        0 => Ok(None),
        _ => Err(hint
            .into_iter()
            .fold(CliError::reported_usage(), CliError::hint)),
    }
}

/// Clap repeats arguments in its messages. If an argument contains control characters, parses the escaped
/// arguments again and returns that error instead.
fn without_control_characters<C: Parser>(error: clap::Error) -> clap::Error {
    let args: Vec<String> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    if args.iter().all(|arg| arg.chars().all(is_harmless)) {
        return error;
    }
    let escaped = args.iter().map(|arg| escaped(arg).into_owned().into());
    arg_forms::parse::<C>(escaped).err().unwrap_or(error)
}

/// Rewrites an error of Rust's number parsers, whose messages ("invalid digit found in string") do not state
/// the rule.
fn not_a_number(error: &clap::Error) -> Option<CliError> {
    let source = error.source()?;
    let rule = match source.downcast_ref::<ParseIntError>() {
        Some(error) => match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            _ => "must be a whole number, 0 or more",
        },
        None if source.is::<ParseFloatError>() => "must be a number",
        None => return None,
    };
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let (arg, value) = (
        context(ContextKind::InvalidArg)?,
        context(ContextKind::InvalidValue)?,
    );
    Some(CliError::usage(format!(
        "invalid value '{value}' for '{arg}': {rule}"
    )))
}
