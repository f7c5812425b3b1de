use clap::{Command, CommandFactory, Parser};

use super::*;
use crate::commands::Cli;

/// The hint for a command line, as `parse` prints it.
fn of(line: &str) -> Option<String> {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let error = Cli::try_parse_from(["emberlm".to_owned()].iter().chain(&args)).unwrap_err();
    hint(&Cli::command(), &error, &args)
}

fn options_of(command: &Command) -> Vec<String> {
    let names = command.get_arguments().flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases)
    });
    names.map(|name| format!("--{name}")).collect()
}

/// The parts of a hint in backticks.
fn quoted(hint: &str) -> Vec<&str> {
    hint.split('`').skip(1).step_by(2).collect()
}

/// Checks that the commands and options that a hint names exist.
#[track_caller]
fn assert_exists(hint: &str, commands: &[&str]) {
    let cli = Cli::command();
    for part in quoted(hint) {
        let words: Vec<&str> = part.split_whitespace().collect();
        let named = words.iter().position(|word| *word == "emberlm");
        let subject = named
            .and_then(|at| words.get(at + 1))
            .filter(|word| **word != "COMMAND");
        if let Some(name) = subject {
            let found = cli.find_subcommand(name);
            assert!(found.is_some(), "{hint}: {name}");
        }
        // Those before it are the launcher's.
        let own = &words[named.unwrap_or(0)..];
        for option in own.iter().filter(|word| word.starts_with("--")) {
            let subjects: Vec<&str> = match (subject, commands) {
                (Some(name), _) => vec![name],
                (None, []) => vec!["generate", "train", "export"],
                (None, commands) => commands.to_vec(),
            };
            let has = |name: &&str| {
                let command = cli.find_subcommand(name).unwrap();
                options_of(command).iter().any(|it| it == option)
            };
            match commands {
                [] => assert!(subjects.iter().any(has), "{hint}: {option}"),
                _ => assert!(subjects.iter().all(has), "{hint}: {option} of {subjects:?}"),
            }
        }
    }
}

#[test]
fn hints_name_commands_and_options_that_exist() {
    assert!(rows().count() > 100);
    for row in rows() {
        let commands: Vec<&str> = match (row.kind, row.commands) {
            ("command", _) | (_, "*") => Vec::new(),
            (_, commands) => commands.split_whitespace().collect(),
        };
        assert_exists(row.hint, &commands);
    }
}

#[test]
fn foreign_words_are_not_words_of_emberlm() {
    let cli = Cli::command();
    for row in rows() {
        for word in row.words.split_whitespace() {
            if row.kind == "command" {
                let of = cli.find_subcommand(row.commands).unwrap_or(&cli);
                assert!(of.find_subcommand(word).is_none(), "{word}");
            }
            let commands = row.commands.split_whitespace().filter(|it| *it != "*");
            for command in commands.filter(|_| row.kind == "option") {
                let command = cli.find_subcommand(command).unwrap();
                let name = format!("--{word}");
                let mut shorts = command.get_arguments().filter_map(|arg| arg.get_short());
                let is_known = options_of(command).contains(&name)
                    || shorts.any(|short| short.to_string() == word);
                assert!(!is_known, "{} {name}", command.get_name());
            }
        }
    }
}

#[test]
fn words_of_other_programs_have_a_hint() {
    for (line, expected) in [
        (
            "quantize model.gguf",
            "emberlm export MODEL --format gguf --type q8_0",
        ),
        ("run llama3", "emberlm chat MODEL"),
        ("list", "emberlm models"),
        ("ps", "emberlm serve"),
        ("rm m", "`emberlm runs rm RUN`"),
        ("show m", "emberlm info MODEL"),
        ("finetune_lora m", "--adapter lora"),
        ("perplexity -m a", "emberlm eval MODEL --data DATASET"),
        ("convert m", "emberlm export MODEL"),
        ("generate m -p hello", "`--prompt TEXT`"),
        ("generate m --n-predict 5", "`--max-new-tokens N`"),
        ("generate -m m", "`emberlm generate MODEL`"),
        ("generate m -ngl 99", "--backend NAME"),
        ("bench m -ngl 99", "--backend NAME"),
        ("generate m -n 5", "`--max-new-tokens N`"),
        ("serve m -c 4096", "`--context N`"),
        ("serve m --ctx-size 4096", "`--context N`"),
        ("generate m -t 4", "RAYON_NUM_THREADS"),
        ("serve m --tensor-parallel-size 2", "`--device N`"),
        ("train --wandb", "`--tensorboard`"),
        ("train --wandb_log=True", "`--tensorboard`"),
        ("train --out_dir=x", "`--out PATH`"),
        ("train --max_iters=5", "`--steps`"),
        ("train --num-steps 5", "`--steps N`"),
        ("train --device cpu", "`--backend flex`"),
        ("train --device cuda:1", "`--device 1`"),
        ("train --device mps", "`--backend metal`"),
        ("train --precision bf16-mixed", "`--precision bf16`"),
        ("train --backend CPU", "`--backend flex`"),
        ("generate m --dtype float16", "`--weights int8`"),
        ("generate m --weights q4_k_m", "--weights q4_0"),
        ("serve m --api-key k", "`--api-key-file FILE`"),
        ("runs delete x", "`emberlm runs rm RUN`"),
    ] {
        let hint = of(line).unwrap_or_else(|| panic!("{line} has a hint"));
        assert!(hint.contains(expected), "{line}: {hint}");
    }
    for line in [
        "generate m --colour red",
        "frobnicate",
        "train --device x",
        "generate",
    ] {
        assert_eq!(of(line), None, "{line}");
    }
}

#[test]
fn underscores_are_read_as_dashes() {
    let hint = of("generate m --top_p 0.9").unwrap();
    assert_eq!(hint, "use `--top-p`");
    let hint = of("train --batch_size=4").unwrap();
    assert_eq!(hint, "use `--batch-size`");
}
