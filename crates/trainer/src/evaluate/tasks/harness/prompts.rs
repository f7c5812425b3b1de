//! The contexts of items: description, few-shot examples and the item's own prompt.

use serde_json::Value;

use super::config::{Sampler, TaskConfig};
use super::fields::Doc;
use crate::evaluate::tasks::lines::Fields;
use crate::evaluate::tasks::python_random::PythonRandom;

/// The seed of few-shot examples, which is the harness's default.
const SEED: u64 = 1234;

/// The few-shot examples that items are preceded by.
pub(super) struct Examples {
    docs: Vec<Fields>,
    made: Vec<Result<Doc, String>>,
    random: PythonRandom,
    sampler: Sampler,
    count: usize,
    /// True if the examples come from the evaluated split, so that an item is not an example of itself.
    excludes_item: bool,
}

impl Examples {
    pub(super) fn new(
        config: &TaskConfig,
        docs: Vec<Fields>,
        made: Vec<Result<Doc, String>>,
    ) -> Self {
        Self {
            docs,
            made,
            random: PythonRandom::new(SEED),
            sampler: config.fewshot.sampler,
            count: config.num_fewshot,
            excludes_item: config.fewshot.split == config.test_split,
        }
    }

    /// The examples of the next item.
    fn next(&mut self, item: &Fields) -> Result<Vec<usize>, String> {
        let available = self.docs.len();
        let drawn: Vec<usize> = match self.sampler {
            Sampler::First => (0..available).collect(),
            Sampler::Random => {
                let count = self.count + usize::from(self.excludes_item);
                match count <= available {
                    true => self.random.sample(available, count),
                    false => Vec::new(),
                }
            }
        };
        let others = drawn
            .into_iter()
            .filter(|&at| !self.excludes_item || self.docs[at] != *item);
        let chosen: Vec<usize> = others.take(self.count).collect();
        match chosen.len() == self.count {
            true => Ok(chosen),
            false => Err(format!(
                "`num_fewshot` is {}, but only {available} examples are available, of which an item is not its own",
                self.count
            )),
        }
    }

    /// The examples of the next item as text.
    pub(super) fn text(&mut self, config: &TaskConfig, item: &Fields) -> Result<String, String> {
        if self.count == 0 {
            return Ok(String::new());
        }
        let mut text = String::new();
        for at in self.next(item)? {
            let doc = self.made[at]
                .as_ref()
                .map_err(|reason| format!("few-shot example {}: {reason}", at + 1))?;
            text += &example(config, doc)
                .map_err(|reason| format!("few-shot example {}: {reason}", at + 1))?;
        }
        Ok(text)
    }
}

/// A prompt and its answer.
fn example(config: &TaskConfig, doc: &Doc) -> Result<String, String> {
    let fewshot = &config.fewshot;
    let prompt = match (doc.prompt_number(), &doc.choices) {
        (Some(number), Some(choices)) => choices
            .get(number)
            .ok_or_else(|| doc.correct().err().unwrap_or_default())?,
        _ => doc.prompt()?,
    };
    let answer = doc.target_text()?;
    if answer.is_empty() {
        return Ok(prompt.to_owned());
    }
    Ok([
        prompt,
        &fewshot.target_delimiter,
        &answer,
        &fewshot.delimiter,
    ]
    .concat())
}

/// The description of each item: a column or a template.
pub(super) fn description(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("`description` must be a text (got {other})")),
    }
}
