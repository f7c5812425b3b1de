//! The data of runs that learn a target text from a source text.

use crate::config::{RunConfig, Seq2SeqConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{
    check_for_other_models, encoder_decoder_of, resolve_encoder_decoder, truncation_note,
};
use crate::objective::validation::Validation;
use crate::objective::{Objective, RecordSource, TrainSource};

impl Objective for Seq2SeqConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        let (settings, data, train) = encoder_decoder_of(config)?;
        check_for_other_models(train)?;
        let source = RecordSource::of_pairs(data, self)?;
        let tokenizer = context.tokenizer(data)?;
        let model = resolve_encoder_decoder(settings, tokenizer.vocab_size(), &tokenizer)?;
        let padding = model.padding_token();
        let seq_len = train.source_tokens();
        let records = source.pairs(self, &tokenizer, seq_len, train.seed, padding)?;
        let identities = vec![records.identity()];
        context.check_resumed(data, &tokenizer, &identities)?;
        let (count, held_out) = (records.train.len(), records.validation.len());
        let notes = truncation_note(records.truncated, count, held_out, seq_len);
        Ok(RunInputs {
            model,
            seq_len,
            tokenizer,
            chat_template: None,
            identities,
            floor: None,
            validation: Validation::Pairs(records.validation),
            source: TrainSource::Records(records.train),
            size: count as u64,
            notes: notes.into_iter().collect(),
        })
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
