//! The data of runs that learn to predict removed spans.

use std::sync::Arc;

use emberlm_data::Batch;

use super::{SpanCorruption, target_tokens, vocabulary};
use crate::config::{RunConfig, SpanCorruptionConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{check_stream, checked_parts, resolve_encoder_decoder};
use crate::objective::{HostBatch, Objective, WindowTask};

impl WindowTask for SpanCorruption {
    fn host_batch(&self, batch: Batch, first: u64) -> Option<HostBatch> {
        self.batch(&batch, first)
    }

    fn of_validation(&self) -> Arc<dyn WindowTask> {
        Arc::new(self.for_validation())
    }
}

impl Objective for SpanCorruptionConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        let (model, data, train) = checked_parts(config)?;
        check_stream(train)?;
        let data = context.datasets(data)?;
        let tokenizer = data.first().tokenizer();
        let model = resolve_encoder_decoder(model, vocabulary(tokenizer), tokenizer)?;
        let seq_len = train.source_tokens();
        let vocab_size = model.vocab_size();
        let task = SpanCorruption::new(self, tokenizer, vocab_size, seq_len, train.seed)?;
        let (window, target) = (task.window(), task.target());
        let task = Arc::new(task);
        let mut inputs = RunInputs::of_windows(&data, train, model, window, seq_len, task)?;
        inputs.notes.push(format!(
            "windows of {window} tokens become sources of {seq_len} and targets of {target}"
        ));
        Ok(inputs)
    }

    fn target_tokens(&self, source: usize) -> Result<usize, TrainError> {
        target_tokens(self, source)
    }
}
