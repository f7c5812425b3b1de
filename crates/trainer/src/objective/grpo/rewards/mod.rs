//! The rewards of completions.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use emberlm_data::PromptRecord;
use emberlm_generate::{Constraint, GenerateError, Grammar};
use regex_automata::meta::Regex;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};

use super::command;
use crate::config::{CommandConfig, RewardConfig};
use crate::error::TrainError;

/// The rewards of a run, with their weights.
pub(crate) struct Rewards {
    rewards: Vec<(f64, Reward)>,
}

enum Reward {
    ExactMatch { field: String },
    Regex { regex: Box<Regex>, field: String },
    JsonSchema(Box<Constraint>),
    Command(CommandConfig),
}

/// A completion to reward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) record: &'a PromptRecord,
    pub(super) completion: &'a str,
}

/// The reward of a completion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rewarded {
    /// The weighted sum of the rewards that could be computed; `None` if none could.
    pub(super) reward: Option<f64>,
    /// The reason why a reward could not be computed.
    pub(super) failure: Option<String>,
}

impl Rewards {
    /// The rewards of a configuration.
    ///
    /// # Errors
    /// A regular expression is invalid, or has no group to compare.
    pub(crate) fn new(configs: &[RewardConfig]) -> Result<Self, TrainError> {
        let rewards = configs.iter().map(|config| {
            let reward = match config {
                RewardConfig::ExactMatch(config) => Reward::ExactMatch {
                    field: config.field.clone(),
                },
                RewardConfig::Regex(config) => Reward::Regex {
                    regex: Box::new(regex(&config.pattern, !config.field.is_empty())?),
                    field: config.field.clone(),
                },
                RewardConfig::JsonSchema(config) => {
                    let grammar = Grammar::JsonSchema(config.schema.clone());
                    let constraint = Constraint::of_bytes(grammar).map_err(GenerateError::from)?;
                    Reward::JsonSchema(Box::new(constraint))
                }
                RewardConfig::Command(config) => Reward::Command(config.clone()),
            };
            Ok((config.weight(), reward))
        });
        Ok(Self {
            rewards: rewards.collect::<Result<_, TrainError>>()?,
        })
    }

    /// The fields that every record must have.
    pub(crate) fn fields(&self) -> Vec<String> {
        let field = |(_, reward): &(f64, Reward)| match reward {
            Reward::ExactMatch { field } | Reward::Regex { field, .. } => Some(field.clone()),
            Reward::JsonSchema(_) | Reward::Command(_) => None,
        };
        let fields = self.rewards.iter().filter_map(field);
        fields.filter(|field| !field.is_empty()).collect()
    }

    /// The rewards of `answers`, in their order. Commands run in parallel.
    pub(super) fn of(&self, answers: &[Answer<'_>]) -> Vec<Rewarded> {
        let runs_commands = |(_, reward): &(f64, Reward)| matches!(reward, Reward::Command(_));
        let threads = match self.rewards.iter().any(runs_commands) {
            true => thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        };
        let next = AtomicUsize::new(0);
        let work = || {
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let answers =
                numbers.map_while(|number| Some((number, self.of_answer(*answers.get(number)?))));
            answers.collect::<Vec<_>>()
        };
        let mut found = vec![Rewarded::default(); answers.len()];
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(answers.len()))
                // Without another thread, the others do its work.
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let own = work();
            let others = others.into_iter().filter_map(|thread| thread.join().ok());
            for (number, rewarded) in own.into_iter().chain(others.flatten()) {
                found[number] = rewarded;
            }
        });
        found
    }

    fn of_answer(&self, answer: Answer<'_>) -> Rewarded {
        let mut found = Rewarded::default();
        for (weight, reward) in &self.rewards {
            match reward.of(answer) {
                Ok(reward) => *found.reward.get_or_insert(0.0) += weight * reward,
                Err(reason) => found.failure = Some(reason),
            }
        }
        found
    }
}

impl Reward {
    /// The reward of an answer.
    ///
    /// # Errors
    /// The reason why there is none.
    fn of(&self, answer: Answer<'_>) -> Result<f64, String> {
        let Answer { record, completion } = answer;
        let expected = |field: &str| record.text(field).unwrap_or_default();
        match self {
            Self::ExactMatch { field } => Ok(share(completion.trim() == expected(field).trim())),
            Self::Regex { regex, field } if field.is_empty() => {
                Ok(share(regex.is_match(completion)))
            }
            Self::Regex { regex, field } => {
                let last = regex.captures_iter(completion).last();
                let group = last.and_then(|found| found.get_group(1));
                let text = group.and_then(|span| completion.get(span.range()));
                Ok(share(text.map(str::trim) == Some(expected(field).trim())))
            }
            Self::JsonSchema(constraint) => {
                let read = serde_json::from_str::<Value>(completion);
                let written = read.ok().and_then(|value| spaced(&value));
                Ok(share(written.is_some_and(|text| constraint.allows(&text))))
            }
            Self::Command(config) => {
                let input = json!({
                    "prompt": record.prompt(),
                    "completion": completion,
                    "record": record.fields,
                });
                let timeout = Duration::try_from_secs_f64(config.timeout).unwrap_or(Duration::MAX);
                // A command may read lines.
                command::run(&config.command, format!("{input}\n").into_bytes(), timeout)
            }
        }
    }
}

/// JSON with a space after each comma and colon, as the grammar of a schema has it.
fn spaced(value: &Value) -> Option<String> {
    struct Spaced;
    impl Formatter for Spaced {
        fn begin_array_value<W: ?Sized + Write>(
            &mut self,
            out: &mut W,
            first: bool,
        ) -> io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }

        fn begin_object_key<W: ?Sized + Write>(
            &mut self,
            out: &mut W,
            first: bool,
        ) -> io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }

        fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
            out.write_all(b": ")
        }
    }
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    value.serialize(&mut serializer).ok()?;
    String::from_utf8(bytes).ok()
}

fn share(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Compiles a regular expression.
fn regex(pattern: &str, has_group: bool) -> Result<Regex, TrainError> {
    let refuse = |rule: String| TrainError::Setting {
        table: "train.objective.rewards",
        field: "pattern",
        value: pattern.to_owned(),
        rule,
    };
    let regex = Regex::new(pattern).map_err(|error| match error.syntax_error() {
        Some(error) => refuse(format!("must be a regular expression: {error}")),
        None => refuse(format!("must be a regular expression: {error}")),
    })?;
    match has_group && regex.group_info().group_len(Default::default()) < 2 {
        true => Err(refuse(
            "must have a group to compare with `field`".to_owned(),
        )),
        false => Ok(regex),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ExactMatchConfig, JsonSchemaConfig, RegexConfig};

    fn record() -> PromptRecord {
        let Value::Object(fields) = json!({"prompt": "2+2=", "answer": 4}) else {
            panic!("no object");
        };
        PromptRecord { number: 1, fields }
    }

    fn reward(config: RewardConfig, completion: &str) -> Option<f64> {
        let rewards = Rewards::new(&[config]).unwrap();
        let record = record();
        let answer = Answer {
            record: &record,
            completion,
        };
        rewards.of(&[answer])[0].reward
    }

    fn pattern(pattern: &str, field: &str) -> RewardConfig {
        RewardConfig::Regex(RegexConfig {
            weight: 0.5,
            pattern: pattern.to_owned(),
            field: field.to_owned(),
        })
    }

    #[test]
    fn completions_are_compared_with_fields() {
        let exact = || RewardConfig::ExactMatch(ExactMatchConfig::default());
        assert_eq!(reward(exact(), " 4\n"), Some(1.0));
        assert_eq!(reward(exact(), "44"), Some(0.0));
        // The last match counts.
        let boxed = || pattern(r"\[(\d+)\]", "answer");
        assert_eq!(reward(boxed(), "[3] or [4]"), Some(0.5));
        assert_eq!(reward(boxed(), "[4] or [3]"), Some(0.0));
        assert_eq!(reward(boxed(), "4"), Some(0.0));
        assert_eq!(reward(pattern("^[0-9]+$", ""), "17"), Some(0.5));
    }

    #[test]
    fn json_is_checked_with_a_schema() {
        let schema = r#"{"type": "object", "properties": {"sum": {"type": "integer"}, "parts": {"type": "array",
            "items": {"type": "integer"}}}, "required": ["sum"], "additionalProperties": false}"#;
        let of = |completion| {
            let config = JsonSchemaConfig {
                weight: 2.0,
                schema: schema.to_owned(),
            };
            reward(RewardConfig::JsonSchema(config), completion)
        };
        // White space is free.
        assert_eq!(of("\n{\"sum\":4,  \"parts\": [1,3]}"), Some(2.0));
        for wrong in [
            "",
            "4",
            "{}",
            r#"{"sum": "4"}"#,
            r#"{"sum": 4, "x": 1}"#,
            r#"{"sum": 4"#,
        ] {
            assert_eq!(of(wrong), Some(0.0), "{wrong}");
        }
    }

    #[test]
    fn unusable_expressions_are_errors() {
        for (expression, field, rule) in [
            ("(", "", "must be a regular expression"),
            ("4", "answer", "must have a group"),
        ] {
            let error = Rewards::new(&[pattern(expression, field)]).err().unwrap();
            assert!(error.to_string().contains(rule), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_failing_command_leaves_the_other_rewards() {
        let command = |script: &str| {
            RewardConfig::Command(CommandConfig {
                command: ["sh", "-c", script].map(str::to_owned).to_vec(),
                ..CommandConfig::default()
            })
        };
        let exact = RewardConfig::ExactMatch(ExactMatchConfig::default());
        let record = record();
        let answer = Answer {
            record: &record,
            completion: "4",
        };
        let of = |configs: &[RewardConfig]| Rewards::new(configs).unwrap().of(&[answer; 3]);
        for rewarded in of(&[exact.clone(), command("exit 1")]) {
            assert_eq!(rewarded.reward, Some(1.0));
            assert!(rewarded.failure.unwrap().contains("exit status: 1"));
        }
        assert_eq!(of(&[command("exit 1")])[2].reward, None);
        let reads = command(r#"grep -c '"completion":"4".*"record":{.*"answer":4'"#);
        assert_eq!(of(&[exact, reads])[1].reward, Some(2.0));
    }
}
