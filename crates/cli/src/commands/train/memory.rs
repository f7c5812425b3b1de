//! `--memory-report`: what a step holds, part by part, before the run begins.

use emberlm_trainer::fit::Prediction;
use emberlm_trainer::memory_report::MemoryReport;

use crate::commands::fit;
use crate::output::{Align, Table, size};

/// What was measured on a device with memory of its own.
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

/// What is predicted on the processor.
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
