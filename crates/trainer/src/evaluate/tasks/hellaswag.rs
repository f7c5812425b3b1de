//! HellaSwag: choosing the ending that continues a context, under two published conventions.
//!
//! The file has a JSON object per line. The fields `activity_label`, `ctx_a`, `ctx_b`, `ctx`, `endings` and
//! `label` are read.

use emberlm_data::Tokenizer;
use serde::Serialize;
use serde_json::Value;

use super::largest;
use super::likelihood::{Likelihood, Row};
use super::lines::{self, Fields};
use super::pair::{self, Limits};
use super::statistics::Estimate;

emberlm_system::named! {
    /// The way an item becomes text and likelihoods become an answer.
    pub enum Convention {
        /// `hellaswag.py` of llm.c and build-nanogpt: `ctx` and `" " + ending`, tokenized separately. `acc` picks
        /// the ending with the lowest summed loss, `acc_norm` that with the lowest mean loss per token.
        LlmC = "llm.c",
        /// `hellaswag` of lm-evaluation-harness: `activity_label: ctx_a Ctx_b` and `" " + ending`, both cleaned
        /// of WikiHow's bracketed markup and tokenized joint. `acc` picks the ending with the highest
        /// log-likelihood, `acc_norm` that with the highest log-likelihood per character of the ending (Unicode
        /// code points, without the leading space).
        Harness = "lm-evaluation-harness",
    }
}

/// A context and its endings.
#[derive(Debug, PartialEq)]
pub struct Item {
    /// The line number in the file.
    pub(super) line: usize,
    ctx: String,
    endings: Vec<String>,
    /// The context as cleaned by the harness.
    query: String,
    choices: Vec<String>,
    /// The index of the correct ending.
    label: usize,
}

/// The result of HellaSwag.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceReport {
    /// The result per convention, in the order of [`Convention::ALL`].
    pub conventions: Vec<ConventionReport>,
    /// The answer to each item.
    pub answers: Vec<ItemAnswer>,
}

/// The result under one convention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConventionReport {
    /// The convention.
    pub convention: Convention,
    /// `acc`.
    pub accuracy: Estimate,
    /// `acc_norm`.
    pub normalized: Estimate,
}

/// The answer to an item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ItemAnswer {
    /// The index of the correct ending.
    pub label: usize,
    /// The answer under llm.c's convention.
    pub llm_c: ChoiceAnswer,
    /// The answer under lm-evaluation-harness's convention.
    pub lm_evaluation_harness: ChoiceAnswer,
}

/// The answer under one convention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChoiceAnswer {
    /// The log-likelihood `ln p(ending)` of each ending, in nats.
    pub log_likelihoods: Vec<f64>,
    /// The index of the ending chosen by `acc`.
    pub choice: usize,
    /// The index of the ending chosen by `acc_norm`.
    pub choice_norm: usize,
}

impl Item {
    /// Parses the fields of a line.
    pub(super) fn read(fields: &Fields, line: usize) -> Result<Self, String> {
        let text = |name| lines::text(fields, name);
        let endings = lines::texts(fields, "endings")?;
        let count = endings.len();
        if count < 2 {
            return Err(format!("`endings` has {count}: must be at least 2"));
        }
        let label = label(fields.get("label"))?;
        if label >= count {
            return Err(format!(
                "`label` is {label}, but the {count} endings are 0 to {}",
                count - 1
            ));
        }
        let (activity, a, b) = (text("activity_label")?, text("ctx_a")?, text("ctx_b")?);
        Ok(Self {
            line,
            query: cleaned(&format!("{activity}: {a} {}", capitalized(b))),
            choices: endings.iter().map(|ending| cleaned(ending)).collect(),
            ctx: text("ctx")?.to_owned(),
            endings: endings.into_iter().map(str::to_owned).collect(),
            label,
        })
    }

    /// The rows to score: every ending under llm.c's convention, then under the harness's.
    pub(super) fn rows(&self, tokenizer: &Tokenizer, limits: Limits) -> Result<Vec<Row>, String> {
        let blank = |ending: &String| format!(" {ending}");
        let (endings, choices) = (self.endings.iter(), self.choices.iter());
        let separate = endings.map(|e| pair::separate(tokenizer, &self.ctx, &blank(e), limits));
        let joint = choices.map(|e| pair::joint(tokenizer, &self.query, &blank(e), limits));
        separate.chain(joint).collect()
    }

    /// The answer, given the likelihoods of the item's rows.
    fn answer(&self, likelihoods: &[Likelihood]) -> ItemAnswer {
        let (separate, joint) = likelihoods.split_at(self.endings.len());
        let per_token = |found: &Likelihood| found.sum / found.tokens as f64;
        let characters = self.choices.iter().map(|choice| choice.chars().count());
        let per_character = |(found, count): (&Likelihood, usize)| found.sum / count as f64;
        let answer = |found: &[Likelihood], normalized: Vec<f64>| {
            let sums: Vec<f64> = found.iter().map(|found| found.sum).collect();
            ChoiceAnswer {
                choice: largest(&sums),
                choice_norm: largest(&normalized),
                log_likelihoods: sums,
            }
        };
        ItemAnswer {
            label: self.label,
            llm_c: answer(separate, separate.iter().map(per_token).collect()),
            lm_evaluation_harness: answer(
                joint,
                joint.iter().zip(characters).map(per_character).collect(),
            ),
        }
    }
}

/// Computes the result from the likelihoods of all items' rows.
pub(super) fn report(items: &[Item], likelihoods: &[Likelihood]) -> ChoiceReport {
    let mut rest = likelihoods;
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let (own, others) = rest.split_at(2 * item.endings.len());
        answers.push(item.answer(own));
        rest = others;
    }
    let conventions = Convention::ALL.map(|convention| {
        let hits = |choice: fn(&ChoiceAnswer) -> usize| {
            let hit = |item: &ItemAnswer| {
                let answer = match convention {
                    Convention::LlmC => &item.llm_c,
                    Convention::Harness => &item.lm_evaluation_harness,
                };
                choice(answer) == item.label
            };
            Estimate::share(answers.iter().map(hit).collect::<Vec<bool>>())
        };
        ConventionReport {
            convention,
            accuracy: hits(|answer| answer.choice),
            normalized: hits(|answer| answer.choice_norm),
        }
    });
    ChoiceReport {
        conventions: conventions.to_vec(),
        answers,
    }
}

/// Parses the label. The published file has numbers. The copy on the Hugging Face Hub has strings, which are
/// empty if the answers are withheld.
fn label(label: Option<&Value>) -> Result<usize, String> {
    let number = match label {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::String(text)) => Some(text.parse().ok()),
        Some(value) => Some(value.as_u64().and_then(|label| usize::try_from(label).ok())),
    };
    let none = "it has no `label`: the answers of HellaSwag's test split are not published";
    let found = label.unwrap_or(&Value::Null);
    let rule = || format!("`label` is {found}: must be the index of an ending, from 0");
    number.ok_or(none)?.ok_or_else(rule)
}

/// The harness's `preprocess`: trims whitespace, removes WikiHow's bracketed markup, and replaces double
/// spaces in a single pass.
fn cleaned(text: &str) -> String {
    let text = text.trim_matches(pair::is_blank).replace(" [title]", ". ");
    without_brackets(&text).replace("  ", " ")
}

/// Removes matches of the pattern `\[.*?\]`: from each bracket to the next closing one on the same line.
fn without_brackets(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        kept.push_str(&rest[..open]);
        let inside = &rest[open + 1..];
        match inside.find([']', '\n']) {
            Some(close) if inside[close..].starts_with(']') => rest = &inside[close + 1..],
            _ => {
                kept.push('[');
                rest = inside;
            }
        }
    }
    kept + rest
}

/// Python's `str.capitalize`: the first character in title case, the rest in lower case.
fn capitalized(text: &str) -> String {
    let Some(first) = text.chars().next() else {
        return String::new();
    };
    // Lowercase the whole text at once: the form of a sigma depends on its neighbours.
    let small = text.to_lowercase();
    let of_first: usize = first.to_lowercase().map(char::len_utf8).sum();
    let mut large = first.to_uppercase();
    let head = large.next().unwrap_or(first);
    // If the first character expands to several letters, as ligatures do, only the first of them is upper
    // case.
    let tail: String = large.flat_map(char::to_lowercase).collect();
    format!("{head}{tail}{}", &small[of_first..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(label: &str, endings: &str) -> Result<Item, String> {
        let json = format!(
            r#"{{"activity_label": "A", "ctx_a": "a.", "ctx_b": "b", "ctx": "a. b", "endings": {endings}{label}}}"#
        );
        Item::read(&serde_json::from_str(&json).unwrap(), 1)
    }

    /// Expected values are from Python's `preprocess` and `capitalize`.
    #[test]
    fn texts_are_cleaned_as_the_harness_does() {
        assert_eq!(
            cleaned(" [header] How to [title] Do it.  [step] Now \n"),
            " How to. Do it.  Now"
        );
        assert_eq!(cleaned("a [b\nc] d"), "a [b\nc] d");
        assert_eq!(cleaned("a[[b]c]   d [e"), "ac]  d [e");
        assert_eq!(capitalized("the Man IS ON TOP"), "The man is on top");
        assert_eq!(capitalized("ßa ÉΣ"), "Ssa éς");
        assert_eq!(capitalized(""), "");
    }

    #[test]
    fn labels_are_numbers_or_strings() {
        let endings = r#"["x", "y", "z"]"#;
        assert_eq!(item(r#", "label": 2"#, endings).unwrap().label, 2);
        assert_eq!(item(r#", "label": "1""#, endings).unwrap().label, 1);
        let refusal = |label| item(label, endings).unwrap_err();
        assert_eq!(
            refusal(r#", "label": 3"#),
            "`label` is 3, but the 3 endings are 0 to 2"
        );
        assert!(refusal(r#", "label": -1"#).contains("`label` is -1: must be"));
        assert!(refusal(r#", "label": "b""#).contains("`label` is \"b\": must be"));
        for none in ["", r#", "label": """#, r#", "label": null"#] {
            assert!(
                refusal(none).contains("test split are not published"),
                "{none}"
            );
        }
        assert!(
            item(r#", "label": 0"#, r#"["x"]"#)
                .unwrap_err()
                .contains("at least 2")
        );
    }

    #[test]
    fn sums_and_means_choose_separately() {
        let item = item(r#", "label": 1"#, r#"["four", "é"]"#).unwrap();
        let of = |sum, tokens| Likelihood {
            sum,
            tokens,
            greedy: false,
        };
        // llm.c: sums -4 and -3, means -1 and -3. Harness: sums -4 and -1.5, per character -1 and -1.5: per byte, -0.75.
        let found = [of(-4., 4), of(-3., 1), of(-4., 1), of(-1.5, 1)];
        let report = report(&[item], &found);
        let [answer] = report.answers.as_slice() else {
            panic!("one item");
        };
        assert_eq!((answer.llm_c.choice, answer.llm_c.choice_norm), (1, 0));
        let harness = &answer.lm_evaluation_harness;
        assert_eq!((harness.choice, harness.choice_norm), (1, 0));
        let [llm_c, _] = report.conventions.as_slice() else {
            panic!("two conventions");
        };
        assert_eq!((llm_c.accuracy.value, llm_c.normalized.value), (1.0, 0.0));
        assert_eq!(llm_c.accuracy.stderr, None);
    }
}
