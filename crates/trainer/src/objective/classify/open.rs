//! The data of runs that learn labels of texts.

use emberlm_model::TransformerConfig;
use emberlm_model::config::Architecture;
use emberlm_model::encoder::{EncoderHeadConfig, PooledActivation, ProblemType};

use crate::config::{ClassifyConfig, RunConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{
    EncodedRecords, RecordModel, check_stream, checked_parts, set_vocabulary,
};
use crate::objective::validation::Validation;
use crate::objective::{Labels, Objective, RecordSource, TrainSource};

impl Objective for ClassifyConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        let (model, data, train) = checked_parts(config)?;
        check_stream(train)?;
        let source = RecordSource::of_labels(data, self)?;
        let tokenizer = context.tokenizer(data)?;
        set_vocabulary(model, tokenizer.vocab_size(), &tokenizer)?;
        let mut labels = source.labels();
        if let Architecture::Encoder { head, .. } = &mut model.architecture {
            let classifier = classifier(head.take(), &labels, context);
            if let Some(known) = head.insert(classifier).labels() {
                labels = Labels(known.to_vec());
            }
        }
        if let [label] = &labels.0[..] {
            return Err(TrainError::SingleLabel {
                path: data.dataset.clone(),
                label: label.clone(),
            });
        }
        let model = TransformerConfig::try_from(model.clone())?;
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

/// The head for the labels of the records: `held`, if it has all of them.
fn classifier(
    mut held: Option<EncoderHeadConfig>,
    labels: &Labels,
    context: &dyn DataContext,
) -> EncoderHeadConfig {
    let kept = if let Some(EncoderHeadConfig::Sequence {
        labels: known,
        problem,
        ..
    }) = &mut held
        && (context.is_resumed() || labels.0.iter().all(|label| known.contains(label)))
    {
        // The objective is the cross-entropy of one label per text, whatever the weights were trained for.
        *problem = ProblemType::SingleLabelClassification;
        held
    } else {
        None
    };
    kept.unwrap_or_else(|| {
        let labels = labels.0.clone();
        match context.heads() {
            Some(heads) => heads.sequence_head(labels),
            None => EncoderHeadConfig::sequence(labels, PooledActivation::Tanh),
        }
    })
}
