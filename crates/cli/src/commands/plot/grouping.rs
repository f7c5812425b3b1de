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

/// Reads the settings of each run.
///
/// # Errors
/// Returns an error if the configuration of a run cannot be read.
pub fn read_settings(runs: &mut [NamedRun]) -> Result<(), CliError> {
    for run in runs {
        run.settings = run_settings::read(&run.folder)?;
    }
    Ok(())
}

/// The full name of a setting, of which `name` may be the end: `learning_rate` of `train.schedule.learning_rate`.
///
/// # Errors
/// Returns an error if no run has such a setting, or several match.
pub fn find_setting<'a>(
    runs: impl IntoIterator<Item = &'a NamedRun>,
    name: &str,
) -> Result<String, CliError> {
    let keys = runs.into_iter().flat_map(|run| run.settings.keys());
    let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
    if keys.contains(name) {
        return Ok(name.to_owned());
    }
    let end = format!(".{name}");
    let ending: Vec<&str> = keys
        .iter()
        .copied()
        .filter(|key| key.ends_with(&end))
        .collect();
    match ending[..] {
        [key] => Ok(key.to_owned()),
        [] => {
            let close = nearest(name, keys.iter().copied());
            let error = CliError::usage(format!("the runs have no setting `{name}`"));
            Err(error.did_you_mean(close))
        }
        _ => Err(CliError::usage(format!("several settings end in `{name}`"))
            .hint(format!("choose one of {}", ending.join(", ")))),
    }
}

/// The settings except the seed in which the runs differ.
fn differing(runs: &[NamedRun]) -> Vec<String> {
    let mut keys = run_settings::differing(runs.iter().map(|run| &run.settings));
    keys.retain(|key| key != SEED);
    keys
}

/// True if two runs have the same settings except the seed.
pub fn differs_only_in_seed(a: &NamedRun, b: &NamedRun) -> bool {
    let others = |run: &NamedRun| -> RunSettings {
        let settings = run.settings.iter().filter(|(key, _)| *key != SEED);
        settings
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    others(a) == others(b)
}

/// Groups runs that have equal values of the setting `by`, or of all settings except the seed for [`CONFIGURATION`].
/// Groups are sorted by these values. Also returns the full name of the setting.
///
/// # Errors
/// Returns an error if no run has the setting.
pub fn grouped(runs: Vec<NamedRun>, by: &str) -> Result<(String, Vec<Group>), CliError> {
    let keys = match by {
        CONFIGURATION => differing(&runs),
        key => vec![find_setting(&runs, key).map_err(|error| {
            error.hint(format!(
                "`--group-by {CONFIGURATION}` groups the runs that differ only in {SEED}"
            ))
        })?],
    };
    let mut groups: Vec<(Vec<Option<Value>>, Group)> = Vec::new();
    for run in runs {
        let values: Vec<_> = keys
            .iter()
            .map(|key| run.settings.get(key).cloned())
            .collect();
        match groups.iter_mut().find(|(known, _)| *known == values) {
            Some((_, group)) => group.runs.push(run),
            None => {
                let name = match by {
                    CONFIGURATION => configuration(&keys, &values),
                    _ => values
                        .iter()
                        .map(|value| value_text(value.as_ref()))
                        .collect(),
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
        format!("{key}={}", value_text(value.as_ref()))
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

/// A value as text.
pub fn value_text(value: Option<&Value>) -> String {
    value.map_or_else(|| UNSET.to_owned(), shown)
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
    use crate::run_history::History;

    fn run(pairs: &[(&str, Value)]) -> NamedRun {
        let pairs = pairs.iter();
        let settings = pairs.map(|(key, value)| ((*key).to_owned(), value.clone()));
        NamedRun {
            settings: settings.collect(),
            ..NamedRun::new("run".into(), "run".into(), History::default())
        }
    }

    #[test]
    fn a_setting_is_found_by_its_end() {
        let all = [run(&[
            ("train.schedule.learning_rate", Value::Float(1e-3)),
            ("train.optimizer.kind", Value::String("adamw".into())),
            ("train.schedule.kind", Value::String("cosine".into())),
        ])];
        let full = "train.schedule.learning_rate";
        for name in [full, "learning_rate", "schedule.learning_rate"] {
            assert_eq!(find_setting(&all, name).expect("a setting"), full);
        }
        assert!(find_setting(&all, "rate").is_err());
        assert!(find_setting(&all, "kind").is_err());
    }

    #[test]
    fn the_seed_makes_no_difference() {
        let of =
            |rate: f64, seed| run(&[("rate", Value::Float(rate)), (SEED, Value::Integer(seed))]);
        assert!(differing(&[of(0.1, 1), of(0.1, 2)]).is_empty());
        assert!(differs_only_in_seed(&of(0.1, 1), &of(0.1, 2)));
        assert_eq!(differing(&[of(0.1, 1), of(0.1, 2), of(0.2, 1)]), ["rate"]);
        assert!(!differs_only_in_seed(&of(0.1, 1), &of(0.2, 1)));
        assert_eq!(differing(&[of(0.1, 1), run(&[])]), ["rate"]);
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
        let texts = values.each_ref().map(|value| value_text(value.as_ref()));
        assert_eq!(texts, ["2.5", "10", "a", "b", "unset"]);
    }
}
