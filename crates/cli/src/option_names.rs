//! Every option of the command line: one name for one meaning, in all commands.

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgAction, Command, CommandFactory};

use emberlm_generate::SETTINGS;

use crate::commands::Cli;
use crate::commands::generate::sampling_args::NAMES;

/// An option's name, short name and value names, several of them separated by `;`, and its meaning.
type OptionRow = (&'static str, Option<char>, &'static str, &'static str);

/// The rows of `option_names.txt` and of the sampling settings.
fn rows() -> Vec<OptionRow> {
    let lines = include_str!("option_names.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [name, short, values, meaning] = cells[..] else {
            panic!("{line} must have four cells");
        };
        let given = |cell: &'static str| if cell == "-" { "" } else { cell };
        (name, given(short).chars().next(), given(values), meaning)
    };
    let settings = SETTINGS.iter().zip(NAMES.iter());
    let settings =
        settings.map(|(setting, name)| (&name[..], None, setting.value_name, setting.help));
    lines.map(row).chain(settings).collect()
}

/// The commands that train by the options of `train`.
const TRAINING: [&str; 2] = ["emberlm train", "emberlm lr-find"];

/// Options of [`TRAINING`] with another meaning than those of the same name, and the reason: the name, the value and the meaning.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    // The setting `train.adapter`: the kind of a new adapter.
    ("adapter", "KIND", "the kind of the adapter to train"),
    // The name of nanochat. `bench` has that of llama-bench.
    (
        "depth",
        "N",
        "the number of blocks, from which all sizes follow",
    ),
];

/// An option of a command: the command, the names, and the value's name, which is empty for a flag.
struct Found {
    command: String,
    name: String,
    short: Option<char>,
    value: String,
}

fn collect(command: &Command, path: &str, found: &mut Vec<Found>) {
    let path = format!("{path}{}", command.get_name());
    for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
        let Some(name) = arg
            .get_long()
            .filter(|name| !["help", "version"].contains(name))
        else {
            continue;
        };
        let is_flag = matches!(
            arg.get_action(),
            ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count
        );
        let names = arg.get_value_names().unwrap_or_default();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        found.push(Found {
            command: path.clone(),
            name: name.to_owned(),
            short: arg.get_short(),
            value: if is_flag {
                String::new()
            } else {
                names.join(" ")
            },
        });
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        collect(sub, &format!("{path} "), found);
    }
}

fn options() -> Vec<Found> {
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    collect(&command, "", &mut found);
    found.retain(|option| {
        let is = |of: &(&str, &str, &str)| (of.0, of.1) == (&*option.name, &*option.value);
        !(TRAINING.contains(&&*option.command) && EXCEPTIONS.iter().any(is))
    });
    found
}

#[test]
fn an_option_has_the_same_name_and_value_in_all_commands() {
    let rows = rows();
    let table: BTreeMap<&str, &OptionRow> = rows.iter().map(|row| (row.0, row)).collect();
    assert_eq!(table.len(), rows.len(), "a name is listed twice");
    let mut faults = Vec::new();
    for Found {
        command,
        name,
        short,
        value,
    } in options()
    {
        match table.get(&*name) {
            None => faults.push(format!("{command} --{name} <{value}> is not in the table")),
            Some((_, of_name, values, _)) => {
                if !values.split(';').any(|known| known == value) {
                    faults.push(format!("{command} --{name} <{value}>, not <{values}>"));
                }
                if short.is_some() && short != *of_name {
                    faults.push(format!(
                        "{command} -{short:?} for --{name}, not {of_name:?}"
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_meaning_and_a_short_name_belong_to_one_option() {
    let rows = rows();
    let meanings: BTreeSet<&str> = rows.iter().map(|row| row.3).collect();
    assert_eq!(meanings.len(), rows.len(), "two options have one meaning");
    let short: Vec<char> = rows.iter().filter_map(|row| row.1).collect();
    assert_eq!(short.len(), short.iter().collect::<BTreeSet<_>>().len());
    let used: BTreeSet<String> = options().into_iter().map(|option| option.name).collect();
    let unused: Vec<&str> = rows
        .iter()
        .map(|row| row.0)
        .filter(|name| !used.contains(*name))
        .collect();
    assert!(unused.is_empty(), "no command has {unused:?}");
}

/// Names of earlier versions, which are not in the help.
#[test]
fn earlier_names_are_accepted() {
    use clap::Parser;
    for line in [
        "prepare a --out d --tokenizer byte --split hash --continue",
        "train --data d --validation v",
        "eval m --data d --batch 3",
        "bench m --prompt 3 --batch 2",
        "plot r --out p.png --log",
        "doctor --model gpt2-small",
        "serve m --max-tokens 5",
    ] {
        let words = std::iter::once("emberlm").chain(line.split(' '));
        let parsed = Cli::try_parse_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}
