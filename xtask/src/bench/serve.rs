//! `cargo xtask bench serve`: the server's throughput and latency with one client and with many.

mod load;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use emberlm_system::measure::{Contender, Metric, Ratio, Sample, Unit};

use self::load::{Level, Load};
use super::programs::{OursArgs, Program};
use super::session::Session;
use crate::{
    error::Error,
    python::absolute,
    served::{percentile::percentile, process::Server, small_model},
};

/// The time in which all slots must become free after a level.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// Arguments of `cargo xtask bench serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// The sizes of the model, whose weights are initial ones.
    #[arg(long, conflicts_with = "model", default_value = "pocket")]
    preset: String,
    /// A run, checkpoint or Hugging Face directory instead of a preset.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Numbers of concurrent clients in addition to 1, separated by commas.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["16", "64"])]
    clients: Vec<NonZero<usize>>,
    /// The server's slots [default: the number of clients].
    #[arg(long)]
    slots: Option<NonZero<usize>>,
    /// Maximum number of requests per number of clients [default: unlimited].
    #[arg(long)]
    requests: Option<NonZero<usize>>,
    /// Seconds per number of clients.
    #[arg(long, default_value = "20")]
    seconds: NonZero<u64>,
    /// Tokens per prompt; all prompts differ.
    #[arg(long, default_value = "64")]
    prompt: NonZero<usize>,
    /// Tokens per answer.
    #[arg(long, default_value = "64")]
    tokens: NonZero<usize>,
    /// The sampling temperature; 1 is the API's default.
    #[arg(long, default_value = "1")]
    temperature: f64,
    /// The format of the weights, as in `emberlm serve`.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    weights: String,
    /// Run the server with `--deterministic`.
    #[arg(long)]
    deterministic: bool,
    /// Maximum number of draft tokens per answer and pass [default: the server's].
    #[arg(long, value_name = "N")]
    draft_tokens: Option<usize>,
    /// Serve this many adapters of the preset, of rank 8 in all linear layers. The clients ask them in turn.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "model")]
    adapters: usize,
    /// The seed of the prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds, creates the model and measures.
pub fn run(args: &ServeArgs, session: &mut Session) -> Result<(), Error> {
    let binary = args.ours.ready(Program::Emberlm, session)?;
    let folder = session.folder("bench-serve")?;
    let model = match &args.model {
        Some(model) => absolute(model)?,
        None => small_model::of_preset(&binary, &folder, &args.preset)?,
    };
    measure(args, &binary, &model, session)
}

/// The further options of the server.
fn options(args: &ServeArgs) -> Vec<String> {
    let (backend, weights) = (&args.ours.backend, &args.weights);
    let words = ["--backend", backend, "--weights", weights];
    let deterministic = args.deterministic.then_some("--deterministic");
    let mut options: Vec<String> = words
        .into_iter()
        .chain(deterministic)
        .map(str::to_owned)
        .collect();
    if let Some(tokens) = args.draft_tokens {
        options.extend(["--draft-tokens".to_owned(), tokens.to_string()]);
    }
    options
}

fn measure(
    args: &ServeArgs,
    binary: &Path,
    model: &Path,
    session: &mut Session,
) -> Result<(), Error> {
    let slots = args.slots.map_or(most(args), NonZero::get);
    let mut options = options(args);
    let numbers = [
        "--slots",
        &slots.to_string(),
        "--max-queue",
        &most(args).to_string(),
    ];
    options.extend(numbers.map(str::to_owned));
    let names: Vec<String> = (0..args.adapters).map(|n| format!("adapter-{n}")).collect();
    if !names.is_empty() {
        let adapter = small_model::adapter(binary, model)?;
        let named = |name| format!("{name}={}", adapter.display());
        options.extend(names.iter().map(named));
    }
    let server = Server::start(binary, model, &options)?;
    let models = server.json("/api/models")?;
    let base = [server.model.clone()];
    let load = Load {
        server: &server,
        models: if names.is_empty() { &base } else { &names },
        vocab_size: models["models"][0]["vocab_size"].as_u64().unwrap_or(1) as usize,
        prompt: args.prompt.get(),
        tokens: args.tokens.get(),
        temperature: args.temperature,
        lasting: Duration::from_secs(args.seconds.get()),
        requests: args.requests.map_or(usize::MAX, NonZero::get),
        seed: args.seed,
    };
    // Excludes one-time work at the first request.
    load.warm_up()?;
    let numbers = std::iter::once(1).chain(args.clients.iter().map(|clients| clients.get()));
    let contenders = numbers.map(|clients| {
        let (load, server) = (&load, &server);
        Contender::new(name(clients), move || {
            let level = load.measure(clients)?;
            if let Err(stuck) = server.quiet(slots, QUIET_WITHIN)? {
                return Err(Error::Checks { names: stuck });
            }
            Ok(sample(&level))
        })
    });
    let (model, weights, backend) = (&server.model, &args.weights, &args.ours.backend);
    let workload = format!("{model}, {} tokens after {}", args.tokens, args.prompt);
    let (contenders, rounds) = (contenders.collect(), session.rounds(1));
    session.compare(workload, Ratio::OtherToFirst, rounds, contenders)?;
    session.record.parameter("backend", backend);
    session.record.parameter("weights", weights);
    session.record.parameter("slots", slots);
    session.record.parameter("temperature", args.temperature);
    if let Some(resident) = server.resident() {
        let mib = Unit::Bytes.shown(resident as f64);
        let note = format!("resident memory of the server at the end: {mib}");
        session.record.notes.push(note);
    }
    server.stop()
}

fn name(clients: usize) -> String {
    match clients {
        1 => "1 client".to_owned(),
        _ => format!("{clients} clients"),
    }
}

/// The throughput and the latency of a level.
fn sample(level: &Level) -> Sample {
    let mut values = vec![
        (
            Metric::new("", Unit::TokensPerSecond),
            level.tokens as f64 / level.seconds,
        ),
        (Metric::new("requests", Unit::Count), level.requests as f64),
    ];
    for (what, seconds) in [("first token", &level.first), ("each next", &level.next)] {
        for (name, part) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let metric = Metric::new(format!("{what}: {name}"), Unit::Milliseconds);
            values.push((metric, percentile(seconds, part)));
        }
    }
    Sample {
        version: None,
        values,
    }
}

fn most(args: &ServeArgs) -> usize {
    let numbers = args.clients.iter().map(|clients| clients.get());
    numbers.max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parsed(line: &str) -> Result<ServeArgs, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        let parsed = Wrapper::try_parse_from(words);
        parsed
            .map(|wrapper| wrapper.serve)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn default_slots_fit_the_largest_level() {
        assert_eq!(most(&parsed("").unwrap()), 64);
        assert_eq!(most(&parsed("--clients 4,2").unwrap()), 4);
    }

    #[test]
    fn a_level_has_throughput_and_percentiles() {
        let level = Level {
            requests: 2,
            tokens: 350,
            seconds: 2.0,
            first: vec![0.25, 0.5],
            next: vec![0.125],
        };
        let values = sample(&level).values;
        let shown = values
            .iter()
            .map(|(metric, value)| metric.unit.number(*value));
        let shown: Vec<String> = shown.collect();
        let latencies = [
            "250.000", "500.000", "500.000", "125.000", "125.000", "125.000",
        ];
        assert_eq!(shown[..2], ["175.0", "2"]);
        assert_eq!(shown[2..], latencies);
    }

    #[test]
    fn impossible_options_are_refused() {
        assert!(parsed("--clients 0").is_err());
        assert!(parsed("--preset pocket --model runs/a").is_err());
    }
}
