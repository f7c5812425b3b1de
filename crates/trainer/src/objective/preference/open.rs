//! The data of runs that learn from preferences.

use super::{PairSource, PreferenceLoss};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{EncodedRecords, Tokenization, check_for_completions};
use crate::objective::validation::Validation;
use crate::objective::{Objective, TrainSource};

impl Objective for PreferenceLoss {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        check_for_completions(&config.train)?;
        let source = PairSource::read(&config.data, self.form())?;
        let this = Tokenization::new(config, context, source.has_conversations())?;
        let seed = config.train.seed;
        let pairs = source.tokenized(&this.encoder, *self, this.seq_len, seed, this.padding)?;
        let records = EncodedRecords {
            name: "pairs",
            part: "a completion",
            identity: pairs.identity(),
            train: pairs.train.len(),
            validation: pairs.validation.len(),
            truncated: pairs.truncated,
            left_out: pairs.left_out,
        };
        let validation = Validation::Preferences(pairs.validation);
        let source = TrainSource::Pairs(pairs.train);
        this.into_record_model()
            .inputs(&config.data, context, records, validation, source)
    }

    fn records(&self, config: &RunConfig) -> Result<Option<usize>, TrainError> {
        Ok(Some(
            PairSource::read(&config.data, self.form())?.train_count(),
        ))
    }
}
