//! The tasks that the evaluations of a run score: task files, and CORE.

use std::ops::ControlFlow;

use emberlm_data::Tokenizer;
use emberlm_kernels::Backend;
use emberlm_model::{ModelKind, Transformer, TransformerConfig};

use crate::config::EvaluationConfig;
use crate::error::TrainError;
use crate::evaluate::tasks::{CoreBenchmark, CoreRequests, TaskError, TaskSet, score};
use crate::peers::Peers;
use crate::report::metrics::Metric;

/// Tasks with their requests to the model of a run.
#[derive(Debug)]
pub(crate) struct RunTasks {
    files: Option<TaskSet>,
    core: Option<(CoreBenchmark, CoreRequests)>,
}

impl RunTasks {
    /// Opens the tasks of the settings, if there are any.
    ///
    /// # Errors
    /// The model is not a decoder, or a task cannot be used.
    pub(super) fn open(
        config: &EvaluationConfig,
        tokenizer: &Tokenizer,
        model: &TransformerConfig,
    ) -> Result<Option<Self>, TrainError> {
        let Some((field, value)) = config.task_setting() else {
            return Ok(None);
        };
        if model.kind() != ModelKind::Decoder {
            return Err(TrainError::Setting {
                table: "train.evaluation",
                field,
                value,
                rule: "must be empty: only a decoder answers tasks".to_owned(),
            });
        }
        let limit = (config.task_items > 0).then_some(config.task_items);
        let seq_len = model.seq_len();
        let paths = &config.tasks;
        let files = (!paths.is_empty())
            .then(|| TaskSet::open(paths, limit, None, tokenizer, model, seq_len))
            .transpose()?
            .map(TaskSet::without_bootstrap);
        let core = (!config.core.as_os_str().is_empty()).then(|| {
            let core = CoreBenchmark::open(&config.core, limit)?;
            let requests = core.requests(tokenizer, model, seq_len)?;
            Ok::<_, TaskError>((core, requests))
        });
        let core = core.transpose()?;
        Ok(Some(Self { files, core }))
    }

    /// The declarations of the metrics.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let files = self.files.iter().flat_map(TaskSet::metrics);
        let core = self.core.iter().flat_map(|(core, _)| core.metrics());
        files.chain(core).collect()
    }

    /// The metrics of a model by their names. Breaks if `stop` breaks on any rank.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(super) fn evaluate<B: Backend>(
        &self,
        peers: &dyn Peers<B>,
        decoder: &Transformer<B>,
        stop: impl Fn() -> ControlFlow<()>,
    ) -> Result<ControlFlow<(), Vec<(String, f64)>>, TrainError> {
        let mut values = Vec::new();
        if let Some(files) = &self.files {
            let ControlFlow::Continue(reports) =
                files.evaluate(peers, decoder, None, |_| (), &stop)?
            else {
                return Ok(ControlFlow::Break(()));
            };
            values.extend(files.values(&reports));
        }
        if let Some((core, requests)) = &self.core {
            let ControlFlow::Continue(likelihoods) =
                score(peers, decoder, &requests.rows, None, |_| (), &stop)?
            else {
                return Ok(ControlFlow::Break(()));
            };
            values.extend(core.report(requests, &likelihoods).values());
        }
        Ok(ControlFlow::Continue(values))
    }
}
