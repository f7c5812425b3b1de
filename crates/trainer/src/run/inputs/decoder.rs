//! The inputs of runs that train a decoder on records: conversations, preferences, or prompts with rewards.

use std::sync::Arc;

use emberlm_data::{ChatTemplateSpec, Packing, PreferenceEncoder, PromptEncoder, Tokenizer};
use emberlm_model::{ConfigError, DecoderConfig, ModelConfig};

use super::{Circumstances, RunInputs};
use crate::config::{DataConfig, GrpoConfig, RunConfig, TrainConfig};
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::evaluate::validation::Validation;
use crate::objective::CheckedModel;
use crate::objective::{
    ConversationSource, PairSource, PreferenceLoss, PromptSource, RewardTask, RewardValidation,
    Rewards, TrainSource,
};

/// Resolves a decoder's configuration, with `tokens` ids if no vocabulary size is set. `owner` has the tokenizer.
pub(super) fn resolve(
    model: &mut ModelConfig,
    tokens: usize,
    owner: &str,
) -> Result<DecoderConfig, TrainError> {
    let vocab_size = model.vocab_size.get_or_insert(tokens);
    if *vocab_size < tokens {
        let rule = format!("must be at least the {owner}'s {tokens}");
        return Err(ConfigError::new("vocab_size", *vocab_size, rule).into());
    }
    Ok(DecoderConfig::try_from(model.clone())?)
}

/// The model of a run on records with completions, and the tokenization of the records.
struct Tokenization {
    tokenizer: Tokenizer,
    template: Option<ChatTemplateSpec>,
    encoder: PreferenceEncoder,
    model: DecoderConfig,
    seq_len: usize,
    padding: u32,
}

impl Tokenization {
    fn new(
        config: &mut RunConfig,
        circumstances: &Circumstances<'_>,
        has_conversations: bool,
    ) -> Result<Self, TrainError> {
        let data = &config.data;
        let tokenizer = circumstances.tokenizer(data)?;
        let template = template_for(circumstances, data, has_conversations)?;
        let encoder = PreferenceEncoder::new(&tokenizer, template.as_ref());
        let encoder = encoder.map_err(TrainError::ChatTemplate)?;
        let settings = config.model.decoder_mut()?;
        let model = resolve(settings, tokenizer.vocab_size(), "tokenizer")?;
        Ok(Self {
            seq_len: config.train.sequence_tokens(model.seq_len())?,
            padding: tokenizer.end_of_text().unwrap_or(0),
            template,
            encoder,
            model,
            tokenizer,
        })
    }

    /// The inputs of the run. `size` is the number of records to train on.
    fn inputs(
        self,
        identities: Vec<DataIdentity>,
        notes: Vec<String>,
        size: usize,
        validation: Validation,
        source: TrainSource,
    ) -> RunInputs {
        RunInputs {
            model: CheckedModel::Decoder(Box::new(self.model)),
            seq_len: self.seq_len,
            tokenizer: self.tokenizer,
            chat_template: self.template.map(|_| self.encoder.template()),
            identities,
            floor: None,
            notes,
            size: size as u64,
            validation,
            source,
        }
    }
}

/// Pairs of a chosen and a rejected completion.
pub(super) fn preferences(
    config: &mut RunConfig,
    loss: PreferenceLoss,
    circumstances: &Circumstances<'_>,
) -> Result<RunInputs, TrainError> {
    config.train.objective.check_model(&config.model)?;
    check_supported(&config.train)?;
    let source = PairSource::read(&config.data, loss.form())?;
    let this = Tokenization::new(config, circumstances, source.has_conversations())?;
    let seed = config.train.seed;
    let pairs = source.tokenized(&this.encoder, loss, this.seq_len, seed, this.padding)?;
    let identities = vec![pairs.identity()];
    circumstances.check_resumed(&config.data, &this.tokenizer, &identities)?;
    let counts = TooLong {
        name: "pairs",
        kept: pairs.train.len() + pairs.validation.len(),
        truncated: pairs.truncated,
        left_out: pairs.left_out,
    };
    let notes = counts.notes(this.seq_len, "a completion");
    let size = pairs.train.len();
    let validation = Validation::Preferences(pairs.validation);
    Ok(this.inputs(
        identities,
        notes,
        size,
        validation,
        TrainSource::Pairs(pairs.train),
    ))
}

/// Conversations, whose answers are the training targets.
pub(super) fn conversations(
    config: &mut RunConfig,
    circumstances: &Circumstances<'_>,
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
    let source = ConversationSource::read(&config.data)?;
    let this = Tokenization::new(config, circumstances, source.has_conversations())?;
    // The last token of a sequence is only predicted.
    let most = this.seq_len + 1;
    let records = source.tokenized(&this.encoder, most, config.train.seed, this.padding)?;
    let identities = vec![records.identity()];
    circumstances.check_resumed(&config.data, &this.tokenizer, &identities)?;
    let counts = TooLong {
        name: "conversations",
        kept: records.train.len() + records.validation.len(),
        truncated: records.truncated,
        left_out: records.left_out,
    };
    let notes = counts.notes(this.seq_len, "an answer");
    let size = records.train.len();
    let validation = Validation::Pairs(records.validation);
    Ok(this.inputs(
        identities,
        notes,
        size,
        validation,
        TrainSource::Records(records.train),
    ))
}

/// Prompts, whose completions are sampled and rewarded.
pub(super) fn prompts(
    config: &mut RunConfig,
    objective: GrpoConfig,
    circumstances: &Circumstances<'_>,
) -> Result<RunInputs, TrainError> {
    config.train.objective.check_model(&config.model)?;
    check_supported(&config.train)?;
    let (data, train) = (&config.data, &config.train);
    objective.check_step(train.micro_batch.saturating_mul(train.accumulation))?;
    let rewards = Rewards::new(&objective.rewards)?;
    let source = PromptSource::read(data, &rewards.fields())?;
    let tokenizer = circumstances.tokenizer(data)?;
    let has_conversations = source.has_conversations();
    let template = template_for(circumstances, data, has_conversations)?;
    let encoder = PromptEncoder::new(&tokenizer, template.as_ref());
    let encoder = encoder.map_err(TrainError::ChatTemplate)?;
    let settings = config.model.decoder_mut()?;
    let model = resolve(settings, tokenizer.vocab_size(), "tokenizer")?;
    let seq_len = train.sequence_tokens(model.seq_len())?;
    let most_tokens = seq_len.saturating_sub(objective.max_new_tokens);
    if most_tokens == 0 {
        return Err(TrainError::Setting {
            table: "train.objective",
            field: "max_new_tokens",
            value: objective.max_new_tokens.to_string(),
            rule: format!("must leave room for a prompt in the {seq_len} tokens of a sequence"),
        });
    }
    let prompts = source.tokenized(&encoder, most_tokens, train.seed)?;
    let identities = vec![prompts.identity()];
    circumstances.check_resumed(data, &tokenizer, &identities)?;
    let left_out = prompts.left_out;
    let note = format!(
        "{left_out} prompts of more than {most_tokens} tokens were left out: they leave no room for a completion"
    );
    let count = prompts.train.prompts().len();
    let completions = count.saturating_mul(objective.group);
    let size = completions.saturating_mul(objective.iterations) as u64;
    let task = RewardTask {
        rewards,
        stop_tokens: encoder.stop_tokens(has_conversations),
        config: objective,
        tokenizer: tokenizer.clone(),
    };
    Ok(RunInputs {
        model: CheckedModel::Decoder(Box::new(model)),
        seq_len,
        tokenizer,
        chat_template: template.map(|_| encoder.template()),
        identities,
        floor: None,
        notes: Some(note).filter(|_| left_out > 0).into_iter().collect(),
        size,
        validation: Validation::Rewards(RewardValidation {
            task: Arc::new(task),
            prompts: prompts.validation,
        }),
        source: TrainSource::Prompts(prompts.train),
    })
}

/// The model's chat template, without which records cannot have lists of messages.
fn template_for(
    circumstances: &Circumstances<'_>,
    data: &DataConfig,
    has_conversations: bool,
) -> Result<Option<ChatTemplateSpec>, TrainError> {
    let template = circumstances.chat_template();
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

/// The numbers of records that were too long.
struct TooLong {
    name: &'static str,
    kept: usize,
    truncated: usize,
    left_out: usize,
}

impl TooLong {
    /// Notes on them. `part` is the part of a record that has its training targets.
    fn notes(&self, seq_len: usize, part: &str) -> Vec<String> {
        let Self {
            name,
            kept,
            truncated,
            left_out,
        } = self;
        let count = kept + left_out;
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

/// Refuses settings that change the cross-entropy, or that are for windows of a dataset.
fn check_supported(train: &TrainConfig) -> Result<(), TrainError> {
    let objective = train.objective.kind().name();
    let refuse = |table, field, value: String, rule: &str| {
        Err(TrainError::Setting {
            table,
            field,
            value,
            rule: format!("{rule} with objective = {objective}"),
        })
    };
    if train.documents != Packing::Stream {
        let value = train.documents.to_string();
        return refuse("train", "documents", value, "must be stream");
    }
    let loss = &train.loss;
    for (field, value) in [
        ("label_smoothing", loss.label_smoothing),
        ("z_loss", loss.z_loss),
    ] {
        if value != 0.0 {
            return refuse("train.loss", field, value.to_string(), "must be 0");
        }
    }
    Ok(())
}
