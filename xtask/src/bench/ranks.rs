//! `cargo xtask bench ranks`: training on two ranks compared with one process on the same cores, and the cost of the
//! exchange between ranks.
//!
//! Needs Open MPI, two cores and Linux's `taskset`.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use emberlm_system::measure::{Comparison, Contender, Metric, Ratio, Sample, Unit};
use serde_json::Value;

use super::{
    programs::{self, Program, last_json},
    session::Session,
    training::Training,
};
use crate::{error::Error, python::absolute, workspace};

/// The ranks of all measurements, each on one core with one thread.
const RANKS: usize = 2;

/// The bandwidth of the simulated link in GB/s: that of 10 GbE.
const LINK: f64 = 1.25;

/// The sizes of gradients in MiB: at least one bucket.
const SIZES: &str = "16,32,64,128,256";

/// The presets, the sequences of a step on all ranks, and tokens per sequence.
const WORKLOADS: [(&str, usize, usize); 2] = [("pocket", 12, 256), ("gpt2-small", 4, 128)];

/// Names of the compared programs.
const ONE: &str = "one process";
const TWO: &str = "2 ranks";
const LINKED: &str = "2 ranks over a link";
const APART: &str = "without exchange";

/// Arguments of `cargo xtask bench ranks`.
#[derive(Debug, clap::Args)]
pub struct RanksArgs {
    /// Measured steps of each run, after three warm-up steps.
    #[arg(long, default_value = "3")]
    steps: NonZero<usize>,
    /// Measure this `emberlm-bench`, built with the features flex and mpi, instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// A measured exchange.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    /// The bytes of all gradients.
    bytes: f64,
    seconds: f64,
    /// The seconds of the transport.
    transfer: f64,
}

/// Builds and measures.
pub fn run(args: &RanksArgs, session: &mut Session) -> Result<(), Error> {
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => {
            programs::build("flex,mpi")?;
            Program::Bench.path(&session.metadata).into()
        }
    };
    let loopback = ["btl", "self,tcp", "btl_tcp_if_include", "lo"];
    let [btl, tcp, interface, lo] = loopback;
    let tcp = ["--mca", btl, tcp, "--mca", interface, lo];
    let mut exchanges = Vec::new();
    // Open MPI uses shared memory by default.
    for (name, options) in [("shared memory", &[][..]), ("TCP loopback", &tcp)] {
        exchanges.push((name, exchange(&binary, options)?));
    }
    for workload in WORKLOADS {
        scaling(args, &binary, workload, session)?;
    }
    let comparisons = &mut session.record.comparisons;
    comparisons.extend(exchange_sizes(&exchanges));
    Ok(())
}

/// Measures one process, two ranks, and two processes that do not exchange, in turn. Notes how much of the time of the
/// step's bytes on the link is during computation.
fn scaling(
    args: &RanksArgs,
    binary: &Path,
    (preset, batch, seq): (&'static str, usize, usize),
    session: &mut Session,
) -> Result<(), Error> {
    let training = |batch| Training::new(preset, [args.steps.get(), batch, seq]);
    let (whole, half) = (training(batch), training(batch / RANKS));
    let parameters = std::cell::Cell::new(f64::NAN);
    let tokens = (batch * seq) as f64;
    let sample = |output: Value| {
        parameters.set(output["parameters"].as_f64().unwrap_or(f64::NAN));
        let seconds = output["seconds_per_step"].as_f64().unwrap_or(f64::NAN);
        Sample {
            version: None,
            values: vec![
                (Metric::new("", Unit::TokensPerSecond), tokens / seconds),
                (Metric::new("step", Unit::Seconds), seconds),
            ],
        }
    };
    let last = |mut command: Command| last_json(&mut command, "seconds_per_step");
    let contenders = vec![
        Contender::new(ONE, || last(single(binary, &whole)).map(sample)),
        Contender::new(TWO, || last(on_ranks(binary, &half)).map(sample)),
        Contender::new(LINKED, || last(over_link(binary, &half)).map(sample)),
        Contender::new(APART, || two_apart(binary, &half).map(sample)),
    ];
    let rounds = session.rounds(3);
    let made = session.compare(whole.title(), Ratio::OtherToFirst, rounds, contenders)?;
    let seconds = |name| {
        let step = made.program(name).and_then(|it| it.figure("step, s"));
        step.map_or(f64::NAN, |figure| figure.median())
    };
    let added = seconds(LINKED) - seconds(TWO);
    let overlap = overlap(4.0 * parameters.get(), added);
    session
        .record
        .notes
        .push(format!("{}: {overlap}", whole.title()));
    Ok(())
}

/// The time on the link of gradients of `bytes` bytes, and the share of it by which a step is not `added` seconds longer.
fn overlap(bytes: f64, added: f64) -> String {
    // A rank sends a share of the gradients and of the parameters to each other rank.
    let sent = 2.0 * (RANKS - 1) as f64 / RANKS as f64 * bytes;
    let on_link = sent / (LINK * 1e9);
    let hidden = 100.0 * (1.0 - added / on_link);
    format!("{on_link:.2} s on a link of {LINK} GB/s, of which {hidden:.0}% during computation")
}

/// One process with a thread on each core.
fn single(binary: &Path, training: &Training) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "0,1"]).arg(binary);
    command.env("RAYON_NUM_THREADS", RANKS.to_string());
    training.ours(&mut command, "flex");
    command
}

/// A rank on each core.
fn on_ranks(binary: &Path, training: &Training) -> Command {
    let mut command = mpirun();
    command.arg(binary);
    training.ours(&mut command, "flex");
    command
}

/// A rank on each core, with the bandwidth of a link between two hosts.
fn over_link(binary: &Path, training: &Training) -> Command {
    let mut command = on_ranks(binary, training);
    command.args(["--link", &LINK.to_string()]);
    command
}

/// A process on each core, which do not exchange, each with the batch of a rank. Returns the output of the first.
fn two_apart(binary: &Path, training: &Training) -> Result<Value, Error> {
    let on_core = |core: usize| {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &core.to_string()]).arg(binary);
        command.env("RAYON_NUM_THREADS", "1");
        training.ours(&mut command, "flex");
        command
    };
    let mut second = on_core(1);
    second.stdout(Stdio::null());
    let mut other = second.spawn().map_err(Error::start(&second))?;
    let found = last_json(&mut on_core(0), "seconds_per_step");
    // The first may have measured its last step without the other; both have the same work.
    let status = other.wait().map_err(Error::start(&second))?;
    match status.success() {
        true => found,
        false => Err(Error::failed(&second, status)),
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

/// Measures exchanges of several sizes.
fn exchange(binary: &Path, options: &[&str]) -> Result<Vec<Exchange>, Error> {
    let mut command = mpirun();
    command.args(options).arg(binary);
    command.args(["exchange", "--rounds", "7", "--mib", SIZES]);
    let found = last_json(&mut command, "exchanges")?;
    let exchange = |value: &Value| {
        Some(Exchange {
            bytes: value["bytes"].as_u64()? as f64,
            seconds: value["seconds"].as_f64()?,
            transfer: value["transfer"].as_f64()?,
        })
    };
    let all = found["exchanges"].as_array().into_iter().flatten();
    let all: Option<Vec<Exchange>> = all.map(exchange).collect();
    all.ok_or_else(|| Error::Measurement {
        command: workspace::shown(&command),
        field: "exchanges",
        output: found.to_string(),
    })
}

/// The transports on each size of gradients.
fn exchange_sizes(exchanges: &[(&str, Vec<Exchange>)]) -> Vec<Comparison> {
    let mut made: Vec<Comparison> = Vec::new();
    for (name, measured) in exchanges {
        for it in measured {
            let workload = format!("exchange of {}", Unit::Bytes.shown(it.bytes));
            let known = made.iter().position(|known| known.workload == workload);
            let at = known.unwrap_or_else(|| {
                made.push(Comparison::new(workload, Ratio::OtherToFirst));
                made.len() - 1
            });
            let values = vec![
                (Metric::new("", Unit::Milliseconds), it.seconds),
                (Metric::new("transport", Unit::Milliseconds), it.transfer),
            ];
            let version = None;
            made[at].add(name, Sample { version, values });
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_the_same_sequences_per_step_on_the_same_cores() {
        let binary = Path::new("emberlm-bench");
        let one = workspace::shown(&single(binary, &Training::new("pocket", [4, 12, 256])));
        let two = workspace::shown(&on_ranks(binary, &Training::new("pocket", [4, 6, 256])));
        let starts = "taskset --cpu-list 0,1 emberlm-bench bench-train --preset pocket";
        assert!(one.starts_with(starts), "{one}");
        assert!(one.contains("--steps 4 --batch 12"), "{one}");
        let cores = "-n 2 --map-by core --bind-to core emberlm-bench bench-train";
        assert!(two.contains(cores), "{two}");
        assert!(two.contains("--steps 4 --batch 6"), "{two}");
    }

    #[test]
    fn a_step_that_is_longer_by_a_part_of_the_link_hides_the_rest() {
        // 200 MB take 0.16 s.
        let expected = "0.16 s on a link of 1.25 GB/s, of which 75% during computation";
        assert_eq!(overlap(200e6, 0.04), expected);
    }

    #[test]
    fn transports_are_compared_by_size() {
        let exchange = |mib: f64| Exchange {
            bytes: mib * f64::from(1 << 20),
            seconds: 1e-3,
            transfer: 5e-4,
        };
        let both = [16.0, 32.0].map(exchange).to_vec();
        let made = exchange_sizes(&[("a", both.clone()), ("b", both)]);
        assert_eq!(made.len(), 2);
        assert_eq!(made[1].workload, "exchange of 32.0 MiB");
        assert_eq!(made[1].programs.len(), 2);
    }
}
