//! Checks of operations and models against the CPU, run with `emberlm doctor`.

use std::time::Duration;

use emberlm_system::measure::Unit;
use serde::Deserialize;

use super::super::comparison::Comparison;
use super::super::models;
use super::finding::{Finding, Findings, Outcome};
use super::session::Session;

/// Time limit for all operations.
const OPERATIONS: Duration = Duration::from_secs(600);

/// Time limit for one model.
const MODEL: Duration = Duration::from_secs(600);

/// The output of `emberlm doctor --json`.
#[derive(Deserialize)]
struct Printed {
    verdicts: Vec<Comparison>,
}

/// Compares each operation with its reference implementation.
///
/// # Errors
/// Returns an error if the comparison cannot run.
pub fn operations(session: &Session) -> Result<Findings, Outcome> {
    let rows = doctor(session, "all", "--operations", OPERATIONS)?;
    Ok(Findings::of_rows(rows))
}

/// Compares a tiny model of each family, each in its own process.
///
/// # Errors
/// Returns an error if there is no backend to compare with.
pub fn parity(session: &Session) -> Result<Findings, Outcome> {
    session.reference()?;
    let mut rows = Vec::new();
    for (name, _) in models::all() {
        let compared = match session.is_over() {
            true => Err(Outcome::skipped("no time was left")),
            false => doctor(session, &name, &format!("--preset {name}"), MODEL),
        };
        match compared {
            Ok(compared) => rows.extend(compared),
            Err(outcome) => rows.push(Finding::without_value(name, Unit::Relative, outcome)),
        }
    }
    Ok(Findings::of_rows(rows))
}

/// Runs `emberlm doctor` with the arguments `what` and returns its rows. Its exit code is not checked, since
/// it is nonzero if a comparison fails.
fn doctor(
    session: &Session,
    log: &str,
    what: &str,
    limit: Duration,
) -> Result<Vec<Finding>, Outcome> {
    let line = format!("doctor --json {what}");
    let finished = session.emberlm(log, &line, session.placement, limit)?;
    match serde_json::from_str::<Printed>(&finished.stdout) {
        Ok(printed) => Ok(printed.verdicts.into_iter().map(row).collect()),
        Err(_) => Err(Outcome::failed(finished.reason)),
    }
}

fn row(comparison: Comparison) -> Finding {
    let name = match comparison.part.is_empty() {
        true => comparison.name,
        false => format!("{} ({})", comparison.name, comparison.part),
    };
    match (comparison.error, comparison.failure) {
        (Some(error), None) => Finding::error(name, error, comparison.tolerance),
        (_, failure) => {
            let reason = failure.unwrap_or_else(|| "nothing came out".to_owned());
            Finding::without_value(name, Unit::Relative, Outcome::failed(reason))
        }
    }
}
