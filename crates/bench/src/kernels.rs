//! `emberlm-bench kernels`: measures each operation of a backend interleaved with its reference implementation.
//! `cargo xtask bench kernels` runs it.
//!
//! Map: `workload` has the sizes, `measurements` measures, and `products` and `elementwise` have the operations.

mod elementwise;
mod measurements;
mod products;
mod workload;

use burn::tensor::Device;
use clap::Args;
use emberlm_kernels::{Backend, TrainingBackend};
use serde_json::{Value, json};

use self::measurements::{Measurements, Row};
use self::workload::WORKLOADS;
use emberlm_cli::shared::CliError;
use emberlm_cli::shared::{Align, Table, print, print_json};
use emberlm_cli::shared::{BackendArg, Job};

/// Arguments of `kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// Only workloads and operations whose WORKLOAD/OPERATION contains NAME, such as pocket/ or linear_backward
    #[arg(long, value_name = "NAME", default_value = "")]
    pub only: String,
    /// Measurements of each operation; medians are printed
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub rounds: usize,
    /// Print {"backend", "threads", "rows": [{"workload", "operation", "seconds", "against", "ratio", ...}]}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command.
///
/// # Errors
/// The backend does not exist, or no operation matches the name.
pub fn run(args: KernelsArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let rows = backend.run(Bench {
        only: args.only.clone(),
        rounds: args.rounds.max(1),
    })?;
    if rows.is_empty() {
        let only = &args.only;
        return Err(CliError::usage(format!("no operation has `{only}` in it"))
            .hint("run it without --only: it lists them all"));
    }
    if args.json {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let rows: Vec<Value> = rows.iter().map(to_json).collect();
        let all = json!({ "backend": backend.name(), "threads": threads, "rows": rows });
        return print_json(&all);
    }
    print(&table(&rows))
}

struct Bench {
    only: String,
    rounds: usize,
}

impl Job for Bench {
    type Output = Vec<Row>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        // Training steps also run here.
        B::InnerBackend::run(|| {
            let mut rows = Vec::new();
            for workload in &WORKLOADS {
                let mut measurements = Measurements::<B::InnerBackend>::new(
                    workload,
                    &self.only,
                    self.rounds,
                    device.clone(),
                );
                products::measure(&mut measurements, workload);
                elementwise::measure(&mut measurements, workload);
                rows.extend(measurements.finished());
            }
            rows
        })
    }
}

fn to_json(row: &Row) -> Value {
    let (unit, amount) = row.work.per_second(row.ours);
    json!({
        "workload": row.workload,
        "operation": row.operation,
        "seconds": row.ours,
        "against": row.against.name(),
        "against_seconds": row.other,
        "ratio": row.ours / row.other,
        unit: amount,
    })
}

fn table(rows: &[Row]) -> String {
    let mut columns = vec![Align::Left; 2];
    columns.extend([Align::Right; 5]);
    columns.push(Align::Left);
    let mut table = Table::new(columns);
    let head = [
        "workload",
        "operation",
        "ms",
        "against",
        "ms",
        "ratio",
        "",
        "",
    ];
    table.row(head);
    for row in rows {
        let (unit, amount) = row.work.per_second(row.ours);
        table.row([
            row.workload.to_owned(),
            row.operation.to_owned(),
            format!("{:.3}", row.ours * 1e3),
            row.against.name().to_owned(),
            format!("{:.3}", row.other * 1e3),
            format!("{:.2}", row.ours / row.other),
            format!("{amount:.1}"),
            unit.to_owned(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::measurements::{Baseline, Work};
    use super::*;

    #[test]
    fn a_row_tells_rates_and_the_ratio() {
        let row = Row {
            workload: "char",
            operation: "linear",
            work: Work::Flops(3e9),
            against: Baseline::Composed,
            ours: 0.5,
            other: 2.0,
        };
        let value = to_json(&row);
        assert_eq!(
            (&value["ratio"], &value["GFLOP/s"]),
            (&json!(0.25), &json!(6.0))
        );
        let line = table(&[row]).lines().last().map(str::to_owned);
        let words: Vec<_> = line
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        let expected = [
            "char", "linear", "500.000", "composed", "2000.000", "0.25", "6.0", "GFLOP/s",
        ];
        assert_eq!(words, expected);
    }
}
