//! `cargo xtask bench scaling`: the cost of a training step over model width, sequence length and batch size.
//!
//! The model has the architecture of `pocket`, with heads of 64 in grouped-query attention. Each size is varied
//! from [`BASE`] while the others are fixed.

mod plot;
mod report;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use self::report::{Measured, ScalingReport};
use super::{
    measurement::Measurement,
    programs::{OursArgs, Program},
    report::Report,
};
use crate::{error::Error, python::absolute, workspace};

/// Layers of every model.
const LAYERS: usize = 4;
/// The vocabulary size of every model, small compared with the blocks.
const VOCABULARY: usize = 4096;
/// The width of a head.
const HEAD: usize = 64;

/// The sizes of the unvaried dimensions.
const BASE: Point = Point {
    width: 256,
    seq: 512,
    batch: 1,
};

/// Arguments of `cargo xtask bench scaling`.
#[derive(Debug, clap::Args)]
pub struct ScalingArgs {
    /// The largest width, sequence and batch, for a shorter measurement.
    #[arg(long, value_name = "N")]
    at_most: Option<usize>,
    /// Measured steps per size, after three warm-up steps.
    #[arg(long, default_value = "5")]
    steps: NonZero<usize>,
    /// The plot [default: bench-scaling.svg in the target folder].
    #[arg(long, value_name = "FILE.svg")]
    out: Option<PathBuf>,
    /// Print one line of JSON instead of the Markdown table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
}

/// The sizes of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Point {
    width: usize,
    seq: usize,
    batch: usize,
}

/// A varied size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Width,
    Sequence,
    Batch,
}

impl Dimension {
    const ALL: [Self; 3] = [Self::Width, Self::Sequence, Self::Batch];

    fn name(self) -> &'static str {
        match self {
            Self::Width => "width",
            Self::Sequence => "sequence",
            Self::Batch => "batch",
        }
    }

    /// The least and the greatest size. Each step doubles the size.
    fn range(self) -> (usize, usize) {
        match self {
            Self::Width => (128, 1024),
            Self::Sequence => (128, 4096),
            Self::Batch => (1, 16),
        }
    }

    fn of(self, point: Point) -> usize {
        match self {
            Self::Width => point.width,
            Self::Sequence => point.seq,
            Self::Batch => point.batch,
        }
    }

    fn at(self, size: usize) -> Point {
        match self {
            Self::Width => Point {
                width: size,
                ..BASE
            },
            Self::Sequence => Point { seq: size, ..BASE },
            Self::Batch => Point {
                batch: size,
                ..BASE
            },
        }
    }

    /// The base with this size varied.
    fn points(self) -> Vec<Point> {
        let (least, greatest) = self.range();
        let doubled = |&size: &usize| Some(2 * size);
        std::iter::successors(Some(least), doubled)
            .take_while(|&size| size <= greatest)
            .map(|size| self.at(size))
            .collect()
    }
}

/// All points once, although the base belongs to every dimension.
fn points(at_most: Option<usize>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for dimension in Dimension::ALL {
        for point in dimension.points() {
            let small = at_most.is_none_or(|most| dimension.of(point) <= most);
            if small && !points.contains(&point) {
                points.push(point);
            }
        }
    }
    points
}

/// Builds, measures, prints the table and writes the plot.
pub fn run(args: &ScalingArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let binary = args.ours.ready(Program::Bench, &metadata)?;
    let out = match &args.out {
        Some(out) => absolute(out)?,
        None => metadata.target_directory.join("bench-scaling.svg").into(),
    };
    let measured = points(args.at_most)
        .into_iter()
        .map(|point| measure(args, &binary, point))
        .collect::<Result<_, _>>()?;
    let report = ScalingReport { measured };
    std::fs::write(&out, plot::svg(&report)).map_err(|source| Error::Write {
        path: out.clone(),
        source,
    })?;
    report.print(args.json);
    eprintln!("plot: {}", out.display());
    Ok(())
}

fn measure(args: &ScalingArgs, binary: &Path, point: Point) -> Result<Measured, Error> {
    let run = Measurement::take(&mut command(args, binary, point))?;
    let Point { width, seq, batch } = point;
    let (speed, peak) = (run.tokens_per_second, run.peak_rss_mib);
    eprintln!("width {width}, {batch} × {seq}: {speed:.1} tokens/s, {peak} MiB");
    Ok(Measured { point, run })
}

fn command(args: &ScalingArgs, binary: &Path, point: Point) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench-train", "--preset", "pocket", "--json"]);
    command.args(["--backend", &args.ours.backend]);
    command.args(["--steps", &args.steps.to_string()]);
    command.args(["--batch", &point.batch.to_string()]);
    let heads = point.width / HEAD;
    for (key, value) in [
        ("vocab_size", VOCABULARY),
        ("n_layers", LAYERS),
        ("d_model", point.width),
        ("seq_len", point.seq),
        ("heads", heads),
        ("kv_heads", heads / 2),
        ("feed_forward.width", 4 * point.width),
    ] {
        command.args(["--set", &format!("model.{key}={value}")]);
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        scaling: ScalingArgs,
    }

    #[test]
    fn the_base_is_measured_once_and_is_in_every_dimension() {
        let points = points(None);
        assert_eq!(points.len(), 4 + 6 + 5 - 2);
        assert_eq!(points.iter().filter(|&&point| point == BASE).count(), 1);
        for dimension in Dimension::ALL {
            assert!(dimension.points().contains(&BASE), "{dimension:?}");
        }
    }

    #[test]
    fn large_sizes_can_be_excluded() {
        let sizes: Vec<usize> = points(Some(256)).iter().map(|point| point.width).collect();
        assert!(sizes.iter().all(|&width| width <= 256), "{sizes:?}");
    }

    #[test]
    fn a_model_has_heads_of_64() {
        let parsed = Wrapper::try_parse_from(["scaling"]);
        let args = parsed.unwrap_or_else(|error| panic!("{error}")).scaling;
        let shown = |point| workspace::shown(&command(&args, Path::new("emberlm"), point));
        let narrow = shown(Dimension::Width.at(128));
        assert!(
            narrow.contains("model.heads=2 --set model.kv_heads=1"),
            "{narrow}"
        );
        let long = shown(Dimension::Sequence.at(4096));
        assert!(long.contains("--batch 1 "), "{long}");
        assert!(long.contains("model.seq_len=4096"), "{long}");
    }
}
