//! `cargo xtask bench serve`: the server's throughput and latency with one client and with many.

mod load;
mod report;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use cargo_metadata::Metadata;

use self::{
    load::{Level, Load},
    report::ServeReport,
};
use super::programs::{OursArgs, Program};
use super::report::Report;
use crate::{
    error::Error,
    python::absolute,
    served::{process::Server, small_model},
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
    /// Serve this many adapters of the preset, of rank 8 in all linear layers. The clients ask them in turn.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "model")]
    adapters: usize,
    /// The seed of the prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds, creates the model, measures and prints.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    let metadata = crate::workspace::metadata()?;
    let binary = args.ours.ready(Program::Emberlm, &metadata)?;
    let model = model(args, &metadata, &binary)?;
    measure(args, &binary, &model)
}

fn model(args: &ServeArgs, metadata: &Metadata, binary: &Path) -> Result<PathBuf, Error> {
    let folder = metadata.target_directory.join("bench-serve");
    let folder = folder.as_std_path();
    match &args.model {
        Some(model) => absolute(model),
        None => small_model::of_preset(binary, folder, &args.preset),
    }
}

/// The further options of the server.
fn options(args: &ServeArgs) -> Vec<String> {
    let (backend, weights) = (&args.ours.backend, &args.weights);
    let words = ["--backend", backend, "--weights", weights];
    let deterministic = args.deterministic.then_some("--deterministic");
    words
        .into_iter()
        .chain(deterministic)
        .map(str::to_owned)
        .collect()
}

fn measure(args: &ServeArgs, binary: &Path, model: &Path) -> Result<(), Error> {
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
    let mut levels: Vec<Level> = Vec::new();
    for clients in numbers {
        let level = load.measure(clients)?;
        eprintln!(
            "{clients} at once: {:.1} tokens/s",
            level.tokens_per_second()
        );
        levels.push(level);
        if let Err(stuck) = server.quiet(slots, QUIET_WITHIN)? {
            return Err(Error::Checks { names: stuck });
        }
    }
    let report = ServeReport {
        model: server.model.clone(),
        backend: args.ours.backend.clone(),
        weights: args.weights.clone(),
        slots,
        prompt: load.prompt,
        tokens: load.tokens,
        temperature: load.temperature,
        resident_mib: server.resident().map(|bytes| bytes >> 20),
        levels,
    };
    server.stop()?;
    report.print(args.json);
    Ok(())
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
    fn impossible_options_are_refused() {
        assert!(parsed("--clients 0").is_err());
        assert!(parsed("--preset pocket --model runs/a").is_err());
    }
}
