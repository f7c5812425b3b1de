//! Parses sweep files.

use std::path::{Path, PathBuf};

use emberlm_system::read::read_argument;
use emberlm_trainer::run_config::toml_reason;
use serde::Deserialize;
use toml::{Table, Value};

use super::random::{RandomSearch, RandomTable};
use super::stopping::StopRule;
use crate::error::CliError;

/// Settings as pairs of key, such as `train.steps`, and value.
pub type Settings = Vec<(String, Value)>;

/// A parsed sweep file.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepFile {
    /// The preset of all runs.
    pub preset: Option<String>,
    /// The model whose weights all runs start from, in place of a preset.
    pub from: Option<PathBuf>,
    /// A configuration file applied over the preset.
    pub config: Option<PathBuf>,
    /// The dataset. `None` selects the built-in tales.
    pub data: Option<PathBuf>,
    /// Settings shared by all runs.
    pub common: Settings,
    /// Settings of each run: every combination of the grid for each listed or drawn configuration.
    pub runs: Vec<Settings>,
    /// The seed of the random search.
    pub random_seed: Option<u64>,
    /// The early-stopping rule.
    pub early_stopping: Option<StopRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepToml {
    preset: Option<String>,
    from: Option<PathBuf>,
    config: Option<PathBuf>,
    data: Option<PathBuf>,
    #[serde(default)]
    set: Table,
    #[serde(default)]
    grid: Table,
    #[serde(default)]
    list: Vec<Table>,
    random: Option<RandomTable>,
    early_stopping: Option<StopRule>,
}

impl SweepFile {
    /// Reads a sweep file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or defines nothing that can be run.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let text = read_argument(path).map_err(CliError::io("read", path))?;
        Self::parse(&text).map_err(|error| error.within(&path.display().to_string()))
    }

    fn parse(text: &str) -> Result<Self, CliError> {
        let written: SweepToml = toml::from_str(text).map_err(|error| {
            CliError::usage(toml_reason(&error, text))
                .hint("a sweep file has preset or from, config, data, [set], [grid], [[list]], [random] and [early_stopping]")
        })?;
        let mut grid = Vec::new();
        arrays("", written.grid, &mut grid)?;
        let random = written.random.map(RandomSearch::new).transpose()?;
        if let Some(rule) = written.early_stopping {
            rule.check()?;
        }
        if grid.is_empty() && written.list.is_empty() && random.is_none() {
            return Err(CliError::usage("it varies nothing")
                .hint("add a table [grid] such as: \"train.seed\" = [1, 2, 3]"));
        }
        check_count(written.list.len(), random.as_ref(), &grid)?;
        let mut runs: Vec<Settings> = written.list.into_iter().map(settings).collect();
        if runs.is_empty() {
            runs.push(Settings::new());
        }
        if let Some(random) = &random {
            let drawn = random.draw()?;
            let with = |run: &Settings| -> Vec<Settings> {
                let joined = drawn.iter().map(|own| [run.clone(), own.clone()].concat());
                joined.collect()
            };
            runs = runs.iter().flat_map(with).collect();
        }
        for (key, values) in grid {
            let with = |run: &Settings| {
                let with = |value: &Value| {
                    let mut run = run.clone();
                    run.push((key.clone(), value.clone()));
                    run
                };
                values.iter().map(with).collect::<Vec<_>>()
            };
            runs = runs.iter().flat_map(with).collect();
        }
        Ok(Self {
            preset: written.preset,
            from: written.from,
            config: written.config,
            data: written.data,
            common: settings(written.set),
            runs,
            random_seed: random.map(|random| random.seed),
            early_stopping: written.early_stopping,
        })
    }
}

/// Checks that a sweep is not too large to plan.
fn check_count(
    list: usize,
    random: Option<&RandomSearch>,
    grid: &[(String, Vec<Value>)],
) -> Result<(), CliError> {
    const LARGEST: usize = 10_000;
    let lengths = grid.iter().map(|(_, values)| values.len());
    let factors = lengths.chain(random.map(RandomSearch::runs));
    let count = factors.fold(list.max(1), usize::saturating_mul);
    if count <= LARGEST {
        return Ok(());
    }
    let got = match count {
        usize::MAX => "more than 2^64".to_owned(),
        count => count.to_string(),
    };
    Err(CliError::usage(format!(
        "it must have at most {LARGEST} runs (got {got}, the product of its lists)"
    ))
    .hint("draw some of the combinations: [random] with runs = 100 and a table [random.space]"))
}

/// Collects the settings of a table, written as `"train.steps" = 1` or as `train.steps = 1`, which TOML
/// parses as a nested table.
fn settings(table: Table) -> Settings {
    let mut settings = Settings::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) if !key.contains('.') => {
                let inner = inner.into_iter();
                settings.extend(inner.map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            value => settings.push((key, value)),
        }
    }
    settings
}

/// Collects the keys of a grid and their values.
fn arrays(
    within: &str,
    table: Table,
    found: &mut Vec<(String, Vec<Value>)>,
) -> Result<(), CliError> {
    for (key, value) in table {
        let key = match within {
            "" => key,
            within => format!("{within}.{key}"),
        };
        match value {
            Value::Array(values) if values.is_empty() => {
                return Err(CliError::usage(format!("grid: {key} has no values")));
            }
            Value::Array(values) => found.push((key, values)),
            Value::Table(inner) if !inner.is_empty() => arrays(&key, inner, found)?,
            other => {
                return Err(CliError::usage(format!(
                    "grid: {key} = {other}: must be a list of values"
                ))
                .hint("put settings that are the same for all runs into [set]"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> SweepFile {
        SweepFile::parse(text).expect("a sweep")
    }

    fn refused(text: &str) -> String {
        format!("{:?}", SweepFile::parse(text).expect_err("no sweep"))
    }

    fn shown(runs: &[Settings]) -> Vec<String> {
        let one = |run: &Settings| {
            let parts = run.iter().map(|(key, value)| format!("{key}={value}"));
            parts.collect::<Vec<_>>().join(" ")
        };
        runs.iter().map(one).collect()
    }

    #[test]
    fn a_grid_expands_to_every_combination() {
        let file = parsed(
            "[grid]\n\"train.seed\" = [1, 2]\ntrain.schedule.learning_rate = [1e-3, 3e-3]\n",
        );
        assert_eq!(
            shown(&file.runs),
            [
                "train.schedule.learning_rate=0.001 train.seed=1",
                "train.schedule.learning_rate=0.001 train.seed=2",
                "train.schedule.learning_rate=0.003 train.seed=1",
                "train.schedule.learning_rate=0.003 train.seed=2",
            ]
        );
    }

    #[test]
    fn a_list_is_combined_with_the_grid() {
        let file = parsed(
            "[set]\ntrain.steps = 5\n\"model.norm\" = { kind = \"rms\", epsilon = 1e-5 }\n\
             [grid]\ntrain.seed = [1, 2]\n[[list]]\n\"model.d_model\" = 8\n[[list]]\nmodel.n_layers = 2\n",
        );
        assert_eq!(
            shown(&file.runs),
            [
                "model.d_model=8 train.seed=1",
                "model.d_model=8 train.seed=2",
                "model.n_layers=2 train.seed=1",
                "model.n_layers=2 train.seed=2",
            ]
        );
        assert_eq!(file.common.len(), 2);
        assert!(
            file.common
                .contains(&("train.steps".into(), Value::Integer(5)))
        );
    }

    #[test]
    fn drawn_configurations_are_combined_with_the_grid() {
        let file = parsed(
            "[random]\nruns = 3\nseed = 9\n[random.space]\na.b = { integer = [1, 100] }\n\
             [grid]\ntrain.seed = [1, 2]\n[early_stopping]\nrule = \"median\"\n",
        );
        assert_eq!((file.runs.len(), file.random_seed), (6, Some(9)));
        assert_eq!(file.runs[0][0], file.runs[1][0]);
        assert_ne!(file.runs[0][0], file.runs[2][0]);
        let rule = StopRule::Median { after: 2, runs: 2 };
        assert_eq!(file.early_stopping, Some(rule));
    }

    #[test]
    fn invalid_sweep_files_are_rejected() {
        let rule = |text: &str| refused(&format!("[grid]\na = [1]\n[early_stopping]\n{text}"));
        assert!(rule("rule = \"halving\"\nfirst = 0").contains("first must be at least 1"));
        assert!(rule("rule = \"mean\"").contains("median"));
        assert!(refused("preset = \"x\"").contains("varies nothing"));
        assert!(refused("[grid]\n\"train.seed\" = []").contains("train.seed has no values"));
        assert!(refused("[grid]\ntrain.seed = 3").contains("train.seed = 3: must be a list"));
        assert!(refused("gird = 3").contains("unknown field `gird`"));
        let numbers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        let list = numbers.join(",");
        let huge: String = (0..9).map(|key| format!("k{key} = [{list}]\n")).collect();
        assert!(refused(&format!("[grid]\n{huge}")).contains("10000 runs (got more than 2^64"));
        let search =
            "[random]\nruns = 1000000000000\n[random.space]\na = { uniform = [0.0, 1.0] }\n";
        assert!(refused(search).contains("10000 runs (got 1000000000000"));
        assert!(refused("[grid").contains("line 1, column 6: unclosed table"));
    }
}
