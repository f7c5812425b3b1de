//! `plot --norms`: a norm of each layer of a run over the steps.

use emberlm_trainer::events::NormKind;

use super::data::PlotFile;
use crate::csv::{Csv, number};
use crate::error::CliError;
use crate::output::print;
use crate::plot::{LayerMap, NamedRun, Page};
use crate::shell::shell_path;

/// Draws the norms of the only run, or writes all norms as comma-separated values.
///
/// # Errors
/// There are several runs, the run has no such norms, or the file cannot be written.
pub fn run(runs: &[NamedRun], kind: NormKind, out: &PlotFile) -> Result<(), CliError> {
    let [run] = runs else {
        let message = format!("--norms draws one run (got {})", runs.len());
        return Err(CliError::usage(message).hint("name one run"));
    };
    let Some(map) = LayerMap::new(run, kind) else {
        let message = format!(
            "the run {} has no {} norms",
            shell_path(&run.folder),
            kind.name()
        );
        return Err(CliError::new(message).hint(
            "`emberlm train --norms-interval N` records them at every Nth step; encoder–decoders have no activation norms",
        ));
    };
    match out {
        PlotFile::Csv(path) => table(run).write(path)?,
        PlotFile::Picture(file) => {
            let page = Page {
                title: map.title(),
                headings: &["layer", "first", "last", "lowest", "highest"],
                rows: &map.rows(),
            };
            file.write(&map, &page)?;
        }
    }
    print(&format!("{}: 1 run\n", out.path().display()))
}

/// The norms of all kinds: one row per step and layer.
fn table(run: &NamedRun) -> Csv {
    let kinds = NormKind::ALL.map(NormKind::name);
    let mut csv = Csv::new(["run", "step", "layer"].into_iter().chain(kinds));
    for (step, layers) in &run.history.norms {
        for layer in layers {
            let mut row = vec![run.name.clone(), step.to_string(), layer.layer.clone()];
            row.extend(NormKind::ALL.map(|kind| number(kind.of(layer))));
            csv.row(row);
        }
    }
    csv
}
