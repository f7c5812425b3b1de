//! The data of runs that learn a target text from a source text.

use crate::config::{RunConfig, Seq2SeqConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{
    EncodedRecords, RecordModel, check_stream, checked_parts, resolve_encoder_decoder,
};
use crate::objective::validation::Validation;
use crate::objective::{Objective, RecordSource, TrainSource};

impl Objective for Seq2SeqConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        let (model, data, train) = checked_parts(config)?;
        check_stream(train)?;
        let source = RecordSource::of_pairs(data, self)?;
        let tokenizer = context.tokenizer(data)?;
        let model = resolve_encoder_decoder(model, tokenizer.vocab_size(), &tokenizer)?;
        let padding = model.padding_token();
        let seq_len = train.source_tokens();
        let records = source.pairs(self, &tokenizer, seq_len, train.seed, padding)?;
        let encoded = EncodedRecords::of("texts", "a target", &records);
        let validation = Validation::Pairs(records.validation);
        let model = RecordModel {
            model,
            seq_len,
            tokenizer,
            chat_template: None,
        };
        let source = TrainSource::Records(records.train);
        model.inputs(data, context, encoded, validation, source)
    }

    fn records(&self, config: &RunConfig) -> Result<Option<usize>, TrainError> {
        Ok(Some(
            RecordSource::of_pairs(&config.data, self)?.train_count(),
        ))
    }

    fn target_tokens(&self, _: usize) -> Result<usize, TrainError> {
        Ok(self.target_tokens)
    }
}
