//! Settings of the rewards of sampled completions.

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use super::check::{F32_RULE, Range, check_all, is_in_f32, require};
use crate::error::TrainError;

/// A reward of a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RewardConfig {
    /// 1 if the completion equals a field of the record, and 0 otherwise.
    ExactMatch(ExactMatchConfig),
    /// 1 if a regular expression matches, and 0 otherwise.
    Regex(RegexConfig),
    /// 1 if the completion is JSON of a schema, and 0 otherwise.
    JsonSchema(JsonSchemaConfig),
    /// The number that a command prints.
    Command(CommandConfig),
}

/// Settings of [`RewardConfig::ExactMatch`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct ExactMatchConfig {
    /// The weight of the reward in the sum.
    pub weight: f64,
    /// The field of the record that the completion must equal, white space around both aside.
    pub field: String,
}

/// Settings of [`RewardConfig::Regex`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct RegexConfig {
    /// The weight of the reward in the sum.
    pub weight: f64,
    /// The regular expression, in the syntax of Rust's regex crate. It may match anywhere in the completion.
    pub pattern: String,
    /// The field of the record that the first group of the last match must equal; empty if any match is right.
    pub field: String,
}

/// Settings of [`RewardConfig::JsonSchema`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct JsonSchemaConfig {
    /// The weight of the reward in the sum.
    pub weight: f64,
    /// The JSON schema, as text. Properties must have its order, as in generation that is constrained by a schema.
    pub schema: String,
}

/// Settings of [`RewardConfig::Command`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct CommandConfig {
    /// The weight of the reward in the sum.
    pub weight: f64,
    /// The program and its arguments, run without a shell once for each completion. It reads a JSON object with prompt, completion and record from stdin, and prints a number.
    pub command: Vec<String>,
    /// Seconds after which the command is stopped, and the completion has no reward.
    pub timeout: f64,
}

impl Default for ExactMatchConfig {
    fn default() -> Self {
        Self {
            weight: 1.0,
            field: "answer".to_owned(),
        }
    }
}

impl Default for RegexConfig {
    fn default() -> Self {
        Self {
            weight: 1.0,
            pattern: String::new(),
            field: String::new(),
        }
    }
}

impl Default for JsonSchemaConfig {
    fn default() -> Self {
        Self {
            weight: 1.0,
            schema: String::new(),
        }
    }
}

impl Default for CommandConfig {
    fn default() -> Self {
        Self {
            weight: 1.0,
            command: Vec::new(),
            timeout: 10.0,
        }
    }
}

const TABLE: &str = "train.objective.rewards";
/// The upper bound of `timeout`, which an instant of the system's clock can add.
const MOST_SECONDS: f64 = 31_536_000.0;

impl RewardConfig {
    /// The weight in the sum of rewards.
    pub fn weight(&self) -> f64 {
        match self {
            Self::ExactMatch(config) => config.weight,
            Self::Regex(config) => config.weight,
            Self::JsonSchema(config) => config.weight,
            Self::Command(config) => config.weight,
        }
    }

    pub(super) fn check(&self) -> Result<(), TrainError> {
        let weight = self.weight();
        require(
            TABLE,
            "weight",
            weight,
            weight.is_finite(),
            "must be finite",
        )?;
        require(TABLE, "weight", weight, is_in_f32(weight), F32_RULE)?;
        let given = |field, value: &str| {
            require(TABLE, field, "\"\"", !value.is_empty(), "must not be empty")
        };
        match self {
            Self::ExactMatch(config) => given("field", &config.field),
            Self::Regex(config) => given("pattern", &config.pattern),
            Self::JsonSchema(config) => given("schema", &config.schema),
            Self::Command(config) => {
                let program = config.command.first();
                given("command", program.map_or("", String::as_str))?;
                let timeout = config.timeout;
                check_all(TABLE, &[("timeout", timeout, Range::Positive)])?;
                let rule = format!("must be at most {MOST_SECONDS}, a year");
                require(TABLE, "timeout", timeout, timeout <= MOST_SECONDS, &rule)
            }
        }
    }
}
