//! The models that `serve` loads, from the command line and the `--config` file.

use std::collections::HashSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use emberlm_kernels::Precision;
use emberlm_model::WeightFormat;
use emberlm_serve::{Drafting, ModelEntry, ServeOptions};

use super::ServeArgs;
use super::file;
use super::prompt_cache::CacheFolder;
use crate::error::CliError;
use crate::hub;
use crate::run_folders;

/// A model to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    pub path: PathBuf,
    /// The path as it was written: a name on the Hub, or the same as `path`.
    pub written: PathBuf,
    /// True to serve the newest checkpoint of a run.
    pub follows: bool,
    /// The format of the weights. `None` keeps the stored format.
    pub weights: Option<WeightFormat>,
    /// The precision of products in floating-point numbers.
    pub precision: Precision,
    /// The model that drafts tokens.
    pub draft: Option<PathBuf>,
    pub options: ServeOptions,
    /// The folder that its prompt cache is saved in.
    pub prompt_cache: Option<CacheFolder>,
}

/// Collects the models of `--follow`, MODEL and `--config`, in this order, with their names, aliases and
/// settings.
///
/// # Errors
/// Returns an error if the file cannot be read, an alias names no model, or two models share a name.
pub fn specs(args: &ServeArgs) -> Result<Vec<ModelSpec>, CliError> {
    let arguments = [(&args.follow, true), (&args.models, false)];
    let mut entries: Vec<ModelEntry> = arguments
        .into_iter()
        .flat_map(|(paths, follow)| paths.iter().map(move |path| argument(path, follow)))
        .collect();
    if let Some(path) = &args.config {
        entries.extend(file::read(path)?);
    }
    if entries.is_empty() && args.admin_key_file.is_none() {
        return Err(CliError::usage("there is no model to serve")
            .hint("pass a MODEL, or a [[model]] table in the file of --config"));
    }
    let written = localize_and_name(&mut entries, args)?;
    for alias in &args.alias {
        add_alias(&mut entries, alias)?;
    }
    check_names(&entries)?;
    let entries = entries.into_iter().zip(written);
    let specs = entries.map(|(entry, written)| spec(entry, written, args));
    Ok(specs.collect())
}

/// The model of an entry that arrives while the server runs, with a name.
///
/// # Errors
/// The model is on the Hub and cannot be downloaded.
pub fn added(entry: ModelEntry, args: &ServeArgs) -> Result<ModelSpec, CliError> {
    let written = entry.path.clone();
    let mut entries = [entry];
    localize_and_name(&mut entries, args)?;
    let [entry] = entries;
    Ok(spec(entry, written, args))
}

/// Replaces names on the Hub by paths and names the models without a name. Returns the paths as they were written.
fn localize_and_name(
    entries: &mut [ModelEntry],
    args: &ServeArgs,
) -> Result<Vec<PathBuf>, CliError> {
    let written = entries.iter().map(|entry| entry.path.clone()).collect();
    for entry in &mut *entries {
        localize(entry)?;
        entry.draft = entry.draft.take().or_else(|| args.draft.clone());
        if let Some(draft) = &mut entry.draft {
            hub::localize(draft)?;
        }
    }
    name(entries);
    Ok(written)
}

/// Parses a MODEL or RUN argument: `NAME=PATH` or a path. An existing path is never split.
fn argument(argument: &Path, follow: bool) -> ModelEntry {
    let split = argument.to_str().and_then(|text| text.split_once('='));
    let named = split.filter(|(name, path)| {
        !name.is_empty() && !path.is_empty() && !name.contains(['/', '\\']) && !argument.exists()
    });
    let (name, path) = match named {
        Some((name, path)) => (Some(name.to_owned()), PathBuf::from(path)),
        None => (None, argument.to_owned()),
    };
    ModelEntry {
        path,
        name,
        follow,
        ..ModelEntry::default()
    }
}

/// Replaces a name on the Hub by the path of its files. The model is then named after its repository or GGUF file.
fn localize(entry: &mut ModelEntry) -> Result<(), CliError> {
    let Some(name) = hub::name(&entry.path)? else {
        return Ok(());
    };
    entry.path = hub::open(&name)?;
    let file = name.file().map(Path::new).and_then(Path::file_stem);
    let short = file.map_or_else(|| name.short().into(), |stem| stem.to_string_lossy());
    entry.name.get_or_insert_with(|| short.into_owned());
    Ok(())
}

/// Names the models without a name after their directories.
fn name(entries: &mut [ModelEntry]) {
    let unnamed = |entry: &&mut ModelEntry| entry.name.is_none();
    let unnamed: Vec<&mut ModelEntry> = entries.iter_mut().filter(unnamed).collect();
    let paths: Vec<PathBuf> = unnamed.iter().map(|entry| entry.path.clone()).collect();
    for (entry, name) in unnamed.into_iter().zip(run_folders::names(&paths)) {
        entry.name = Some(name);
    }
}

/// Adds an alias: `ALIAS=NAME`, or `ALIAS` for the only model.
fn add_alias(entries: &mut [ModelEntry], alias: &str) -> Result<(), CliError> {
    let (alias, of) = match alias.split_once('=') {
        Some((alias, of)) => (alias, Some(of)),
        None => (alias, None),
    };
    let names: Vec<&str> = entries.iter().filter_map(|e| e.name.as_deref()).collect();
    let known = names.join(", ");
    let found = match of {
        Some(of) => names.iter().position(|&name| name == of),
        None => (names.len() == 1).then_some(0),
    };
    match (found, of) {
        (Some(at), _) => {
            entries[at].aliases.push(alias.to_owned());
            Ok(())
        }
        (None, Some(of)) => Err(CliError::usage(format!(
            "--alias {alias}={of}: no model is named `{of}`; the models are {known}"
        ))),
        (None, None) => Err(CliError::usage(format!(
            "--alias {alias}: several models are served ({known})"
        ))
        .hint(format!("select a model: --alias {alias}=NAME"))),
    }
}

/// Rejects empty and duplicate names.
fn check_names(entries: &[ModelEntry]) -> Result<(), CliError> {
    let mut seen = HashSet::new();
    let names = entries
        .iter()
        .flat_map(|entry| entry.name.iter().chain(&entry.aliases));
    for name in names {
        if name.is_empty() {
            return Err(CliError::usage("a model's name or alias is empty"));
        }
        if !seen.insert(name) {
            return Err(
                CliError::usage(format!("two models have the name or alias `{name}`"))
                    .hint("give one of them another name with NAME=PATH"),
            );
        }
    }
    Ok(())
}

/// Fills a model's missing settings from the command line.
fn spec(entry: ModelEntry, written: PathBuf, args: &ServeArgs) -> ModelSpec {
    ModelSpec {
        path: entry.path,
        written,
        follows: entry.follow,
        weights: entry.weights.or(args.weights),
        precision: entry.precision.unwrap_or(args.precision),
        draft: entry.draft,
        options: ServeOptions {
            name: entry.name.unwrap_or_default(),
            aliases: entry.aliases,
            slots: entry.slots.map(NonZero::get).or(args.slots),
            context: entry.context.map(NonZero::get).or(args.context),
            cache: entry.cache.unwrap_or(args.cache),
            queue: entry.max_queue.unwrap_or(args.max_queue),
            chat_template: entry.chat_template.or_else(|| args.chat_template.clone()),
            sampling: entry.sampling,
            deterministic: entry.deterministic.unwrap_or(args.deterministic),
            drafting: match entry.draft_tokens.unwrap_or(args.draft_tokens) {
                0 => Drafting::Never,
                tokens => Drafting::WhileFaster(tokens),
            },
        },
        prompt_cache: args.cache_dir.as_ref().map(|path| CacheFolder {
            path: path.clone(),
            bytes: args.cache_size.as_u64(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn specs_of(line: &str) -> Result<Vec<ModelSpec>, CliError> {
        let words = ["serve"].into_iter().chain(line.split_whitespace());
        specs(&Line::try_parse_from(words).unwrap().args)
    }

    fn names(line: &str) -> Vec<(String, String, Vec<String>)> {
        let named = |spec: ModelSpec| {
            let path = spec.path.display().to_string();
            (spec.options.name, path, spec.options.aliases)
        };
        specs_of(line).unwrap().into_iter().map(named).collect()
    }

    fn refused(line: &str) -> String {
        specs_of(line).unwrap_err().lines(false)
    }

    #[test]
    fn models_can_be_named_on_the_command_line() {
        let all = names("a=no/such b=no/other --alias x=b --alias y=b");
        let expected = [
            ("a", "no/such", vec![]),
            ("b", "no/other", vec!["x".to_owned(), "y".to_owned()]),
        ];
        let expected = expected.map(|(name, path, aliases)| (name.into(), path.into(), aliases));
        assert_eq!(all, expected);
        assert_eq!(names("no/lr=0.1 --alias x")[0].1, "no/lr=0.1");
    }

    #[test]
    fn an_existing_path_is_not_split() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lr=0.1");
        std::fs::create_dir(&path).unwrap();
        let (name, shown, _) = &names(path.to_str().unwrap())[0];
        assert_eq!((&**name, &**shown), ("lr=0.1", path.to_str().unwrap()));
    }

    #[test]
    fn duplicate_names_are_rejected() {
        assert_eq!(
            refused("a=x a=y"),
            "error: two models have the name or alias `a`\nhint: give one of them another name with NAME=PATH\n"
        );
        assert!(refused("a=x b=y --alias a=b").contains("the name or alias `a`"));
        assert_eq!(
            refused("a=x b=y --alias c=d"),
            "error: --alias c=d: no model is named `d`; the models are a, b\n"
        );
        assert_eq!(
            refused("a=x b=y --alias c"),
            "error: --alias c: several models are served (a, b)\nhint: select a model: --alias c=NAME\n"
        );
    }
}
