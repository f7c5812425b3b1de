//! The file with the experiments.

use std::path::Path;

use emberlm_model::nn::probe::Point;
use emberlm_system::read::read_argument;
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::run_config::toml_reason;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::CliError;
use crate::model::needed;
use crate::opened_model::OpenedModel;

/// The texts and the changes, as the file has them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiments {
    clean: Text,
    /// A text with as many tokens.
    corrupted: Option<Text>,
    /// The predicted token whose probability is measured.
    answer: Token,
    /// The token that it is compared with.
    wrong: Option<Token>,
    /// Activations of the clean text in the pass over the corrupted one.
    #[serde(default)]
    pub patch: Vec<Patch>,
    /// Changed activations in the pass over the clean text.
    #[serde(default)]
    pub ablate: Vec<Ablation>,
}

/// A text or its token ids.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Ids(Vec<u32>),
}

/// A token's text or its id.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Id(u32),
}

/// A table `[[patch]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    #[serde(deserialize_with = "point")]
    pub site: Point,
    pub by: By,
}

/// A table `[[ablate]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ablation {
    #[serde(deserialize_with = "point")]
    pub site: Point,
    pub by: By,
    pub with: Replacement,
}

/// The parts of an activation that are changed one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// One position of the text.
    Position,
    /// One head, at all positions.
    Head,
    /// All of it.
    Layer,
}

impl By {
    pub fn name(self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Head => "head",
            Self::Layer => "layer",
        }
    }
}

/// The values that replace an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    Zero,
    /// Its mean over the positions of the text.
    Mean,
}

/// The kind of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Patch,
    Ablate,
}

/// Reads the name of a point.
fn point<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Point, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = Point::ALL.into_iter().find(|point| point.name() == name);
    found.ok_or_else(|| {
        let names = Point::ALL.map(Point::name).join(", ");
        D::Error::custom(format!("unknown site `{name}`, expected one of {names}"))
    })
}

/// The texts and tokens of experiments, checked against a model.
#[derive(Debug)]
pub struct Texts {
    pub clean: Vec<u32>,
    /// As many tokens as `clean`.
    pub corrupted: Option<Vec<u32>>,
    answer: usize,
    wrong: Option<usize>,
}

impl Texts {
    /// `logit(answer) − logit(wrong)`; without a wrong token the log-probability of the answer in nats.
    pub fn score(&self, logits: &[f32]) -> f64 {
        let logit = |id: usize| logits.get(id).copied().map_or(f64::NAN, f64::from);
        let other = match self.wrong {
            Some(wrong) => logit(wrong),
            None => {
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let terms = logits.iter().map(|&x| f64::from(x - max).exp());
                f64::from(max) + terms.sum::<f64>().ln()
            }
        };
        logit(self.answer) - other
    }
}

impl Experiments {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, is invalid, or has no experiment.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let text = read_argument(path).map_err(CliError::io("read", path))?;
        Self::parse(&text).map_err(|error| error.within(&path.display().to_string()))
    }

    fn parse(text: &str) -> Result<Self, CliError> {
        let read: Self = toml::from_str(text).map_err(|error| {
            CliError::new(toml_reason(&error, text))
                .hint("docs/guides/inside.md has an example of such a file")
        })?;
        if read.patch.is_empty() && read.ablate.is_empty() {
            return Err(CliError::new("there are no experiments")
                .hint("add a table [[patch]] or [[ablate]] with site and by"));
        }
        if read.corrupted.is_none() && !read.patch.is_empty() {
            return Err(
                CliError::new("[[patch]] needs a corrupted text, and there is none")
                    .hint("`corrupted` is a text with as many tokens and another answer"),
            );
        }
        Ok(read)
    }

    /// Tokenizes the texts. `paths` are those of the model and of the file, for messages.
    ///
    /// # Errors
    /// A text needs a tokenizer, is too long, or has another number of tokens than the other; an answer is not one token.
    pub fn texts(
        &self,
        model: &OpenedModel,
        tokenizer: Option<&Tokenizer>,
        (model_path, file): (&Path, &Path),
    ) -> Result<Texts, CliError> {
        let path = file.display();
        let text = |text: &Text| {
            let ids = match text {
                Text::Ids(ids) => ids.clone(),
                Text::Text(text) => needed(tokenizer, model_path)?.encode_prompt(text)?,
            };
            if ids.is_empty() {
                return Err(CliError::new(format!("{path}: a text is empty"))
                    .hint("give a text of at least one token"));
            }
            model.check_tokens(&ids)?;
            Ok(ids)
        };
        let token = |token: &Token| {
            let id = match token {
                Token::Id(id) => *id,
                Token::Text(text) => match needed(tokenizer, model_path)?.encode(text)?[..] {
                    [id] => id,
                    ref ids => {
                        let count = ids.len();
                        let message = format!("{path}: {text:?} is {count} tokens, not one");
                        return Err(CliError::new(message).hint(
                            "a token often begins with a space, and can be given by its id",
                        ));
                    }
                },
            };
            model.check_tokens(&[id])?;
            Ok(id as usize)
        };
        let clean = text(&self.clean)?;
        let corrupted = self.corrupted.as_ref().map(text).transpose()?;
        if let Some(other) = corrupted
            .as_ref()
            .filter(|other| other.len() != clean.len())
        {
            let (clean, corrupted) = (clean.len(), other.len());
            let message = format!(
                "{path}: the clean text has {clean} tokens, and the corrupted one {corrupted}"
            );
            return Err(CliError::new(message).hint("both need the same number of tokens"));
        }
        Ok(Texts {
            clean,
            corrupted,
            answer: token(&self.answer)?,
            wrong: self.wrong.as_ref().map(token).transpose()?,
        })
    }
}
