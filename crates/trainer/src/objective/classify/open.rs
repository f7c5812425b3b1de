//! The data of runs that learn labels of texts.

use emberlm_model::TransformerConfig;
use emberlm_model::encoder::{EncoderHeadConfig, EncoderSettings, PooledActivation, ProblemType};

use crate::config::{ClassifyConfig, RunConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{EncodedRecords, RecordModel, check_stream, encoder_of, vocabulary};
use crate::objective::validation::Validation;
use crate::objective::{Labels, Objective, RecordSource, TrainSource};

impl Objective for ClassifyConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        let (settings, data, train) = encoder_of(config)?;
        check_stream(train)?;
        let source = RecordSource::of_labels(data, self)?;
        let tokenizer = context.tokenizer(data)?;
        settings.vocab_size = vocabulary(settings.vocab_size, tokenizer.vocab_size(), &tokenizer)?;
        let labels = source.labels();
        set_classifier(settings, &labels, context);
        let labels = match settings.head.as_ref().and_then(EncoderHeadConfig::labels) {
            Some(labels) => Labels(labels.to_vec()),
            None => labels,
        };
        if let [label] = &labels.0[..] {
            return Err(TrainError::SingleLabel {
                path: data.dataset.clone(),
                label: label.clone(),
            });
        }
        let model = TransformerConfig::try_from(settings.clone())?;
        let seq_len = train.sequence_tokens(model.seq_len())?;
        let padding = ["[PAD]", "<pad>"];
        let padding = padding
            .into_iter()
            .find_map(|name| tokenizer.special_id(name));
        let padding = padding.unwrap_or(0);
        let records = source.labelled(&labels, &tokenizer, seq_len, train.seed, padding)?;
        let encoded = EncodedRecords::of("texts", "a label", &records);
        let validation = Validation::Labelled {
            records: records.validation,
            labels: labels.0.len(),
        };
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
            RecordSource::of_labels(&config.data, self)?.train_count(),
        ))
    }
}

/// Sets a head for the labels of the records, unless the head has all of them.
fn set_classifier(settings: &mut EncoderSettings, labels: &Labels, context: &dyn DataContext) {
    if let Some(EncoderHeadConfig::Sequence {
        labels: known,
        problem,
        ..
    }) = &mut settings.head
    {
        let is_started = context.is_resumed();
        if is_started || labels.0.iter().all(|label| known.contains(label)) {
            // The objective is the cross-entropy of one label per text, whatever the weights were trained for.
            *problem = ProblemType::SingleLabelClassification;
            return;
        }
    }
    let labels = labels.0.clone();
    settings.head = Some(match context.heads() {
        Some(heads) => heads.sequence_head(labels),
        None => EncoderHeadConfig::sequence(labels, PooledActivation::Tanh),
    });
}
