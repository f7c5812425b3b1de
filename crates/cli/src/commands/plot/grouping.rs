//! `--group-by`: groups runs by a setting, or by all settings except the seed.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use emberlm_system::nearest::nearest;
use toml::Value;

use crate::error::CliError;
use crate::plot::{Group, NamedRun};
use crate::run_settings::{self, RunSettings, SEED, shown};

/// The value of `--group-by` for runs that differ only in the seed.
pub const CONFIGURATION: &str = "configuration";

/// The name of a setting that a run does not have.
const UNSET: &str = "unset";

/// The settings of some runs.
#[derive(Debug)]
pub struct Settings(Vec<RunSettings>);

impl Settings {
    /// Reads the settings of each run.
    ///
    /// # Errors
    /// Returns an error if the configuration of a run cannot be read.
    pub fn read(runs: &[NamedRun]) -> Result<Self, CliError> {
        let read = runs.iter().map(|run| run_settings::read(&run.folder));
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// The full name of a setting, of which `name` may be the end: `learning_rate` of `train.schedule.learning_rate`.
    ///
    /// # Errors
    /// Returns an error if no run has such a setting, or several match.
    pub fn find(&self, name: &str) -> Result<String, CliError> {
        let keys: BTreeSet<&String> = self.0.iter().flat_map(RunSettings::keys).collect();
        if keys.contains(&name.to_owned()) {
            return Ok(name.to_owned());
        }
        let end = format!(".{name}");
        let ending: Vec<&str> = keys
            .iter()
            .filter(|key| key.ends_with(&end))
            .map(|key| key.as_str())
            .collect();
        match ending[..] {
            [key] => Ok(key.to_owned()),
            [] => {
                let close = nearest(name, keys.iter().map(|key| key.as_str()));
                let error = CliError::usage(format!("the runs have no setting `{name}`"));
                Err(error.did_you_mean(close))
            }
            _ => Err(CliError::usage(format!("several settings end in `{name}`"))
                .hint(format!("choose one of {}", ending.join(", ")))),
        }
    }

    /// The value of a setting of run `number`.
    pub fn value(&self, number: usize, key: &str) -> Option<&Value> {
        self.0.get(number)?.get(key)
    }

    /// The settings except the seed in which the runs differ.
    pub fn differing(&self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.iter().flat_map(RunSettings::keys).collect();
        let differs = |key: &&String| {
            let mut values = self.0.iter().map(|settings| settings.get(*key));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let keys = keys.into_iter().filter(|key| *key != SEED);
        keys.filter(differs).cloned().collect()
    }
}

/// Groups runs that have equal values of the setting `by`, or of all settings except the seed for [`CONFIGURATION`].
/// Groups are sorted by these values. Also returns the full name of the setting.
///
/// # Errors
/// Returns an error if a configuration cannot be read or no run has the setting.
pub fn grouped(runs: Vec<NamedRun>, by: &str) -> Result<(String, Vec<Group>), CliError> {
    let settings = Settings::read(&runs)?;
    let keys = match by {
        CONFIGURATION => settings.differing(),
        key => vec![settings.find(key).map_err(|error| {
            error.hint(format!(
                "`--group-by {CONFIGURATION}` groups the runs that differ only in {SEED}"
            ))
        })?],
    };
    let mut groups: Vec<(Vec<Option<Value>>, Group)> = Vec::new();
    for (number, run) in runs.into_iter().enumerate() {
        let values: Vec<_> = keys
            .iter()
            .map(|key| settings.value(number, key).cloned())
            .collect();
        match groups.iter_mut().find(|(known, _)| *known == values) {
            Some((_, group)) => group.runs.push(run),
            None => {
                let name = match by {
                    CONFIGURATION => configuration(&keys, &values),
                    _ => values.iter().map(text).collect(),
                };
                groups.push((
                    values,
                    Group {
                        name,
                        runs: vec![run],
                        is_mean: true,
                    },
                ));
            }
        }
    }
    groups.sort_by(|(a, _), (b, _)| {
        let pairs = a
            .iter()
            .zip(b)
            .map(|(a, b)| compare(a.as_ref(), b.as_ref()));
        pairs.fold(Ordering::Equal, Ordering::then)
    });
    let name = match (by, &keys[..]) {
        (CONFIGURATION, _) | (_, []) => CONFIGURATION,
        (_, [key, ..]) => key,
    };
    let groups = groups.into_iter().map(|(_, group)| group);
    Ok((name.to_owned(), groups.collect()))
}

/// The name of a configuration: the settings in which it may differ from the others.
fn configuration(keys: &[String], values: &[Option<Value>]) -> String {
    let part = |(key, value): (&String, &Option<Value>)| {
        let key = key.strip_prefix("train.").unwrap_or(key);
        format!("{key}={}", text(value))
    };
    match keys.is_empty() {
        true => "all".to_owned(),
        false => keys
            .iter()
            .zip(values)
            .map(part)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn text(value: &Option<Value>) -> String {
    value.as_ref().map_or_else(|| UNSET.to_owned(), shown)
}

/// Orders values: numbers by size before other values by their text, and missing values last.
pub fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => shown(a).cmp(&shown(b)),
        },
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The value as a number, if it is one.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, Value)]) -> RunSettings {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect()
    }

    #[test]
    fn a_setting_is_found_by_its_end() {
        let all = Settings(vec![settings(&[
            ("train.schedule.learning_rate", Value::Float(1e-3)),
            ("train.optimizer.kind", Value::String("adamw".into())),
            ("train.schedule.kind", Value::String("cosine".into())),
        ])]);
        let full = "train.schedule.learning_rate";
        for name in [full, "learning_rate", "schedule.learning_rate"] {
            assert_eq!(all.find(name).expect("a setting"), full);
        }
        assert!(all.find("rate").is_err());
        assert!(all.find("kind").is_err());
    }

    #[test]
    fn the_seed_makes_no_difference() {
        let of = |rate: f64, seed| {
            settings(&[("rate", Value::Float(rate)), (SEED, Value::Integer(seed))])
        };
        let seeds = Settings(vec![of(0.1, 1), of(0.1, 2)]);
        assert!(seeds.differing().is_empty());
        let rates = Settings(vec![of(0.1, 1), of(0.1, 2), of(0.2, 1)]);
        assert_eq!(rates.differing(), ["rate"]);
        let unset = Settings(vec![of(0.1, 1), settings(&[])]);
        assert_eq!(unset.differing(), ["rate"]);
    }

    #[test]
    fn values_are_sorted_as_numbers() {
        let mut values = [
            None,
            Some(Value::String("b".into())),
            Some(Value::Integer(10)),
            Some(Value::Float(2.5)),
            Some(Value::String("a".into())),
        ];
        values.sort_by(|a, b| compare(a.as_ref(), b.as_ref()));
        assert_eq!(
            values.each_ref().map(text),
            ["2.5", "10", "a", "b", "unset"]
        );
    }
}
