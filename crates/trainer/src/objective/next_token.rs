//! The data of runs that learn to predict the next token, of datasets or of the answers of conversations.

use std::sync::Arc;

use emberlm_data::{Batch, Packing};

use crate::config::{NextTokenConfig, RunConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{EncodedRecords, Tokenization, resolve_model};
use crate::objective::validation::Validation;
use crate::objective::{ConversationSource, HostBatch, Objective, TrainSource, WindowTask};

/// To predict each next token of a window.
pub(crate) struct NextToken;

impl WindowTask for NextToken {
    fn host_batch(&self, batch: Batch, _: u64) -> Option<HostBatch> {
        Some(batch.into())
    }

    fn of_validation(&self) -> Arc<dyn WindowTask> {
        Arc::new(Self)
    }
}

impl Objective for NextTokenConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        match config.reads_conversations() {
            true => conversations(config, context),
            false => windows(config, context),
        }
    }

    fn records(&self, config: &RunConfig) -> Result<Option<usize>, TrainError> {
        Ok(match config.reads_conversations() {
            true => Some(ConversationSource::read(&config.data)?.train_count()),
            false => None,
        })
    }
}

/// Windows of datasets.
fn windows(config: &mut RunConfig, context: &dyn DataContext) -> Result<RunInputs, TrainError> {
    let data = context.datasets(&config.data)?;
    let model = resolve_model(config, data.first())?;
    let train = &config.train;
    let seq_len = train.sequence_tokens(model.seq_len())?;
    if train.documents.isolates_documents() {
        model.check_documents()?;
    }
    let validation = Validation::of_decoder(&data, &model, seq_len)?;
    let task = Arc::new(NextToken);
    let inputs = RunInputs::of_windows(&data, train, model, seq_len, seq_len, task)?;
    Ok(RunInputs {
        floor: data.floor(),
        validation,
        ..inputs
    })
}

/// Conversations, whose answers are the training targets.
fn conversations(
    config: &mut RunConfig,
    context: &dyn DataContext,
) -> Result<RunInputs, TrainError> {
    let documents = config.train.documents;
    if documents != Packing::Stream {
        return Err(TrainError::Setting {
            table: "train",
            field: "documents",
            value: documents.to_string(),
            rule: "must be stream for a file of records, each of which is a separate sequence"
                .to_owned(),
        });
    }
    config.train.check_not_cut()?;
    let source = ConversationSource::read(&config.data)?;
    let this = Tokenization::new(config, context, source.has_conversations())?;
    // The last token of a sequence is only predicted.
    let most = this.seq_len + 1;
    let records = source.tokenized(&this.encoder, most, config.train.seed, this.padding)?;
    let encoded = EncodedRecords::of("conversations", "an answer", &records);
    let validation = Validation::Pairs(records.validation);
    let source = TrainSource::Records(records.train);
    this.into_record_model()
        .inputs(&config.data, context, encoded, validation, source)
}
