//! Memory of a run: the check before it starts, and the table of `--memory-report`.

use emberlm_trainer::fit::{Prediction, plans, predict_rank};
use emberlm_trainer::memory_report::MemoryReport;
use emberlm_trainer::{RunConfig, RunStart, TrainConfig, memory, run};

use super::start::RecordTexts;
use crate::commands::fit;
use crate::error::CliError;
use crate::memory_guard::{Demand, MemoryGuard};
use crate::output::{Align, Table, size};

/// Rejects a run whose predicted memory exceeds the available memory, before any large allocation. A model
/// that does not match its data passes: the run reports that error. `texts` are those of the model to start from. The
/// memory is that of each of `ranks` processes.
///
/// # Errors
/// Returns an error if the run does not fit or a setting is invalid.
pub fn check(
    config: &RunConfig,
    start: &RunStart,
    texts: RecordTexts,
    ranks: usize,
    guard: MemoryGuard,
) -> Result<(), CliError> {
    let Ok((model, train)) = run::sized(config, start, texts.tokenizer, texts.chat_template) else {
        return Ok(());
    };
    let train = &train;
    let program = memory::resident().unwrap_or(0);
    let demand = |train: &TrainConfig| -> Result<Demand, CliError> {
        let predicted = predict_rank(&model, train, ranks, program)?;
        Ok(Demand::training(&predicted))
    };
    let of_config = demand(train)?;
    guard.check(&of_config, || {
        let found = plans(train).into_iter().find_map(|plan| {
            let demand = demand(&plan.over(train)).ok()?;
            let fits = guard.fits(&demand);
            fits.then(|| (plan, demand.total()))
        });
        let hint = match found {
            Some((plan, total)) => format!(
                "this fits, in about {}, with as many tokens in a step: {}",
                size(total),
                plan.options(train)
            ),
            None => {
                "no division of the step fits: make the model or its sequences smaller, such as \
                --set train.seq_len=128, or take another --preset"
                    .to_owned()
            }
        };
        vec![hint]
    })
}

/// Formats the memory measured on a device with its own memory.
pub fn measured(report: &MemoryReport) -> String {
    table(
        "A step's memory on the device, measured on random tokens",
        &[
            ("weights", report.weights, ""),
            ("optimizer", report.optimizer, ""),
            ("gradients", report.gradients, ""),
            ("activations", report.activations, "kept for the gradients"),
            ("head", report.head, "what its loss leaves"),
            ("batch", report.batch, ""),
            (
                "taken",
                report.reserved,
                "with what operations hold, at most",
            ),
        ],
    )
}

/// Formats the memory predicted for the CPU.
pub fn predicted(prediction: &Prediction) -> String {
    let all = ("in all", prediction.total, "");
    let rows: Vec<_> = fit::parts(prediction).into_iter().chain([all]).collect();
    table(
        "A step's memory, predicted (emberlm fit measures it too)",
        &rows,
    )
}

fn table(title: &str, rows: &[(&str, u64, &str)]) -> String {
    let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
    for &(name, bytes, about) in rows {
        table.row([name, &size(bytes), about]);
    }
    format!("{title}\n{}", table.render())
}
