//! The texts of CORE's items, and the tokens of them that are predicted.

use emberlm_data::Tokenizer;
use serde_json::Value;

use crate::evaluate::tasks::likelihood::{Likelihood, Row};
use crate::evaluate::tasks::lines::{self, Fields};
use crate::evaluate::tasks::pair::{Beginning, Limits, check_ids};

emberlm_system::named! {
    /// The type of a task.
    pub(super) enum Kind {
        /// One context with several continuations.
        MultipleChoice = "multiple_choice",
        /// Several contexts with one continuation.
        Schema = "schema",
        /// A continuation that greedy decoding must produce.
        LanguageModeling = "language_modeling",
    }
}

/// An item of a task.
#[derive(Debug)]
pub(super) struct Item {
    /// The contexts, one but for a schema.
    contexts: Vec<String>,
    /// The continuations, one but for a multiple choice.
    continuations: Vec<String>,
    /// The number of the correct context or continuation.
    gold: usize,
}

impl Item {
    /// Reads an item of a task of `kind`.
    pub(super) fn read(kind: Kind, fields: &Fields) -> Result<Self, String> {
        let text = |name: &str| Ok::<_, String>(vec![lines::text(fields, name)?.to_owned()]);
        let texts = |name: &str| {
            let texts = lines::texts(fields, name)?;
            match texts.is_empty() {
                true => Err(format!("`{name}` must have a text")),
                false => Ok(texts.into_iter().map(str::to_owned).collect::<Vec<_>>()),
            }
        };
        let (contexts, continuations) = match kind {
            Kind::MultipleChoice => (text("query")?, texts("choices")?),
            Kind::Schema => (texts("context_options")?, text("continuation")?),
            Kind::LanguageModeling => (text("context")?, text("continuation")?),
        };
        let gold = match kind {
            Kind::LanguageModeling => 0,
            _ => {
                let gold = fields.get("gold").unwrap_or(&Value::Null);
                let count = contexts.len().max(continuations.len());
                let number = gold.as_u64().and_then(|gold| usize::try_from(gold).ok());
                number.filter(|gold| *gold < count).ok_or_else(|| {
                    format!(
                        "`gold` is {gold}: must be the number of an option, from 0 to {}",
                        count - 1
                    )
                })?
            }
        };
        Ok(Self {
            contexts,
            continuations,
            gold,
        })
    }

    /// Each context with each continuation.
    fn texts(&self, kind: Kind, delimiter: &str) -> Vec<String> {
        let pairs = self.contexts.iter().flat_map(|context| {
            let continuations = self.continuations.iter();
            continuations.map(move |continuation| {
                [context_text(kind, context), delimiter, continuation].concat()
            })
        });
        pairs.collect()
    }

    /// Returns true if the model chooses the correct option, given the likelihoods of the options' tokens; `None` for an
    /// option without tokens.
    pub(super) fn is_correct(&self, kind: Kind, found: &[Option<Likelihood>]) -> bool {
        if kind == Kind::LanguageModeling {
            return found.iter().flatten().all(|found| found.greedy);
        }
        let mean = |found: &Option<Likelihood>| {
            found.map_or(f64::NAN, |found| -found.sum / found.tokens as f64)
        };
        let losses: Vec<f64> = found.iter().map(mean).collect();
        // The first of equals, as Python's `min`.
        let mut best = 0;
        for (at, loss) in losses.iter().enumerate() {
            if *loss < losses[best] {
                best = at;
            }
        }
        best == self.gold
    }
}

/// A context as it is written: that of a language modeling task without blanks at its ends.
fn context_text(kind: Kind, context: &str) -> &str {
    match kind {
        Kind::LanguageModeling => context.trim(),
        _ => context,
    }
}

/// Makes the rows of items.
pub(super) struct ItemRows<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) beginning: &'a Beginning,
    pub(super) limits: Limits,
    pub(super) delimiter: &'a str,
}

impl ItemRows<'_> {
    /// The row of each option; `None` if it has no tokens that differ.
    pub(super) fn of(
        &self,
        kind: Kind,
        examples: &[&Item],
        item: &Item,
    ) -> Result<Vec<Option<Row>>, String> {
        let example = |example: &&Item| {
            let texts = example.texts(kind, self.delimiter);
            [texts[example.gold].as_str(), "\n\n"].concat()
        };
        let before: String = examples.iter().map(example).collect();
        let texts = item.texts(kind, self.delimiter);
        let ids = texts
            .iter()
            .map(|text| self.encode(&[&before, text.as_str()].concat()));
        let ids: Vec<Vec<u32>> = ids.collect::<Result<_, _>>()?;
        if kind == Kind::LanguageModeling {
            let context = context_text(kind, &item.contexts[0]);
            let context = [&before, context, self.delimiter].concat();
            let context = self.encode(context.trim())?;
            if context.len() >= ids[0].len() || !ids[0].starts_with(&context) {
                return Err("the tokens of the context do not begin those of the context with its continuation".to_owned());
            }
            return Ok(vec![self.row(&ids[0], ids[0].len() - context.len())]);
        }
        let shared = match kind {
            Kind::Schema => shared_length(&ids, |ids, at| ids.iter().rev().nth(at)),
            _ => shared_length(&ids, |ids, at| ids.get(at)),
        };
        let predicted = |ids: &Vec<u32>| match kind {
            Kind::Schema => shared,
            _ => ids.len() - shared,
        };
        Ok(ids
            .iter()
            .map(|ids| self.row(ids, predicted(ids)))
            .collect())
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut ids = vec![self.beginning.prefix()?];
        ids.extend(
            self.tokenizer
                .encode(text)
                .map_err(|error| error.to_string())?,
        );
        check_ids(&ids, self.limits.vocab_size)?;
        Ok(ids)
    }

    /// The last `predicted` tokens after the others. The model reads at most its context, the last token included.
    fn row(&self, ids: &[u32], predicted: usize) -> Option<Row> {
        let from = ids.len().saturating_sub(self.limits.seq_len);
        let tokens = ids[from..].to_vec();
        let predicted = predicted.min(tokens.len().saturating_sub(1));
        (predicted > 0).then_some(Row {
            tokens,
            predicted,
            is_cut: from > 0,
        })
    }
}

/// The number of tokens that all sequences share, from one end.
fn shared_length<'a>(
    ids: &'a [Vec<u32>],
    token: impl Fn(&'a Vec<u32>, usize) -> Option<&'a u32>,
) -> usize {
    let least = ids.iter().map(Vec::len).min().unwrap_or(0);
    let same = |at: &usize| {
        ids.iter()
            .all(|other| token(other, *at) == token(&ids[0], *at))
    };
    (0..least).take_while(same).count()
}
