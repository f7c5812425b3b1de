//! `cargo xtask bench scaling`: the cost of a training step over model width, sequence length and batch size.
//!
//! The model has the architecture of `pocket`, with heads of 64 in grouped-query attention. Each size is varied
//! from [`BASE`] while the others are fixed.

use std::{num::NonZero, process::Command};

use emberlm_system::measure::Ratio;

use super::{
    programs::{OursArgs, Program, contender},
    session::Session,
    training::{FIELDS, Training},
};
use crate::error::Error;

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

/// Builds and measures.
pub fn run(args: &ScalingArgs, session: &mut Session) -> Result<(), Error> {
    let binary = args.ours.ready(Program::Bench, session)?;
    let rounds = session.rounds(1);
    for point in points(args.at_most) {
        let training = training(point, args.steps.get());
        let ours = contender("emberlm", &FIELDS, || {
            let mut command = Command::new(&binary);
            training.ours(&mut command, &args.ours.backend);
            command
        });
        let workload = format!("width {}, {} × {}", point.width, point.batch, point.seq);
        session.compare(workload, Ratio::FirstToOther, rounds, vec![ours])?;
    }
    Ok(())
}

fn training(point: Point, steps: usize) -> Training {
    let heads = point.width / HEAD;
    let sizes = [
        ("vocab_size", VOCABULARY),
        ("n_layers", LAYERS),
        ("d_model", point.width),
        ("seq_len", point.seq),
        ("heads", heads),
        ("kv_heads", heads / 2),
        ("feed_forward.width", 4 * point.width),
    ];
    let setting = |(key, value)| format!("model.{key}={value}");
    Training {
        overrides: sizes.map(setting).into(),
        ..Training::new("pocket", [steps, point.batch, point.seq])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let narrow = training(Dimension::Width.at(128), 5).overrides.join(" ");
        let heads = "model.heads=2 model.kv_heads=1";
        assert!(narrow.contains(heads), "{narrow}");
        let long = training(Dimension::Sequence.at(4096), 5);
        assert_eq!((long.batch, long.seq), (1, 4096));
        assert!(long.overrides.contains(&"model.seq_len=4096".to_owned()));
    }
}
