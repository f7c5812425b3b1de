//! The report of a run.

use std::path::Path;

use super::curves::{drawn, norms, plots};
use super::document::{Block, Document};
use crate::commands::runs::{RunDetails, date, facts};
use crate::error::CliError;
use crate::plot::NamedRun;
use crate::run_history::{History, Status};
use crate::run_settings::shown;

/// Maximum number of evaluations and of samples in a report. The last ones are always included.
const EVALUATIONS: usize = 100;
const SAMPLES: usize = 5;

/// Collects the report of a run.
///
/// # Errors
/// Returns an error if the run cannot be read or drawn.
pub fn document(run: &Path) -> Result<Document, CliError> {
    let details = RunDetails::read(run)?;
    let mut facts = facts(&details);
    facts.insert(
        0,
        ("status".to_owned(), Status::name(details.status).to_owned()),
    );
    let mut blocks = vec![Block::Facts(facts)];
    let named = NamedRun::new(
        details.name.clone(),
        run.to_owned(),
        details.history.clone(),
    );
    if let Some(group) = drawn(named.clone()) {
        blocks.push(Block::Heading("Curves".to_owned()));
        blocks.extend(plots(&[group], "run")?);
    }
    blocks.extend(norms(&named)?);
    blocks.extend(metrics(&details));
    blocks.extend(evaluations(&details.history));
    blocks.extend(samples(&details));
    blocks.extend(sessions(&details));
    if !details.settings.is_empty() {
        let settings = details.settings.iter();
        blocks.push(Block::Heading("Settings".to_owned()));
        blocks.push(Block::Facts(
            settings
                .map(|(key, value)| (key.clone(), shown(value)))
                .collect(),
        ));
    }
    Ok(Document {
        title: format!("Run {}", details.name),
        blocks,
    })
}

fn metrics(details: &RunDetails) -> Vec<Block> {
    match details.metrics.is_empty() {
        true => Vec::new(),
        false => vec![
            Block::Heading("Metrics".to_owned()),
            Block::Table {
                headings: ["metric", "last", "best"].map(str::to_owned).into(),
                rows: details
                    .metrics
                    .iter()
                    .map(|metric| metric.shown.to_vec())
                    .collect(),
            },
        ],
    }
}

fn evaluations(history: &History) -> Vec<Block> {
    let mut steps: Vec<usize> = history.evaluations.iter().map(|point| point.step).collect();
    if steps.is_empty() {
        return Vec::new();
    }
    steps.dedup();
    let kept = thinned(&steps, EVALUATIONS);
    let names: Vec<&String> = history.validated.keys().collect();
    let cell = |name: &String, step: usize| {
        let points = &history.validated[name];
        let value = points
            .iter()
            .rev()
            .find(|point| point.0 == step)
            .map(|point| point.1);
        match (value, history.metric(name)) {
            (Some(value), Some(metric)) => metric.display(value),
            (Some(value), None) => value.to_string(),
            (None, _) => String::new(),
        }
    };
    let title = |name: &&String| match history.metric(name) {
        Some(metric) => metric.label(),
        None => (*name).clone(),
    };
    let heading = match kept.len() == steps.len() {
        true => "Evaluations".to_owned(),
        false => format!("Evaluations: {} of {}", kept.len(), steps.len()),
    };
    let row = |step: &&usize| {
        let cells = names.iter().map(|name| cell(name, **step));
        std::iter::once(step.to_string()).chain(cells).collect()
    };
    vec![
        Block::Heading(heading),
        Block::Table {
            headings: std::iter::once("step".to_owned())
                .chain(names.iter().map(title))
                .collect(),
            rows: kept.iter().map(row).collect(),
        },
    ]
}

fn samples(details: &RunDetails) -> Vec<Block> {
    thinned(&details.samples, SAMPLES)
        .into_iter()
        .flat_map(|sample| {
            [
                Block::Heading(format!("Sample at step {}", sample.step)),
                Block::Text(sample.text.clone()),
            ]
        })
        .collect()
}

/// The sessions of a run: machines and command lines.
pub fn sessions(details: &RunDetails) -> Vec<Block> {
    let of = |session: &crate::run_sessions::Session| {
        let mut facts = vec![("version".to_owned(), session.version.clone())];
        facts.push(("backend".to_owned(), session.backend.clone()));
        facts.extend(session.machine.clone());
        let heading = format!(
            "Session of {}, from step {}",
            date(session.time),
            session.step
        );
        let command = session.command.clone().map(Block::Text);
        [Block::Heading(heading), Block::Facts(facts)]
            .into_iter()
            .chain(command)
    };
    details.sessions.iter().flat_map(of).collect()
}

/// At most `most` items at even distances, with the last one.
fn thinned<T>(items: &[T], most: usize) -> Vec<&T> {
    let every = items.len().div_ceil(most).max(1);
    let mut kept: Vec<&T> = items.iter().rev().step_by(every).collect();
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::thinned;

    #[test]
    fn the_last_item_is_kept() {
        let items: Vec<usize> = (1..=10).collect();
        assert_eq!(thinned(&items, 4), [&1, &4, &7, &10]);
        assert_eq!(thinned(&items, 20).len(), 10);
        assert!(thinned::<usize>(&[], 4).is_empty());
    }
}
