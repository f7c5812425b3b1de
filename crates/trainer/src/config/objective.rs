//! The `[train.objective]` table: what a model learns to predict.

mod grpo;

pub use grpo::*;

use emberlm_model::{ModelConfig, ModelKind};

use super::check::{Must, Range};
use super::kinds::kinds;
use super::preference::{DpoConfig, KtoConfig, OrpoConfig, SimpoConfig};
use super::settings::settings;
use crate::error::TrainError;

/// The upper bound of the tokens of a sequence.
const MOST_TOKENS: usize = 1 << 24;
/// The rule of the share of removed tokens.
const DENSITY: Must<f64> = Must("must be above 0 and at most 0.9", |density: &f64| {
    *density > 0.0 && *density <= 0.9
});
/// The rule of the mean length of a span.
const MEAN_SPAN: Must<f64> = Must("must be at least 1 and finite", |span: &f64| {
    span.is_finite() && *span >= 1.0
});

kinds! {
    /// The training objective.
    pub enum ObjectiveConfig, ObjectiveKind:
        "next_token, dpo, orpo, simpo, kto or grpo (decoders), mlm or classify (encoders), span_corruption or seq2seq (encoder–decoders)." {
        /// A decoder predicts each token from those before it.
        "next_token" => NextToken(NextTokenConfig),
        /// An encoder predicts masked tokens.
        "mlm" => Mlm(MlmConfig),
        /// An encoder predicts the label of a text.
        "classify" => Classify(ClassifyConfig),
        /// An encoder–decoder predicts removed spans.
        "span_corruption" => SpanCorruption(SpanCorruptionConfig),
        /// An encoder–decoder predicts a target text from a source text.
        "seq2seq" => Seq2seq(Seq2SeqConfig),
        /// A decoder learns preferences relative to the weights that it starts with.
        "dpo" => Dpo(DpoConfig),
        /// A decoder learns chosen texts, and to prefer them by their odds.
        "orpo" => Orpo(OrpoConfig),
        /// A decoder learns preferences by mean log-probabilities.
        "simpo" => Simpo(SimpoConfig),
        /// A decoder learns from completions that are labelled as desirable or not.
        "kto" => Kto(KtoConfig),
        /// A decoder learns from the rewards of completions that it samples.
        "grpo" => Grpo(GrpoConfig),
    }
}

settings! {
    /// Settings of [`ObjectiveConfig::NextToken`]: none.
    pub struct NextTokenConfig in "train.objective" {}

    /// Settings of [`ObjectiveConfig::Mlm`].
    pub struct MlmConfig in "train.objective" {
        /// The probability of choosing a token, or a word, to be predicted. Of chosen tokens 80 % are masked, 10 % replaced by a random token and 10 % kept.
        pub probability: f64 = 0.15, Range::Positive, Range::Share;
        /// Choose all tokens of a word together.
        pub whole_words: bool = false;
    }

    /// Settings of [`ObjectiveConfig::Classify`].
    pub struct ClassifyConfig in "train.objective" {
        /// The field or column with the text.
        pub text: String = "text".to_owned();
        /// The field or column with the second text of a pair; records may lack it.
        pub text_pair: String = "text_pair".to_owned();
        /// The field or column with the label.
        pub label: String = "label".to_owned();
    }

    /// Settings of [`ObjectiveConfig::SpanCorruption`].
    pub struct SpanCorruptionConfig in "train.objective" {
        // The T5 paper's settings.
        /// The share of tokens that are removed.
        pub density: f64 = 0.15, DENSITY, Range::Positive;
        /// The mean length of a removed span, in tokens.
        pub mean_span: f64 = 3.0, MEAN_SPAN, Range::Positive;
    }

    /// Settings of [`ObjectiveConfig::Seq2seq`].
    pub struct Seq2SeqConfig in "train.objective" {
        /// The field or column with the source text.
        pub source: String = "source".to_owned();
        /// The field or column with the target text.
        pub target: String = "target".to_owned();
        /// A text before every source, such as "summarize: ".
        pub prefix: String = String::new();
        /// The longest target in tokens; the end of a longer one is cut off.
        pub target_tokens: usize = 128, 2..=MOST_TOKENS;
    }
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        ObjectiveKind::NextToken.into()
    }
}

impl ObjectiveKind {
    /// The kind of model that the objective trains.
    pub fn model_kind(self) -> ModelKind {
        match self {
            Self::NextToken | Self::Dpo | Self::Orpo | Self::Simpo | Self::Kto | Self::Grpo => {
                ModelKind::Decoder
            }
            Self::Mlm | Self::Classify => ModelKind::Encoder,
            Self::SpanCorruption | Self::Seq2seq => ModelKind::EncoderDecoder,
        }
    }
}

impl ObjectiveConfig {
    /// True if the data is records instead of datasets of tokens.
    pub fn reads_records(&self) -> bool {
        matches!(self, Self::Classify(_) | Self::Seq2seq(_) | Self::Grpo(_)) || self.is_preference()
    }

    /// True if the records are preferences between completions.
    pub fn is_preference(&self) -> bool {
        matches!(
            self,
            Self::Dpo(_) | Self::Orpo(_) | Self::Simpo(_) | Self::Kto(_)
        )
    }

    /// True if the model is trained on completions that it samples.
    pub fn samples(&self) -> bool {
        matches!(self, Self::Grpo(_))
    }

    /// The completions that are sampled for each prompt, if any.
    pub(super) fn group(&self) -> Option<usize> {
        match self {
            Self::Grpo(config) => Some(config.group),
            _ => None,
        }
    }

    /// The unit of the loss; `None` if it is not a cross-entropy.
    pub fn loss_unit(&self) -> Option<&'static str> {
        match self {
            Self::Classify(_) => Some("nats per text"),
            _ => self.has_perplexity().then_some("nats per token"),
        }
    }

    /// True if the loss is computed from the log-probabilities of completions: of preferences, or sampled ones.
    pub(crate) fn is_of_completions(&self) -> bool {
        self.is_preference() || self.samples()
    }

    /// True if the loss is a mean cross-entropy, whose exponential is a perplexity.
    pub(crate) fn has_perplexity(&self) -> bool {
        !self.is_of_completions()
    }

    /// The perplexity of a mean loss; see [`Self::has_perplexity`].
    pub(crate) fn perplexity(&self, loss: f64) -> Option<f64> {
        self.has_perplexity().then(|| loss.exp())
    }

    /// The sequences of a batch of `size`, which counts pairs of sequences if the objective learns from preferences.
    pub(crate) fn sequences(&self, size: usize) -> usize {
        match self.is_preference() {
            true => size.saturating_mul(2),
            false => size,
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        self.check_rules()?;
        match self {
            Self::Dpo(config) => config.check(),
            Self::Grpo(config) => config.check(),
            _ => Ok(()),
        }
    }

    /// Checks that the objective is one of `model`'s.
    ///
    /// # Errors
    /// It is another model's.
    pub fn check_model(&self, model: &ModelConfig) -> Result<(), TrainError> {
        match self.kind().model_kind() == model.kind() {
            true => Ok(()),
            false => Err(self.not_of(model)),
        }
    }

    /// The error of an objective that is not one of `model`'s.
    pub(crate) fn not_of(&self, model: &ModelConfig) -> TrainError {
        let owner = model.kind().named();
        let kinds = ObjectiveKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| kind.model_kind() == model.kind());
        let names: Vec<_> = kinds.map(ObjectiveKind::name).collect();
        let names = match &names[..] {
            [others @ .., last] if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            names => names.join(", "),
        };
        TrainError::Setting {
            table: "train.objective",
            field: "kind",
            value: self.kind().name().to_owned(),
            rule: format!("must be {names} for {owner}"),
        }
    }
}
