//! The rewards of completions, each in its module.

mod command;
mod exact_match;
mod json_schema;
mod regex;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use emberlm_data::PromptRecord;

use crate::config::RewardConfig;
use crate::error::TrainError;
use json_schema::JsonSchema;

/// The rewards of a run, with their weights.
pub(crate) struct Rewards {
    rewards: Vec<(f64, Box<dyn Reward>)>,
}

/// A reward of completions.
trait Reward: Send + Sync {
    /// The field that every record must have.
    fn field(&self) -> Option<&str> {
        None
    }

    /// Returns true if several threads should compute it.
    fn is_slow(&self) -> bool {
        false
    }

    /// The reward of an answer.
    ///
    /// # Errors
    /// The reason why there is none.
    fn of(&self, answer: Answer<'_>) -> Result<f64, String>;
}

/// A completion to reward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) record: &'a PromptRecord,
    pub(super) completion: &'a str,
}

impl Answer<'_> {
    /// The text of a field of the record.
    fn expected(&self, field: &str) -> String {
        self.record.text(field).unwrap_or_default()
    }
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
            let reward: Box<dyn Reward> = match config {
                RewardConfig::ExactMatch(config) => Box::new(config.clone()),
                RewardConfig::Regex(config) => Box::new(regex::Match::new(config)?),
                RewardConfig::JsonSchema(config) => Box::new(JsonSchema::new(config)?),
                RewardConfig::Command(config) => Box::new(config.clone()),
            };
            Ok((config.weight(), reward))
        });
        Ok(Self {
            rewards: rewards.collect::<Result<_, TrainError>>()?,
        })
    }

    /// The fields that every record must have.
    pub(crate) fn fields(&self) -> Vec<String> {
        let fields = self.rewards.iter().filter_map(|(_, reward)| reward.field());
        fields.map(str::to_owned).collect()
    }

    /// The rewards of `answers`, in their order. Slow ones are computed in parallel.
    pub(super) fn of(&self, answers: &[Answer<'_>]) -> Vec<Rewarded> {
        let is_slow = self.rewards.iter().any(|(_, reward)| reward.is_slow());
        let threads = match is_slow {
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

/// 1 if `holds`, and 0 otherwise.
fn share(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{CommandConfig, ExactMatchConfig, JsonSchemaConfig, RegexConfig};

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
