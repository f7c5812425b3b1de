//! `cargo xtask bench ranks`: training on two ranks compared with one process on the same cores, and the cost of the
//! exchange between ranks.
//!
//! Needs Open MPI, two cores and Linux's `taskset`. `cost` is the model of the cost, and `report` prints.

mod cost;
mod report;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use self::{
    cost::{CostModel, Exchange},
    report::{Exchanges, RanksReport, Scaling},
};
use super::{
    measurement::Measurement,
    programs::{self, Program},
    report::{Report, median},
};
use crate::{error::Error, python::absolute, workspace};

/// The ranks of all measurements, each on one core with one thread.
const RANKS: usize = 2;

/// The bandwidth of the simulated link in GB/s: that of 10 GbE.
const LINK: f64 = 1.25;

/// The sizes of gradients, in MiB, that the cost model is fitted to: at least one bucket. Smaller ones fit into the cache, and
/// a fit from 1 MiB on missed exchanges of 2 MiB by 143% and of 32 MiB by 37%.
const FITTED: [usize; 3] = [16, 64, 256];
/// The sizes that it predicts.
const PREDICTED: [usize; 2] = [32, 128];

/// A training workload: the preset, the sequences of a step on all ranks, and tokens per sequence.
#[derive(Debug, Clone, Copy)]
struct Workload {
    preset: &'static str,
    batch: usize,
    seq: usize,
}

const WORKLOADS: [Workload; 2] = [
    Workload {
        preset: "pocket",
        batch: 12,
        seq: 256,
    },
    Workload {
        preset: "gpt2-small",
        batch: 4,
        seq: 128,
    },
];

/// Arguments of `cargo xtask bench ranks`.
#[derive(Debug, clap::Args)]
pub struct RanksArgs {
    /// Rounds, in which all programs run once; medians are printed.
    #[arg(long, default_value = "3")]
    rounds: NonZero<usize>,
    /// Measured steps of each run, after three warm-up steps.
    #[arg(long, default_value = "3")]
    steps: NonZero<usize>,
    /// Measure this `emberlm-bench`, built with the features flex and mpi, instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print one line of JSON instead of the Markdown tables.
    #[arg(long)]
    json: bool,
}

/// Builds, measures and prints.
pub fn run(args: &RanksArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => {
            programs::build("flex,mpi")?;
            Program::Bench.path(&metadata).into()
        }
    };
    let exchanges = [
        exchanges(&binary, "shared memory", &[])?,
        exchanges(
            &binary,
            "TCP loopback",
            &[
                "--mca",
                "btl",
                "self,tcp",
                "--mca",
                "btl_tcp_if_include",
                "lo",
            ],
        )?,
    ];
    let scaling = WORKLOADS.map(|workload| scaling(args, &binary, workload));
    let scaling = scaling.into_iter().collect::<Result<Vec<_>, _>>()?;
    RanksReport {
        ranks: RANKS,
        link: LINK,
        scaling,
        exchanges: exchanges.into(),
    }
    .print(args.json);
    Ok(())
}

/// Measures one process, two ranks, and two processes that do not exchange, in turn.
fn scaling(args: &RanksArgs, binary: &Path, workload: Workload) -> Result<Scaling, Error> {
    let [mut one, mut ranks, mut linked, mut apart] = [(); 4].map(|()| Vec::new());
    let mut parameters = 0;
    for round in 1..=args.rounds.get() {
        let single = Measurement::take(&mut single(args, binary, workload))?;
        let on_ranks = Measurement::take(&mut on_ranks(args, binary, workload))?;
        let over_link = Measurement::take(&mut over_link(args, binary, workload))?;
        let each = two_apart(args, binary, workload)?;
        let Workload { preset, batch, seq } = workload;
        eprintln!(
            "round {round}, {preset}, {batch} × {seq}: one process {:.3} s, {RANKS} ranks {:.3} s, over a link {:.3} s, without exchange {each:.3} s",
            single.seconds_per_step, on_ranks.seconds_per_step, over_link.seconds_per_step
        );
        parameters = single.parameters;
        one.push(single.seconds_per_step);
        ranks.push(on_ranks.seconds_per_step);
        linked.push(over_link.seconds_per_step);
        apart.push(each);
    }
    Ok(Scaling {
        preset: workload.preset,
        batch: workload.batch,
        seq: workload.seq,
        parameters,
        one: median(one),
        ranks: median(ranks),
        linked: median(linked),
        apart: median(apart),
    })
}

/// One process with a thread on each core.
fn single(args: &RanksArgs, binary: &Path, workload: Workload) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "0,1"]).arg(binary);
    command.env("RAYON_NUM_THREADS", RANKS.to_string());
    train(&mut command, args, workload, workload.batch);
    command
}

/// A rank on each core.
fn on_ranks(args: &RanksArgs, binary: &Path, workload: Workload) -> Command {
    let mut command = mpirun();
    command.arg(binary);
    train(&mut command, args, workload, workload.batch / RANKS);
    command
}

/// A rank on each core, with the bandwidth of a link between two hosts.
fn over_link(args: &RanksArgs, binary: &Path, workload: Workload) -> Command {
    let mut command = on_ranks(args, binary, workload);
    command.args(["--link", &LINK.to_string()]);
    command
}

/// The greater step time of a process on each core, which do not exchange, each with the batch of a rank.
fn two_apart(args: &RanksArgs, binary: &Path, workload: Workload) -> Result<f64, Error> {
    let on_core = |core: usize| {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &core.to_string()]).arg(binary);
        command.env("RAYON_NUM_THREADS", "1");
        train(&mut command, args, workload, workload.batch / RANKS);
        command
    };
    let mut second = on_core(1);
    second.stdout(Stdio::null());
    let mut other = second.spawn().map_err(|source| Error::Start {
        command: workspace::shown(&second),
        source,
    })?;
    let found = Measurement::take(&mut on_core(0));
    // The first may have measured its last step without the other; both have the same work.
    let ended = other.wait();
    let status = ended.map_err(|source| Error::Start {
        command: workspace::shown(&second),
        source,
    })?;
    match status.success() {
        true => Ok(found?.seconds_per_step),
        false => Err(Error::Failed {
            command: workspace::shown(&second),
            status,
        }),
    }
}

/// Open MPI's launcher with a rank of one thread on each core.
fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "-n", &RANKS.to_string()]);
    command.args(["--map-by", "core", "--bind-to", "core"]);
    command.env("RAYON_NUM_THREADS", "1");
    command
}

fn train(command: &mut Command, args: &RanksArgs, workload: Workload, batch: usize) {
    command.args(["train", "--preset", workload.preset, "--backend", "flex"]);
    command.args(["--batch", &batch.to_string()]);
    command.args(["--steps", &args.steps.to_string()]);
    command.args(["--set", &format!("train.seq_len={}", workload.seq)]);
}

/// Measures exchanges over one of Open MPI's transports, which uses shared memory by default, and fits the cost model to some of them.
fn exchanges(binary: &Path, name: &'static str, options: &[&str]) -> Result<Exchanges, Error> {
    let mut command = mpirun();
    command.args(options).arg(binary);
    let sizes: Vec<String> = FITTED
        .iter()
        .chain(&PREDICTED)
        .map(usize::to_string)
        .collect();
    command.args(["exchange", "--rounds", "7", "--mib", &sizes.join(",")]);
    let found = programs::last_json(&mut command, "exchanges")?;
    let bucket = found["bucket"].as_u64().unwrap_or(1);
    let exchange = |value: &Value| {
        Some(Exchange {
            ranks: RANKS,
            bytes: value["bytes"].as_u64()? as f64,
            seconds: value["seconds"].as_f64()?,
            transfer: value["transfer"].as_f64()?,
        })
    };
    let all = found["exchanges"].as_array().into_iter().flatten();
    let all: Option<Vec<Exchange>> = all.map(exchange).collect();
    let mut fitted = all.ok_or_else(|| Error::Measurement {
        command: workspace::shown(&command),
        field: "exchanges",
        output: found.to_string(),
    })?;
    let predicted = fitted.split_off(FITTED.len().min(fitted.len()));
    let model = CostModel::fit(bucket as f64, &fitted);
    Ok(Exchanges {
        name,
        model,
        fitted,
        predicted,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        ranks: RanksArgs,
    }

    #[test]
    fn both_have_the_same_sequences_per_step_on_the_same_cores() {
        let parsed = Wrapper::try_parse_from(["ranks", "--steps", "4"]);
        let args = parsed.unwrap_or_else(|error| panic!("{error}")).ranks;
        let binary = Path::new("emberlm-bench");
        let one = workspace::shown(&single(&args, binary, WORKLOADS[0]));
        assert!(
            one.starts_with("taskset --cpu-list 0,1 emberlm-bench train --preset pocket"),
            "{one}"
        );
        assert!(one.contains("--batch 12 --steps 4"), "{one}");
        let two = workspace::shown(&on_ranks(&args, binary, WORKLOADS[0]));
        assert!(
            two.contains("-n 2 --map-by core --bind-to core emberlm-bench train"),
            "{two}"
        );
        assert!(two.contains("--batch 6 --steps 4"), "{two}");
    }
}
