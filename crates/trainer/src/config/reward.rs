//! Settings of the rewards of sampled completions.

use super::check::{Must, NOT_EMPTY, Range};
use super::kinds::kinds;
use super::settings::settings;

kinds! {
    /// A reward of a completion.
    pub enum RewardConfig, RewardKind: "exact_match, regex, json_schema or command." {
        /// 1 if the completion equals a field of the record, and 0 otherwise.
        "exact_match" => ExactMatch(ExactMatchConfig),
        /// 1 if a regular expression matches, and 0 otherwise.
        "regex" => Regex(RegexConfig),
        /// 1 if the completion is JSON of a schema, and 0 otherwise.
        "json_schema" => JsonSchema(JsonSchemaConfig),
        /// The number that a command prints.
        "command" => Command(CommandConfig),
    }
}

settings! {
    /// Settings of [`RewardConfig::ExactMatch`].
    pub struct ExactMatchConfig in "train.objective.rewards" {
        /// The weight of the reward in the sum.
        pub weight: f64 = 1.0, Range::Finite;
        /// The field of the record that the completion must equal, white space around both aside.
        pub field: String = "answer".to_owned(), NOT_EMPTY;
    }

    /// Settings of [`RewardConfig::Regex`].
    pub struct RegexConfig in "train.objective.rewards" {
        /// The weight of the reward in the sum.
        pub weight: f64 = 1.0, Range::Finite;
        /// The regular expression, in the syntax of Rust's regex crate. It may match anywhere in the completion.
        pub pattern: String = String::new(), NOT_EMPTY;
        /// The field of the record that the first group of the last match must equal; empty if any match is right.
        pub field: String = String::new();
    }

    /// Settings of [`RewardConfig::JsonSchema`].
    pub struct JsonSchemaConfig in "train.objective.rewards" {
        /// The weight of the reward in the sum.
        pub weight: f64 = 1.0, Range::Finite;
        /// The JSON schema, as text. Properties must have its order, as in generation that is constrained by a schema.
        pub schema: String = String::new(), NOT_EMPTY;
    }

    /// Settings of [`RewardConfig::Command`].
    pub struct CommandConfig in "train.objective.rewards" {
        /// The weight of the reward in the sum.
        pub weight: f64 = 1.0, Range::Finite;
        /// The program and its arguments, run without a shell once for each completion. It reads a JSON object with prompt, completion and record from stdin, and prints a number.
        pub command: Vec<String> = Vec::new(), NAMED;
        /// Seconds after which the command is stopped, and the completion has no reward.
        pub timeout: f64 = 10.0, Range::Positive, A_YEAR;
    }
}

/// The rule of a command: it has a program.
const NAMED: Must<Vec<String>> = Must("must not be empty", |command: &Vec<String>| {
    command.first().is_some_and(|program| !program.is_empty())
});
/// The rule of `timeout`, which an instant of the system's clock can add.
const A_YEAR: Must<f64> = Must("must be at most 31536000, a year", |seconds: &f64| {
    *seconds <= 31_536_000.0
});

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
}
