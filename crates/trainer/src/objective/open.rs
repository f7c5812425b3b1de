//! Steps that several objectives take to open their data: the model's vocabulary and sequences, the tokens of records, and the
//! settings that they refuse.

use emberlm_data::{ChatTemplateSpec, Dataset, Packing, PreferenceEncoder, Tokenizer};
use emberlm_model::config::Architecture;
use emberlm_model::{ConfigError, ModelConfig, TransformerConfig};

use super::TrainSource;
use super::inputs::{DataContext, RunInputs};
use super::records::source::Records;
use super::validation::Validation;
use crate::config::{DataConfig, RunConfig, TrainConfig};
use crate::data::identity::DataIdentity;
use crate::error::TrainError;

/// Resolves the decoder of the configuration, with the dataset's vocabulary size if none is set. Other unset sizes stay
/// unset in `config`.
///
/// # Errors
/// The vocabulary is smaller than the dataset's, the model configuration is invalid, or the model is no decoder.
pub fn resolve_model(
    config: &mut RunConfig,
    dataset: &Dataset,
) -> Result<TransformerConfig, TrainError> {
    let tokens = dataset.tokenizer().vocab_size();
    config.decoder()?;
    resolve(&mut config.model, &config.train, tokens, "dataset")
}

/// Resolves a decoder's configuration, with `tokens` ids if no vocabulary size is set, and the factors of the run's
/// parametrization. `owner` has the tokenizer.
pub(super) fn resolve(
    model: &mut ModelConfig,
    train: &TrainConfig,
    tokens: usize,
    owner: &str,
) -> Result<TransformerConfig, TrainError> {
    let vocab_size = model.vocab_size.get_or_insert(tokens);
    if *vocab_size < tokens {
        let rule = format!("must be at least the {owner}'s {tokens}");
        return Err(ConfigError::new("vocab_size", *vocab_size, rule).into());
    }
    Ok(TransformerConfig::try_from(
        train.parametrization.applied(model),
    )?)
}

/// The model of a run on records with completions, and the tokenization of the records.
pub(super) struct Tokenization {
    tokenizer: Tokenizer,
    template: Option<ChatTemplateSpec>,
    pub(super) encoder: PreferenceEncoder,
    model: TransformerConfig,
    pub(super) seq_len: usize,
    pub(super) padding: u32,
}

impl Tokenization {
    pub(super) fn new(
        config: &mut RunConfig,
        context: &dyn DataContext,
        has_conversations: bool,
    ) -> Result<Self, TrainError> {
        let data = &config.data;
        let tokenizer = context.tokenizer(data)?;
        let template = template_for(context, data, has_conversations)?;
        let encoder = PreferenceEncoder::new(&tokenizer, template.as_ref());
        let encoder = encoder.map_err(TrainError::ChatTemplate)?;
        config.decoder()?;
        let ids = tokenizer.vocab_size();
        let model = resolve(&mut config.model, &config.train, ids, "tokenizer")?;
        Ok(Self {
            seq_len: config.train.sequence_tokens(model.seq_len())?,
            padding: tokenizer.end_of_text().unwrap_or(0),
            template,
            encoder,
            model,
            tokenizer,
        })
    }

    /// The model of the run, once the records are encoded.
    pub(super) fn into_record_model(self) -> RecordModel {
        RecordModel {
            model: self.model,
            seq_len: self.seq_len,
            chat_template: self.template.map(|_| self.encoder.template()),
            tokenizer: self.tokenizer,
        }
    }
}

/// The model of a run on records, and their tokenizer.
pub(super) struct RecordModel {
    pub(super) model: TransformerConfig,
    pub(super) seq_len: usize,
    pub(super) tokenizer: Tokenizer,
    pub(super) chat_template: Option<ChatTemplateSpec>,
}

impl RecordModel {
    /// The inputs of the run on these records.
    ///
    /// # Errors
    /// The records differ from those of the checkpoint.
    pub(super) fn inputs(
        self,
        data: &DataConfig,
        context: &dyn DataContext,
        records: EncodedRecords,
        validation: Validation,
        source: TrainSource,
    ) -> Result<RunInputs, TrainError> {
        let notes = records.notes(self.seq_len);
        let identities = vec![records.identity];
        context.check_resumed(data, &self.tokenizer, &identities)?;
        Ok(RunInputs {
            model: self.model,
            seq_len: self.seq_len,
            tokenizer: self.tokenizer,
            chat_template: self.chat_template,
            identities,
            floor: None,
            notes,
            size: records.train as u64,
            validation,
            source,
        })
    }
}

/// The model, the data and the training settings of a run.
///
/// # Errors
/// The objective is another model's.
pub(super) fn checked_parts(
    config: &mut RunConfig,
) -> Result<(&mut ModelConfig, &DataConfig, &TrainConfig), TrainError> {
    config.train.objective.check_model(&config.model)?;
    Ok((&mut config.model, &config.data, &config.train))
}

/// Sets the unset number of token ids of an encoder–decoder, and with it the tokens that begin a target and that stand for
/// ignored labels.
pub(super) fn resolve_encoder_decoder(
    model: &mut ModelConfig,
    needed: usize,
    tokenizer: &Tokenizer,
) -> Result<TransformerConfig, TrainError> {
    if let Architecture::EncoderDecoder {
        start_token,
        padding_token,
        ..
    } = &mut model.architecture
        && model.vocab_size.is_none()
    {
        let padding = tokenizer.special_id("<pad>").or(tokenizer.end_of_text());
        *padding_token = padding.unwrap_or(0);
        *start_token = *padding_token;
    }
    set_vocabulary(model, needed, tokenizer)?;
    Ok(TransformerConfig::try_from(model.clone())?)
}

/// Sets the number of token ids of a model, if it is unset, to `needed`.
///
/// # Errors
/// It is less than the tokenizer's ids.
pub(super) fn set_vocabulary(
    model: &mut ModelConfig,
    needed: usize,
    tokenizer: &Tokenizer,
) -> Result<usize, TrainError> {
    let tokens = tokenizer.vocab_size();
    match model.vocab_size {
        Some(set) if set < tokens => {
            let rule = format!("must be at least the tokenizer's {tokens}");
            Err(ConfigError::new("vocab_size", set, rule).into())
        }
        set => Ok(*model.vocab_size.insert(set.unwrap_or(needed))),
    }
}

/// The model's chat template, without which records cannot have lists of messages.
pub(super) fn template_for(
    context: &dyn DataContext,
    data: &DataConfig,
    has_conversations: bool,
) -> Result<Option<ChatTemplateSpec>, TrainError> {
    let template = context.chat_template();
    match template.is_none() && has_conversations {
        true => Err(TrainError::Setting {
            table: "data",
            field: "dataset",
            value: data.dataset.display().to_string(),
            rule: "must be texts instead of conversations: the model has no chat template (`emberlm prepare --chat-template` makes a dataset with one)"
                .to_owned(),
        }),
        false => Ok(template),
    }
}

/// The records of both splits, and the numbers of those that were too long.
pub(super) struct EncodedRecords {
    pub(super) name: &'static str,
    /// The part of a record that has its training targets.
    pub(super) part: &'static str,
    pub(super) identity: DataIdentity,
    pub(super) train: usize,
    pub(super) validation: usize,
    pub(super) truncated: usize,
    pub(super) left_out: usize,
}

impl EncodedRecords {
    pub(super) fn of(name: &'static str, part: &'static str, records: &Records) -> Self {
        Self {
            name,
            part,
            identity: records.identity(),
            train: records.train.len(),
            validation: records.validation.len(),
            truncated: records.truncated,
            left_out: records.left_out,
        }
    }

    /// Notes on records that were too long.
    fn notes(&self, seq_len: usize) -> Vec<String> {
        let Self {
            name,
            part,
            truncated,
            left_out,
            ..
        } = self;
        let count = self.train + self.validation + left_out;
        let mut notes = Vec::new();
        if *truncated > 0 {
            notes.push(format!(
                "{truncated} of {count} {name} were truncated to {seq_len} tokens"
            ));
        }
        if *left_out > 0 {
            notes.push(format!(
                "{left_out} of {count} {name} were left out: {seq_len} tokens have no room for {part}"
            ));
        }
        notes
    }
}

/// Refuses packings of documents other than `stream`.
pub(super) fn check_stream(train: &TrainConfig) -> Result<(), TrainError> {
    match train.documents {
        Packing::Stream => Ok(()),
        other => Err(refused(
            train,
            "train",
            "documents",
            other,
            "must be stream",
        )),
    }
}

/// Refuses settings that change the cross-entropy, or that are for windows of a dataset.
pub(super) fn check_for_completions(train: &TrainConfig) -> Result<(), TrainError> {
    check_stream(train)?;
    let loss = &train.loss;
    for (field, value) in [
        ("label_smoothing", loss.label_smoothing),
        ("z_loss", loss.z_loss),
    ] {
        if value != 0.0 {
            return Err(refused(train, "train.loss", field, value, "must be 0"));
        }
    }
    Ok(())
}

/// The error for a value that the run's objective does not support.
fn refused(
    train: &TrainConfig,
    table: &'static str,
    field: &'static str,
    value: impl ToString,
    rule: &str,
) -> TrainError {
    let objective = train.objective.kind().name();
    TrainError::Setting {
        table,
        field,
        value: value.to_string(),
        rule: format!("{rule} with objective = {objective}"),
    }
}
