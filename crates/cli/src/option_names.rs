//! Every option of the command line: one name for one meaning, in all commands.

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgAction, Command, CommandFactory};

use crate::args::Cli;

/// An option's name, short name and value names, several of them separated by `;`, and its meaning.
type OptionRow = (&'static str, Option<char>, &'static str, &'static str);

const OPTIONS: &[OptionRow] = &[
    ("accumulation", None, "N", "micro-batches per step"),
    ("adapter", None, "ADAPTER", "an adapter to use a model with"),
    (
        "alias",
        None,
        "ALIAS=NAME",
        "another name of a served model",
    ),
    (
        "allowed-host",
        None,
        "HOST",
        "an accepted host name of requests",
    ),
    (
        "alphabet",
        None,
        "FILE",
        "the text of a character tokenizer",
    ),
    (
        "api-key-file",
        None,
        "FILE",
        "the file with the key of clients",
    ),
    ("backend", None, "NAME", "the backend"),
    (
        "batch-size",
        Some('b'),
        "N",
        "sequences that are computed together",
    ),
    ("beams", None, "N", "the width of a beam search"),
    ("cache", None, "TYPE", "the format of key-value caches"),
    (
        "calibration",
        None,
        "FILE",
        "the text that rounding is calibrated on",
    ),
    ("chat-template", None, "NAME|PATH", "the chat template"),
    ("check", None, "NAME", "a check of the full report"),
    ("config", None, "FILE", "a TOML file with settings"),
    ("context", None, "N", "tokens that a model attends to"),
    ("data", None, "DATASET;DATASET[=WEIGHT]", "the data"),
    ("decode", Some('n'), "N", "tokens to decode"),
    ("dedup", None, "", "dropping of equal documents"),
    (
        "depth",
        Some('d'),
        "N",
        "tokens in the cache before decoding",
    ),
    (
        "deterministic",
        None,
        "",
        "answers that do not depend on other requests",
    ),
    ("device", None, "N", "the number of the device"),
    ("documents", None, "PACKING", "the packing of documents"),
    ("draft", None, "MODEL", "the draft model"),
    ("draft-tokens", None, "N", "draft tokens per pass"),
    (
        "dry-run",
        None,
        "",
        "printing of commands in place of running them",
    ),
    (
        "dtype",
        None,
        "TYPE",
        "the type of floating-point weights in a file",
    ),
    (
        "ema",
        None,
        "DECAY",
        "the decay of an average of the weights",
    ),
    ("epochs", None, "N", "passes over the training split"),
    ("eval-interval", None, "N", "steps between two evaluations"),
    ("excerpts", None, "N", "documents to show"),
    (
        "field",
        None,
        "NAME",
        "the field of a record that is its text",
    ),
    (
        "follow",
        None,
        "[NAME=]RUN",
        "a run whose newest checkpoint is served",
    ),
    ("force", None, "", "replacing of existing output"),
    ("format", None, "FORMAT", "the format of a file"),
    (
        "frequency-penalty",
        None,
        "X",
        "a penalty for each occurrence of a token",
    ),
    ("from", None, "MODEL", "the model to start from"),
    ("full", None, "", "the full report"),
    ("head", None, "N", "a head"),
    ("hellaswag", None, "FILE.jsonl", "the file of HellaSwag"),
    ("host", None, "ADDRESS", "the address to listen on"),
    (
        "ignore-memory",
        None,
        "",
        "no check of the available memory",
    ),
    ("json", None, "", "JSON output"),
    ("json-schema", None, "FILE|JSON", "the schema of the output"),
    ("jsonl", None, "", "input in JSON lines"),
    (
        "keep-best",
        None,
        "",
        "keeping of the checkpoint with the lowest loss",
    ),
    ("keep-last", None, "N", "checkpoints to keep"),
    ("lambada", None, "FILE.jsonl", "the file of LAMBADA"),
    ("launcher", None, "COMMAND", "the command that starts ranks"),
    ("layer", None, "N", "a layer"),
    ("learning-rate", None, "RATE", "the learning rate"),
    (
        "length-penalty",
        None,
        "X",
        "the exponent of a beam's length",
    ),
    ("limit", None, "N", "items to evaluate"),
    ("log", None, "WHAT", "the detail of the request log"),
    (
        "log-format",
        None,
        "FORMAT",
        "the format of the request log",
    ),
    ("log-scale", None, "", "a logarithmic axis"),
    ("logit-bias", None, "ID=VALUE", "a number to add to a logit"),
    ("logprobs", None, "N", "log-probabilities to print"),
    ("max-body", None, "SIZE", "the size of a request's body"),
    ("max-memory", None, "SIZE", "memory of all requests"),
    ("max-new-tokens", None, "N", "tokens to generate"),
    ("max-queue", None, "N", "waiting requests"),
    ("max-request-memory", None, "SIZE", "memory of one request"),
    ("memory", None, "SIZE", "the memory limit of models"),
    ("memory-report", None, "", "printing of a step's memory"),
    ("method", None, "METHOD", "the method of rounding"),
    ("min-frequency", None, "N", "occurrences of a pair to merge"),
    (
        "min-p",
        None,
        "P",
        "the threshold relative to the most probable token",
    ),
    ("minutes", None, "N", "the time limit of the full report"),
    ("name", None, "NAME", "the prefix of files"),
    ("no-history", None, "", "no input history"),
    ("no-measure", None, "", "prediction without a measurement"),
    ("note", None, "TEXT", "a note on a run"),
    ("objective", None, "OBJECTIVE", "the training objective"),
    ("of", None, "STACK", "the attention of an encoder–decoder"),
    ("on-error", None, "ACTION", "the action on broken records"),
    ("only", None, "NAME", "a part of the checks' names"),
    ("operations", None, "", "checks of operations only"),
    (
        "out",
        None,
        "DATASET;DIR;RUN;MODEL;PATH;FILE.safetensors;FILE.html|.svg|.png",
        "the output",
    ),
    ("parallel", None, "N", "runs trained at the same time"),
    ("pattern", None, "NAME", "the pattern that splits texts"),
    ("per-position", None, "", "the loss by position"),
    ("port", None, "PORT", "the port to listen on"),
    ("precision", None, "TYPE", "the precision of products"),
    (
        "presence-penalty",
        None,
        "X",
        "a penalty for the occurrence of a token",
    ),
    ("preset", None, "NAME", "the preset"),
    ("print-config", None, "", "printing of the configuration"),
    ("prompt", None, "TEXT", "the prompt as text"),
    (
        "prompt-tokens",
        Some('p'),
        "N",
        "the length of a random prompt",
    ),
    ("python", None, "PATH", "the Python to compare with"),
    ("ranks", None, "N", "the number of ranks"),
    ("recompute", None, "", "recomputation of activations"),
    (
        "regex",
        None,
        "PATTERN",
        "the expression that the output matches",
    ),
    ("remove", None, "", "removal of tags"),
    ("renderer", None, "RENDERER", "the display of progress"),
    ("repeat", Some('r'), "N", "measured repetitions"),
    (
        "repetition-penalty",
        None,
        "R",
        "a factor on the logits of repeated tokens",
    ),
    (
        "restart",
        None,
        "",
        "restarting of a run without a checkpoint",
    ),
    ("resume", None, "RUN;", "resuming of unfinished work"),
    ("seed", None, "N", "the seed"),
    ("seq-len", None, "N", "tokens of a window"),
    ("set", None, "KEY=VALUE", "a setting"),
    ("shard-size", None, "SIZE", "bytes of a file of weights"),
    ("shard-tokens", None, "N", "tokens of a file"),
    (
        "size",
        None,
        "SIZE",
        "the sizes of the full report's models",
    ),
    ("slots", None, "N", "answers generated at the same time"),
    ("special", None, "NAME;NAME=ID", "a special token"),
    ("split", None, "NAME", "the split of a dataset"),
    (
        "split-by",
        None,
        "RULE",
        "the choice of the validation split",
    ),
    ("stats", None, "", "speed and memory after every answer"),
    ("steps", None, "N", "the number of steps"),
    ("stop", None, "TEXT", "a text that ends the output"),
    ("system", None, "TEXT", "the system message"),
    ("tag", None, "TAG", "a tag of a run"),
    ("target", None, "TEXT", "the target as text"),
    ("target-tokens", None, "IDS", "the target as token ids"),
    ("temperature", None, "T", "the divisor of the logits"),
    ("tensorboard", None, "", "files for TensorBoard"),
    ("threads", None, "N", "the number of threads"),
    ("timeout", None, "SECONDS", "the time of a request"),
    ("tokenizer", None, "NAME|PATH", "the tokenizer"),
    ("tokens", None, "IDS", "the prompt as token ids"),
    ("top-k", None, "K", "the number of tokens to sample from"),
    (
        "top-p",
        None,
        "P",
        "the probability of the tokens to sample from",
    ),
    ("train", None, "GLOB", "the files for training"),
    ("type", None, "TYPE", "the type of a GGUF file's matrices"),
    ("val", None, "FILE;GLOB", "the validation data"),
    (
        "val-fraction",
        None,
        "PART",
        "the share of the validation split",
    ),
    ("verbose", Some('v'), "", "settings and speeds on stderr"),
    ("vocab-size", None, "N", "the number of token ids"),
    ("weights", None, "TYPE", "the format of the weights"),
    ("with-text", None, "", "each text beside its vector"),
    (
        "write-timeout",
        None,
        "SECONDS",
        "the time that a client may not read",
    ),
    ("x", None, "X", "the horizontal axis"),
    ("y", None, "METRIC", "the vertical axis"),
];

/// Options with another meaning than those of the same name, and the reason.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    // The setting `train.adapter`: the kind of a new adapter, in the command that has no other use of adapters.
    (
        "emberlm train",
        "adapter",
        "KIND",
        "the kind of the adapter to train",
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
        let is = |of: &(&str, &str, &str, &str)| {
            (of.0, of.1, of.2) == (&*option.command, &*option.name, &*option.value)
        };
        !EXCEPTIONS.iter().any(is)
    });
    found
}

#[test]
fn an_option_has_the_same_name_and_value_in_all_commands() {
    let table: BTreeMap<&str, &OptionRow> = OPTIONS.iter().map(|row| (row.0, row)).collect();
    assert_eq!(table.len(), OPTIONS.len(), "a name is listed twice");
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
    let meanings: BTreeSet<&str> = OPTIONS.iter().map(|row| row.3).collect();
    assert_eq!(
        meanings.len(),
        OPTIONS.len(),
        "two options have one meaning"
    );
    let short: Vec<char> = OPTIONS.iter().filter_map(|row| row.1).collect();
    assert_eq!(short.len(), short.iter().collect::<BTreeSet<_>>().len());
    let used: BTreeSet<String> = options().into_iter().map(|option| option.name).collect();
    let unused: Vec<&str> = OPTIONS
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
