//! `--help` and invalid usage.

use emberlm_generate::ranges;

use super::support::Sandbox;

#[test]
fn every_command_is_listed() {
    let help = Sandbox::new().words("--help").ok();
    for command in [
        "prepare",
        "data",
        "tokenizer",
        "train",
        "sweep",
        "plot",
        "runs",
        "generate",
        "chat",
        "bench",
        "eval",
        "logits",
        "attention",
        "info",
        "completions",
        "man",
    ] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command}: {help}"
        );
    }
    for hidden in ["fit-step", "measure"] {
        assert!(
            !help.contains(&format!("\n  {hidden} ")),
            "{hidden}: {help}"
        );
    }
}

#[test]
fn each_command_lists_its_options() {
    let sandbox = Sandbox::new();
    for (command, options) in [
        (
            "prepare",
            "<FILE>... --out --tokenizer --format --field --column --chat-template --on-error --split-by --val-fraction --val --dedup \
             --shard-tokens --threads --resume --force",
        ),
        (
            "data adopt",
            "<DIR> --tokenizer --alphabet --train --val --out --force",
        ),
        (
            "data export",
            "<DATASET> --format --out --name --shard-tokens --force",
        ),
        ("data inspect", "<DATASET> --excerpts --seed --json"),
        ("data verify", "<DATASET> --json"),
        (
            "generate",
            "<MODEL> --prompt --tokens --max-new-tokens --temperature --top-k --top-p --seed --weights --json --verbose --backend",
        ),
        (
            "chat",
            "<MODEL> --system --chat-template --max-new-tokens --context --temperature --stop --weights --stats --no-history --backend",
        ),
        (
            "fit",
            "--preset --memory --set --data --no-measure --json --backend",
        ),
        (
            "train",
            "--preset --data --epochs --learning-rate --lr --batch-size --documents --resume --recompute --precision --ema --keep-last --keep-best --tensorboard",
        ),
        (
            "eval",
            "<MODEL> --data --hellaswag --lambada --split --documents --per-position --limit --seq-len --batch-size --weights --json --backend",
        ),
        (
            "bench",
            "<MODEL>... --prompt-tokens --decode --depth --batch-size --repeat --weights --json --backend",
        ),
        ("logits", "<MODEL> --tokens --out --backend"),
        (
            "attention",
            "<MODEL> --prompt --tokens --out --layer --head --json --backend",
        ),
        ("info", "[MODEL|PRESET] --vocab-size --json"),
        (
            "sweep",
            "<FILE.toml> --out --parallel --dry-run --json --backend",
        ),
        ("plot", "<RUN>... --out --x --y --log-scale"),
        ("runs", "[DIR] --tag --json"),
        ("runs tag", "<RUN> <TAG>... --remove"),
        ("runs note", "<RUN> <TEXT>"),
        ("runs diff", "<A> <B> --json"),
        (
            "tokenizer train",
            "<FILE>... --out --vocab-size --pattern --special --min-frequency",
        ),
        ("tokenizer stats", "<FILE>... --tokenizer --json"),
        ("tokenizer convert", "<FILE> --out --pattern --special"),
    ] {
        let help = sandbox.words(&format!("{command} --help")).ok();
        for option in options.split_whitespace() {
            assert!(help.contains(option), "{command} {option}: {help}");
        }
    }
}

#[test]
fn the_help_of_a_sampling_setting_has_its_range() {
    let help = Sandbox::new().words("generate --help").ok();
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    for setting in ranges::ALL {
        let rule = setting.rule;
        let option = setting.name.replace('_', "-");
        let (_, after) = help.split_once(&format!("--{option} <")).unwrap();
        let (own, _) = after.split_once(" --").unwrap();
        assert!(own.contains(rule), "{option}: {rule}: {own}");
    }
}

#[test]
fn the_version_matches_the_package() {
    let version = Sandbox::new().words("--version").ok();
    assert_eq!(version, format!("emberlm {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    let sandbox = Sandbox::new();
    for line in [
        "",
        "prepare",
        "tokenizer",
        "frobnicate",
        "prepare a.txt --out d --tokenizer word",
        "prepare a.txt --out d --tokenizer byte --val-fraction 1",
        "prepare a.txt --out d --tokenizer byte --shard-tokens 0",
        "prepare a.txt --out d --tokenizer byte --split-by file",
        "prepare a.txt --out d --tokenizer byte --split-by random",
        "prepare a.txt --out d --tokenizer byte --val b.txt --val-fraction 0.2",
        "prepare a.txt --out d --tokenizer byte --threads 0",
        "prepare a.txt --out d --tokenizer byte --on-error ignore",
        "prepare a.txt --out d --tokenizer byte --format xml",
        "data",
        "data adopt d",
        "data export d --out e --format parquet",
        "data export d --out e --format llmc --shard-tokens 0",
        "generate m --prompt a --tokens 1",
        "generate m --tokens 1,x",
        "generate m --temperature -1",
        "generate m --temperature NaN",
        "generate m --top-p 0",
        "generate m --top-p 1.01",
        "generate m --top-k=-1",
        "generate m --min-p 1.1",
        "generate m --min-p -1",
        "generate m --repetition-penalty 0",
        "generate m --repetition-penalty NaN",
        "generate m --presence-penalty 2.5",
        "generate m --frequency-penalty -2.5",
        "generate m --logit-bias 5",
        "generate m --logit-bias a=1",
        "generate m --logit-bias 5=101",
        "generate m --logit-bias 5=NaN",
        "generate m --stop=",
        "generate m --logprobs 2",
        "generate m --json --logprobs -1",
        "generate m --regex a --json-schema {}",
        "chat",
        "chat m --max-new-tokens 0",
        "chat m --context 0",
        "chat m --temperature -1",
        "eval m",
        "eval m --data d --split test",
        "eval m --data d --batch-size 0",
        "eval m --data d --documents packed",
        "eval m --lambada f --documents isolated",
        "train --documents packed",
        "train --data",
        "eval m --data d --lambada f",
        "eval m --hellaswag f --lambada f",
        "eval m --data d --limit 3",
        "eval m --lambada f --limit 0",
        "eval m --lambada f --per-position",
        "eval m --hellaswag f --split train",
        "logits m --out f",
        "attention m",
        "attention m --prompt a --tokens 1",
        "attention m --prompt a --out picture.jpg",
        "attention m --prompt a --out png",
        "attention m --prompt a --layer -1",
        "info --vocab-size 5",
    ] {
        let ran = sandbox.words(line);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(2), ""),
            "{line}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("panicked"), "{line}: {}", ran.stderr);
    }
}

#[test]
fn invalid_sampler_values_are_rejected_with_their_rule() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("generate m --temperature -1"), @r"
    exit 2
    --- stderr
    error: invalid value '-1' for '--temperature <T>': must be at least 0 and finite

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(sandbox.words("generate m --top-p 1.5"), @r"
    exit 2
    --- stderr
    error: invalid value '1.5' for '--top-p <P>': must be above 0 and at most 1

    For more information, try '--help'.
    ");
}
