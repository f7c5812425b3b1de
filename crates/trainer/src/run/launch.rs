//! The launch of a run on Burn's learner, with its metrics and a renderer.

use std::sync::Arc;

use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split as MetricSplit};
use burn::train::metric::{MetricDefinition, NumericEntry};
use burn::train::{SupervisedTraining, TrainingStrategy};
use emberlm_kernels::TrainingBackend;

use super::inputs::Loaders;
use super::{Renderer, RunResult};
use crate::dashboard::{Dashboard, DashboardRun};
use crate::driver::Driver;
use crate::error::TrainError;
use crate::metrics::renderers::{FigureMetric, TextMetric};
use crate::metrics::{Metric, Phase, built_in};
use crate::plain::PlainRenderer;
use crate::stop::StopSignal;
use crate::strategy::{Components, StepStrategy};

/// Burn's learner of a run.
pub(super) type Learner<B> = burn::train::Learner<Components<B>>;

/// Launches Burn's learner and waits for its end.
pub(super) fn launch<B: TrainingBackend>(
    driver: Driver<B>,
    learner: Learner<B>,
    (train, validation): Loaders<B>,
    renderer: Renderer,
    say: fn(&str),
    stop: StopSignal,
) -> Result<RunResult, TrainError> {
    let steps = driver.steps_in_all();
    let interval = driver.evaluation_interval();
    let run = driver.path().to_owned();
    let notes = driver.notes();
    let has_perplexity = driver.has_perplexity();
    let metrics: Vec<Metric> = built_in()
        .iter()
        .filter(|metric| metric.name != "perplexity" || has_perplexity)
        .chain(driver.hook_metrics())
        .cloned()
        .collect();
    let strategy = Arc::new(StepStrategy::new(driver));
    let training = SupervisedTraining::new(&run, train, validation)
        .with_application_logger(None)
        .with_metric_logger(NoMetricLog)
        .with_interrupter(stop.interrupter())
        .metric_train(TextMetric::now())
        .with_training_strategy(TrainingStrategy::Custom(strategy.clone()));
    let numbers = metrics.iter().filter_map(|metric| {
        let number = FigureMetric::new(metric)?;
        Some((metric.phase, number))
    });
    let training = numbers.fold(training, |training, (phase, number)| match phase {
        Phase::Training => training.metric_train_numeric(number),
        Phase::Validation => training.metric_valid_numeric(number),
        Phase::Both => training
            .metric_train_numeric(number.clone())
            .metric_valid_numeric(number),
    });
    // The renderer closes when the result is dropped.
    match renderer {
        Renderer::Plain => {
            let training = training.metric_train(TextMetric::time_left());
            let training = training.metric_valid(TextMetric::datasets());
            let training = training.renderer(PlainRenderer::new(steps, say));
            drop(training.launch(learner));
        }
        Renderer::Dashboard => {
            let dashboard = Dashboard::start(DashboardRun {
                path: run.clone(),
                notes,
                steps,
                interval,
                stop,
            });
            let dashboard = dashboard.map_err(TrainError::Terminal)?;
            drop(training.renderer(dashboard).launch(learner));
        }
    }
    strategy.take_result()
}

/// Burn's own log files are disabled: `events.jsonl` has the same figures.
struct NoMetricLog;

impl MetricLogger for NoMetricLog {
    fn log(&mut self, _update: MetricsUpdate, _epoch: usize, _split: &MetricSplit) {}

    fn read_numeric(
        &mut self,
        name: &str,
        _epoch: usize,
        _split: &MetricSplit,
    ) -> Result<Vec<NumericEntry>, String> {
        Err(format!("{name} is not kept: see events.jsonl"))
    }

    fn log_metric_definition(&mut self, _definition: MetricDefinition) {}

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}
