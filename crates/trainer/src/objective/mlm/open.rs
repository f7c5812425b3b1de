//! The data of runs that learn to predict masked tokens.

use std::sync::Arc;

use emberlm_data::Batch;
use emberlm_model::config::Architecture;
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_model::{ConfigError, TransformerConfig};

use super::{MaskedLm, vocabulary as vocabulary_of};
use crate::config::{MlmConfig, RunConfig, TrainConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{check_stream, checked_parts, set_vocabulary};
use crate::objective::{HostBatch, Objective, WindowTask};

impl WindowTask for MaskedLm {
    fn host_batch(&self, batch: Batch, first: u64) -> Option<HostBatch> {
        Some(self.batch(&batch, first))
    }

    fn of_validation(&self) -> Arc<dyn WindowTask> {
        Arc::new(self.for_validation())
    }
}

impl Objective for MlmConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        let (model, data, train) = checked_parts(config)?;
        check_stream(train)?;
        let data = context.datasets(data)?;
        let tokenizer = data.first().tokenizer();
        let needed = vocabulary_of(tokenizer);
        let vocab_size = set_vocabulary(model, needed, tokenizer)?;
        if vocab_size < needed {
            let rule = format!("must be at least {needed}: the tokenizer has no mask token");
            return Err(ConfigError::new("vocab_size", vocab_size, rule).into());
        }
        let activation = model.feed_forward.activation;
        if let Architecture::Encoder { head, .. } = &mut model.architecture
            && !matches!(head, Some(EncoderHeadConfig::MaskedLm { .. }))
        {
            *head = Some(match context.heads() {
                Some(heads) => heads.masked_lm_head(),
                None => EncoderHeadConfig::masked_lm(activation),
            });
        }
        let model = TransformerConfig::try_from(model.clone())?;
        let seq_len = train.sequence_tokens(model.seq_len())?;
        let task = MaskedLm::new(self, tokenizer, train.seed)?;
        let window = window(train, seq_len, task.frame_tokens())?;
        RunInputs::of_windows(&data, train, model, window, seq_len, Arc::new(task))
    }

    fn learnt_share(&self) -> Option<f64> {
        Some(self.probability)
    }
}

/// The tokens of a window that becomes a sequence of `seq_len` positions with special tokens around it.
fn window(train: &TrainConfig, seq_len: usize, frame: usize) -> Result<usize, TrainError> {
    match seq_len.checked_sub(frame) {
        Some(window @ 1..) => Ok(window),
        _ => Err(TrainError::Setting {
            table: "train",
            field: "seq_len",
            value: train.seq_len.to_string(),
            rule: format!("must be above the {frame} special tokens of a text"),
        }),
    }
}
