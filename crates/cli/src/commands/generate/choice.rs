//! Options of `emberlm generate` that control token selection. `sampling` has the settings that a model can
//! recommend.

use std::path::Path;

use clap::Args;
use emberlm_generate::ranges::LOGIT_BIAS;
use emberlm_generate::{ChooserConfig, Constraint, Grammar, SettingError, Vocabulary};
use emberlm_serve::model::{answer_vocabulary, vocabulary};
use emberlm_system::read::read_argument;
use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::ChatEncoder;

use super::sampling_args::SamplingArgs;
use crate::error::CliError;
use crate::sandbox;
use crate::values;

/// The options.
#[derive(Debug, Args)]
pub struct ChoiceArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: SamplingArgs,
    #[arg(long, value_name = "ID=VALUE", value_parser = values::logit_bias, help_heading = "Sampling")]
    #[arg(help = format!("Added to a token's logit, such as 50256={} for never; {}; can be repeated", LOGIT_BIAS.least, LOGIT_BIAS.rule()))]
    #[allow(missing_docs)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Constrain the output to JSON that matches this schema
    #[arg(
        long,
        value_name = "FILE|JSON",
        conflicts_with = "regex",
        help_heading = "Constraints"
    )]
    pub json_schema: Option<String>,
    /// Constrain the output to a full match of this regular expression
    #[arg(long, value_name = "PATTERN", help_heading = "Constraints")]
    pub regex: Option<String>,
    /// The same seed gives the same text [default: 0]
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub seed: Option<u64>,
}

impl ChoiceArgs {
    /// Builds the selection options other than the sampling settings for texts. `end` are the ids that end a text.
    pub fn chooser(
        &self,
        vocab_size: usize,
        tokenizer: Option<&Tokenizer>,
        path: &Path,
        end: &[u32],
    ) -> Result<ChooserConfig, CliError> {
        self.chooser_with(|| {
            let tokenizer = with_text(tokenizer, path)?;
            vocabulary(tokenizer, vocab_size, end).map_err(without_constraint)
        })
    }

    /// [`ChoiceArgs::chooser`] for answers in conversations.
    pub fn answer_chooser(
        &self,
        encoder: &ChatEncoder,
        tokenizer: &Tokenizer,
        vocab_size: usize,
        end: &[u32],
    ) -> Result<ChooserConfig, CliError> {
        self.chooser_with(|| {
            let vocabulary = answer_vocabulary(encoder, tokenizer, vocab_size, end);
            vocabulary.map_err(without_constraint)
        })
    }

    /// Builds the selection options, with the `vocabulary` of a constraint.
    fn chooser_with(
        &self,
        vocabulary: impl FnOnce() -> Result<Vocabulary, CliError>,
    ) -> Result<ChooserConfig, CliError> {
        let compile = |grammar| -> Result<Constraint, CliError> {
            let vocabulary = vocabulary()?;
            let grammar = sandbox::grammars().vet(grammar)?;
            Ok(Constraint::from_vetted(&vocabulary, grammar)?)
        };
        let constraint = self.grammar()?.map(compile);
        Ok(ChooserConfig {
            logit_bias: self.logit_bias.clone(),
            constraint: constraint.transpose()?,
            ..ChooserConfig::default()
        })
    }

    /// The output constraint. A value that starts with `{` is a JSON schema, any other value is the path of a
    /// schema file.
    fn grammar(&self) -> Result<Option<Grammar>, CliError> {
        if let Some(pattern) = &self.regex {
            return Ok(Some(Grammar::Regex(pattern.clone())));
        }
        let Some(schema) = &self.json_schema else {
            return Ok(None);
        };
        if schema.trim_start().starts_with('{') {
            return Ok(Some(Grammar::JsonSchema(schema.clone())));
        }
        let path = Path::new(schema);
        let schema = read_argument(path).map_err(CliError::io("read", path))?;
        Ok(Some(Grammar::JsonSchema(schema)))
    }
}

/// The error of a tokenizer whose texts cannot be constrained.
fn without_constraint(error: SettingError) -> CliError {
    CliError::from(error)
        .hint("leave --json-schema and --regex out, or use a model of another tokenizer")
}

/// Returns the tokenizer, for options that inspect the generated text.
pub fn with_text<'a>(
    tokenizer: Option<&'a Tokenizer>,
    path: &Path,
) -> Result<&'a Tokenizer, CliError> {
    tokenizer.ok_or_else(|| {
        let path = path.display();
        let message = format!("{path} has no tokenizer, so it generates only token ids");
        CliError::new(message).hint("omit --stop, --regex and --json-schema")
    })
}
