//! Random search: draws configurations from a space of settings.

use emberlm_system::random::split_mix;
use serde::Deserialize;
use toml::{Table, Value};

use super::file::Settings;
use crate::error::CliError;

/// A validated random search.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomSearch {
    runs: usize,
    /// Seed of the draws. Each draw is a function of the seed, the setting's key and the configuration's
    /// number.
    pub seed: u64,
    space: Vec<(String, Distribution)>,
}

/// A random search as written in the sweep file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomTable {
    runs: usize,
    #[serde(default)]
    seed: u64,
    space: Table,
}

/// The distribution of a setting's values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Distribution {
    /// Uniform between two numbers.
    Uniform([f64; 2]),
    /// Uniform in the logarithm, between two positive numbers.
    LogUniform([f64; 2]),
    /// A uniform integer between two integers, both included.
    Integer([i64; 2]),
    /// A uniform choice from a list.
    Choice(Vec<Value>),
}

impl RandomSearch {
    /// Validates a search.
    ///
    /// # Errors
    /// Returns an error if the search has no runs, no settings or an invalid distribution.
    pub fn new(table: RandomTable) -> Result<Self, CliError> {
        let RandomTable { runs, seed, space } = table;
        if runs == 0 {
            return Err(CliError::usage("random.runs must be at least 1 (got 0)"));
        }
        let mut found = Vec::new();
        distributions("", space, &mut found)?;
        if found.is_empty() {
            return Err(CliError::usage("random.space has no setting").hint(EXAMPLE));
        }
        Ok(Self {
            runs,
            seed,
            space: found,
        })
    }

    /// The number of configurations to draw.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Draws distinct configurations. Fewer runs give a prefix of the configurations of more runs.
    ///
    /// # Errors
    /// Returns an error if the space has too few distinct configurations.
    pub fn draw(&self) -> Result<Vec<Settings>, CliError> {
        /// Draws per requested configuration before the space counts as exhausted.
        const TRIES: usize = 100;
        let mut drawn: Vec<Settings> = Vec::new();
        for number in 0..TRIES * self.runs {
            let one = self.configuration(number as u64);
            if !drawn.contains(&one) {
                drawn.push(one);
            }
            if drawn.len() == self.runs {
                return Ok(drawn);
            }
        }
        let (runs, found) = (self.runs, drawn.len());
        Err(CliError::usage(format!(
            "random.runs = {runs}: its space has only {found} configurations that differ"
        ))
        .hint("lower random.runs, or use [grid], which uses each combination once"))
    }

    fn configuration(&self, number: u64) -> Settings {
        let draw = |(key, distribution): &(String, Distribution)| {
            let mixed = split_mix(split_mix(self.seed ^ hash(key)) ^ number);
            // The upper 53 bits as a number in [0, 1).
            let share = (mixed >> 11) as f64 / (1u64 << 53) as f64;
            (key.clone(), distribution.at(share))
        };
        self.space.iter().map(draw).collect()
    }
}

const EXAMPLE: &str =
    r#"for example: "train.schedule.learning_rate" = { log_uniform = [1e-4, 1e-2] }"#;

impl Distribution {
    fn check(&self, key: &str) -> Result<(), CliError> {
        let rule = match self {
            Self::Uniform([low, high]) if low < high && high - low < f64::INFINITY => return Ok(()),
            Self::LogUniform([low, high]) if 0.0 < *low && low < high && *high < f64::INFINITY => {
                return Ok(());
            }
            Self::Integer([low, high]) if low < high => return Ok(()),
            Self::Choice(values) if !values.is_empty() => return Ok(()),
            Self::LogUniform(_) => "its ends must be above 0, the first below the second",
            Self::Uniform(_) | Self::Integer(_) => "its first end must be below its second",
            Self::Choice(_) => "it has no values",
        };
        Err(CliError::usage(format!("random.space: {key}: {rule}")).hint(EXAMPLE))
    }

    /// The quantile function: the value at `share` in [0, 1).
    fn at(&self, share: f64) -> Value {
        match self {
            Self::Uniform([low, high]) => number(low + share * (high - low), *low, *high),
            Self::LogUniform([low, high]) => {
                let log = low.ln() + share * (high.ln() - low.ln());
                number(log.exp(), *low, *high)
            }
            Self::Integer([low, high]) => {
                let count = high.abs_diff(*low).saturating_add(1);
                let above = (share * count as f64) as u64;
                Value::Integer(low.saturating_add_unsigned(above.min(high.abs_diff(*low))))
            }
            Self::Choice(values) => {
                let at = (share * values.len() as f64) as usize;
                values
                    .get(at)
                    .cloned()
                    .unwrap_or_else(|| Value::String(String::new()))
            }
        }
    }
}

/// Rounds to four significant digits, so that a run's name shows the exact value.
fn number(value: f64, low: f64, high: f64) -> Value {
    let rounded = format!("{value:.3e}").parse().unwrap_or(value);
    Value::Float(rounded.clamp(low, high))
}

/// Collects the keys of a space and their distributions, written as `"train.ema" = {…}` or as `train.ema =
/// {…}`, which TOML parses as a nested table.
fn distributions(
    within: &str,
    table: Table,
    found: &mut Vec<(String, Distribution)>,
) -> Result<(), CliError> {
    const NAMES: [&str; 4] = ["uniform", "log_uniform", "integer", "choice"];
    for (key, value) in table {
        let key = match within {
            "" => key,
            within => format!("{within}.{key}"),
        };
        match value {
            Value::Table(inner) if inner.keys().all(|name| NAMES.contains(&name.as_str())) => {
                let distribution: Distribution =
                    Value::Table(inner).try_into().map_err(|error| {
                        let error: toml::de::Error = error;
                        let reason = error.message().to_owned();
                        CliError::usage(format!("random.space: {key}: {reason}")).hint(EXAMPLE)
                    })?;
                distribution.check(&key)?;
                found.push((key, distribution));
            }
            Value::Table(inner) => distributions(&key, inner, found)?,
            other => {
                return Err(CliError::usage(format!(
                    "random.space: {key} = {other}: must be a table with one of {}",
                    NAMES.join(", ")
                ))
                .hint(EXAMPLE));
            }
        }
    }
    Ok(())
}

/// 64-bit FNV-1a, which is stable across versions.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(text: &str) -> Result<RandomSearch, CliError> {
        RandomSearch::new(toml::from_str(text).expect("a table"))
    }

    const SPACE: &str = "[space]\n\"a.rate\" = { log_uniform = [1e-4, 1e-2] }\n\
        a.width = { integer = [3, 5] }\na.kind = { choice = [\"x\", \"y\"] }\na.share = { uniform = [-1.0, 1.0] }\n";

    fn drawn(head: &str) -> Vec<Settings> {
        search(&format!("{head}{SPACE}"))
            .and_then(|search| search.draw())
            .expect("configurations")
    }

    #[test]
    fn draws_depend_only_on_the_seed_and_extend_shorter_searches() {
        let few = drawn("runs = 5\nseed = 7\n");
        assert_eq!(drawn("runs = 50\nseed = 7\n")[..5], few);
        assert_ne!(drawn("runs = 5\nseed = 8\n"), few);
    }

    #[test]
    fn draws_follow_their_distributions() {
        let all = drawn("runs = 400\n");
        let of = |key: &str| -> Vec<Value> {
            let one = |run: &Settings| run.iter().find(|(of, _)| of == key).expect("it").1.clone();
            all.iter().map(one).collect()
        };
        let float = |value: Value| value.as_float().expect("a number");
        let rates: Vec<f64> = of("a.rate").into_iter().map(float).collect();
        assert!(rates.iter().all(|rate| (1e-4..=1e-2).contains(rate)));
        // Half of the values are below the geometric mean of the limits.
        let below = rates.iter().filter(|rate| **rate < 1e-3).count();
        assert!((160..240).contains(&below), "{below}");
        let shares: Vec<f64> = of("a.share").into_iter().map(float).collect();
        let below = shares.iter().filter(|share| **share < 0.0).count();
        assert!((160..240).contains(&below), "{below}");
        for width in [3, 4, 5] {
            let count = of("a.width")
                .into_iter()
                .filter(|w| *w == Value::Integer(width));
            let count = count.count();
            assert!((90..180).contains(&count), "{width}: {count}");
        }
        let x = of("a.kind")
            .into_iter()
            .filter(|kind| kind.as_str() == Some("x"));
        assert!((160..240).contains(&x.count()));
    }

    #[test]
    fn invalid_searches_are_rejected() {
        let refused = |text: &str| {
            let found = search(text).and_then(|search| search.draw());
            format!("{:?}", found.expect_err("no search"))
        };
        assert!(refused("runs = 0\n[space]\n").contains("random.runs must be at least 1"));
        assert!(refused("runs = 3\n[space]\n").contains("no setting"));
        assert!(refused("runs = 3\n[space]\na = 1\n").contains("a = 1: must be a table"));
        assert!(refused("runs = 3\n[space]\na = { log_uniform = [0.0, 1.0] }").contains("above 0"));
        assert!(
            refused("runs = 3\n[space]\na = { uniform = [2.0, 1.0] }").contains("below its second")
        );
        assert!(
            refused("runs = 3\n[space]\na = { choice = [1, 2] }").contains("only 2 configurations")
        );
    }
}
