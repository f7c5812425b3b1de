//! Parses the values of `--data`: a dataset, or several with weights.

use std::path::{Path, PathBuf};

use emberlm_trainer::{DataConfig, MixedDataset};

use crate::error::CliError;

/// Parses a dataset or a mix of several, each given as `DATASET` or `DATASET=WEIGHT`. An argument that exists
/// as a path is never split.
pub fn config(arguments: &[PathBuf]) -> Result<DataConfig, CliError> {
    let named: Result<Vec<_>, _> = arguments.iter().map(|path| parse(path)).collect();
    let named = named?;
    if let [(dataset, None)] = &named[..] {
        return Ok(DataConfig::of(dataset));
    }
    let weighted = named.iter().filter(|(_, weight)| weight.is_some()).count();
    if weighted != 0 && weighted != named.len() {
        return Err(
            CliError::usage("--data: some datasets have a weight and some have none").hint(
                "set the weight of each, such as --data a=0.7 b=0.3, or of none for equal weights",
            ),
        );
    }
    let mixed = named.into_iter().map(|(dataset, weight)| MixedDataset {
        dataset,
        weight: weight.unwrap_or(1.0),
    });
    Ok(DataConfig {
        mix: mixed.collect(),
        ..DataConfig::default()
    })
}

/// Parses a dataset's path and optional weight.
fn parse(argument: &Path) -> Result<(PathBuf, Option<f64>), CliError> {
    let whole = || Ok((argument.to_owned(), None));
    let Some((path, weight)) = argument.to_str().and_then(|text| text.rsplit_once('=')) else {
        return whole();
    };
    if argument.exists() {
        return whole();
    }
    let allowed = |weight: &f64| weight.is_finite() && *weight > 0.0;
    match weight.parse().ok().filter(allowed) {
        Some(weight) => Ok((path.into(), Some(weight))),
        None => Err(CliError::usage(format!(
            "--data {}: there is no such dataset, and `{weight}` is not a weight: must be above 0 and finite",
            argument.display()
        ))
        .hint("write --data DATASET=WEIGHT, such as --data a=0.7 b=0.3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(arguments: &[&str]) -> Result<Vec<(String, f64)>, String> {
        let arguments: Vec<PathBuf> = arguments.iter().map(PathBuf::from).collect();
        let config = config(&arguments).map_err(|error| format!("{error:?}"))?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if config.mix.is_empty() {
            return Ok(vec![(text(&config.dataset), 0.0)]);
        }
        let mixed = config.mix.iter();
        Ok(mixed.map(|of| (text(&of.dataset), of.weight)).collect())
    }

    #[test]
    fn datasets_may_have_weights() {
        let of = |name: &str, weight| (name.to_owned(), weight);
        assert_eq!(mix(&["a"]).unwrap(), [of("a", 0.0)]);
        assert_eq!(mix(&["a", "b"]).unwrap(), [of("a", 1.0), of("b", 1.0)]);
        let weighted = mix(&["a=0.7", "x=y=3e-1"]).unwrap();
        assert_eq!(weighted, [of("a", 0.7), of("x=y", 0.3)]);
        assert_eq!(mix(&["a=2"]).unwrap(), [of("a", 2.0)]);
        assert!(mix(&["a=1", "b"]).unwrap_err().contains("some have none"));
    }

    #[test]
    fn an_existing_path_with_an_equals_sign_is_not_split() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lr=0.5");
        std::fs::create_dir(&path).expect("a folder");
        let path = path.to_str().expect("UTF-8");
        assert_eq!(mix(&[path]).unwrap(), [(path.to_owned(), 0.0)]);
        let found = mix(&[&format!("{path}=2"), "b=1"]).unwrap();
        assert_eq!(found[0], (path.to_owned(), 2.0));
    }

    #[test]
    fn invalid_weights_are_rejected() {
        for weight in ["0", "-1", "nan", "inf", "x", ""] {
            let error = mix(&[&format!("a={weight}"), "b=1"]).unwrap_err();
            let expected = format!("`{weight}` is not a weight: must be above 0 and finite");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
