//! Runs whose steps are read only when something is due must equal runs whose steps are read one by one, bit
//! by bit.

#[path = "../../../../tests/common/mod.rs"]
mod common;
mod ends;
mod ranks;
mod scale;
mod skips;
mod threads;
mod unlike_ranks;

use std::fs;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::Tensor;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use common::{TestFolder, options};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{ParamMapper, map_params};
use emberlm_model::{Transformer, TransformerConfig};

use crate::checkpoint::Checkpoint;
use crate::config::{DecayScheduleKind, ParametrizationKind};
use crate::error::TrainError;
use crate::optimizer::loss_scale::LossScale;
use crate::peers::SingleProcess;
use crate::report::events::{self, Event};
use crate::run::{RunResult, RunStart, resolve_model, train_with};
use crate::step::engine::{EngineOptions, ReadPolicy};
use crate::{Interrupter, OptimizerKind, RunConfig, RunFolder};

/// A model whose embedding of `Z` is NaN. Only steps with a `Z` have a non-finite loss and gradients.
fn with_nan_embedding<B: TrainingBackend>(
    place: &TestFolder,
    config: &RunConfig,
) -> Transformer<B> {
    let dataset = place.dataset();
    let id = dataset.tokenizer().encode("Z").unwrap()[0] as usize;
    let model: TransformerConfig = resolve_model(&mut config.clone(), &dataset).unwrap();
    let decoder = model.init::<B>(1, &Default::default());
    map_params(decoder, &mut Hole(id))
}

struct Hole(usize);

impl<B: TrainingBackend> ParamMapper<B> for Hole {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        if !path.starts_with("tokens") {
            return value;
        }
        let value = value.inner();
        let row = value.clone().narrow(0, self.0, 1).full_like(f32::NAN);
        let mut place = vec![0..0; D];
        for (range, size) in place.iter_mut().zip(value.dims()) {
            *range = 0..size;
        }
        place[0] = self.0..self.0 + 1;
        let place: [std::ops::Range<usize>; D] = place.try_into().unwrap();
        Tensor::from_inner(value.slice_assign(place, row)).require_grad()
    }
}

/// Runs training to its end in the directory `out`.
fn run<I: Backend>(
    place: &TestFolder,
    config: &RunConfig,
    out: &str,
    read_policy: ReadPolicy,
) -> Result<RunResult, TrainError>
where
    Autodiff<I>: TrainingBackend,
{
    scaled_run::<I>(
        place,
        config,
        out,
        EngineOptions {
            read_policy,
            loss_scale: None,
        },
    )
}

/// As [`run`], with the given engine options.
fn scaled_run<I: Backend>(
    place: &TestFolder,
    config: &RunConfig,
    out: &str,
    engine: EngineOptions,
) -> Result<RunResult, TrainError>
where
    Autodiff<I>: TrainingBackend,
{
    let weights = with_nan_embedding::<Autodiff<I>>(place, config);
    train_with::<Autodiff<I>>(
        config.clone(),
        RunStart::New(place.path(out)),
        Some(weights.into()),
        options(Interrupter::new()),
        Default::default(),
        engine,
        Arc::new(SingleProcess),
    )
}

/// Resumes a run from its newest checkpoint.
fn resume<I: Backend>(
    place: &TestFolder,
    config: &RunConfig,
    out: &str,
    engine: EngineOptions,
) -> RunResult
where
    Autodiff<I>: TrainingBackend,
{
    let folder = place.path(out);
    let checkpoint = Checkpoint::newest_to_resume(&folder, |_| {}).unwrap();
    let folder = RunFolder::open(&folder).unwrap();
    let resumed = train_with::<Autodiff<I>>(
        config.clone(),
        RunStart::Resumed(folder, checkpoint.map(Box::new)),
        None,
        options(Interrupter::new()),
        Default::default(),
        engine,
        Arc::new(SingleProcess),
    );
    resumed.unwrap()
}

/// The log lines of a run that do not depend on the machine, and the contents of its checkpoints.
fn outcome(place: &TestFolder, run: &str) -> (Vec<String>, Vec<(String, Vec<u8>)>) {
    let folder = place.path(run);
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let lines = text.lines().filter(|line| !line.contains("\"time\":"));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.join("checkpoints")).unwrap() {
        let checkpoint = entry.unwrap().path();
        for file in fs::read_dir(&checkpoint).unwrap() {
            let path = file.unwrap().path();
            // The compared runs may have different settings.
            if path.ends_with("settings.toml") || path.ends_with("manifest.json") {
                continue;
            }
            let name = path.strip_prefix(&folder).unwrap().display().to_string();
            files.push((name, fs::read(path).unwrap()));
        }
    }
    files.sort();
    (lines.map(str::to_owned).collect(), files)
}

#[track_caller]
fn assert_same(place: &TestFolder, a: &str, b: &str) {
    let ((lines, files), (other_lines, other_files)) = (outcome(place, a), outcome(place, b));
    assert_eq!(lines, other_lines, "{a}, {b}");
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&files), names(&other_files), "{a}, {b}");
    for ((name, file), (_, other)) in files.iter().zip(&other_files) {
        assert!(file == other, "{a} and {b} differ in {name}");
    }
}

/// The skipped steps of a run.
fn skipped(place: &TestFolder, run: &str) -> Vec<usize> {
    let events = events::read(&place.path(run)).unwrap().events;
    let steps = events.iter().filter_map(|event| match event {
        Event::Skipped { step, .. } => Some(*step),
        _ => None,
    });
    steps.collect()
}

/// Runs with both read policies, compares the runs, and returns the skipped steps.
#[track_caller]
fn compare<I: Backend>(place: &TestFolder, config: &RunConfig) -> Vec<usize>
where
    Autodiff<I>: TrainingBackend,
{
    run::<I>(place, config, "every", ReadPolicy::EveryStep).unwrap();
    run::<I>(place, config, "due", ReadPolicy::WhenDue).unwrap();
    assert_same(place, "every", "due");
    skipped(place, "due")
}
