//! The data of runs that learn from the rewards of completions.

use std::sync::Arc;

use emberlm_data::PromptEncoder;

use super::{PromptSource, RewardTask, RewardValidation, Rewards};
use crate::config::{GrpoConfig, RunConfig};
use crate::error::TrainError;
use crate::objective::inputs::{DataContext, RunInputs};
use crate::objective::open::{check_for_completions, checked_parts, resolve, template_for};
use crate::objective::validation::Validation;
use crate::objective::{Objective, TrainSource};

impl Objective for GrpoConfig {
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError> {
        check_for_completions(&config.train)?;
        let (model, data, train) = checked_parts(config)?;
        self.check_step(train.micro_batch.saturating_mul(train.accumulation))?;
        let rewards = Rewards::new(&self.rewards)?;
        let source = PromptSource::read(data, &rewards.fields())?;
        let tokenizer = context.tokenizer(data)?;
        let has_conversations = source.has_conversations();
        let template = template_for(context, data, has_conversations)?;
        let encoder = PromptEncoder::new(&tokenizer, template.as_ref());
        let encoder = encoder.map_err(TrainError::ChatTemplate)?;
        let model = resolve(model, train, tokenizer.vocab_size(), "tokenizer")?;
        let seq_len = train.sequence_tokens(model.seq_len())?;
        let most_tokens = seq_len.saturating_sub(self.max_new_tokens);
        if most_tokens == 0 {
            return Err(TrainError::Setting {
                table: "train.objective",
                field: "max_new_tokens",
                value: self.max_new_tokens.to_string(),
                rule: format!("must leave room for a prompt in the {seq_len} tokens of a sequence"),
            });
        }
        let prompts = source.tokenized(&encoder, most_tokens, train.seed)?;
        let identities = vec![prompts.identity()];
        context.check_resumed(data, &tokenizer, &identities)?;
        let left_out = prompts.left_out;
        let note = format!(
            "{left_out} prompts of more than {most_tokens} tokens were left out: they leave no room for a completion"
        );
        let count = prompts.train.prompts().len();
        let completions = count.saturating_mul(self.group);
        let size = completions.saturating_mul(self.iterations) as u64;
        let task = RewardTask {
            rewards,
            stop_tokens: encoder.stop_tokens(has_conversations),
            config: self.clone(),
            tokenizer: tokenizer.clone(),
        };
        Ok(RunInputs {
            model,
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

    /// The number of completions.
    fn records(&self, config: &RunConfig) -> Result<Option<usize>, TrainError> {
        let fields = Rewards::new(&self.rewards)?.fields();
        let prompts = PromptSource::read(&config.data, &fields)?.train_count();
        let completions = prompts.saturating_mul(self.group);
        Ok(Some(completions.saturating_mul(self.iterations)))
    }
}
