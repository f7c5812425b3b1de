//! `prepare` on valid input: the contents of the dataset.

use std::path::PathBuf;
use std::sync::Mutex;

use crate::prepare::common::{Workspace, options, run, tokens};
use emberlm_data::{Dataset, Phase, PrepareOptions, Progress, Split, prepare};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use proptest::prelude::*;

#[test]
fn characters_are_split_like_nano_gpt() {
    let workspace = Workspace::new();
    let input = workspace.file("a.txt", "hello world, héllo wörld!");
    let manifest = workspace.manifest(&[input], &options(TokenizerKind::Char, 0.1));
    let (train, val) = (&manifest.splits.train, &manifest.splits.val);
    // Of 25 characters, 22.5 rounded down are for training.
    assert_eq!((train.tokens, val.tokens), (22, 3));
    assert_eq!((train.bytes, val.bytes), (24, 3));
    let dataset = workspace.dataset();
    assert_eq!(dataset.manifest(), &manifest);
    let text = |split| {
        dataset
            .tokenizer()
            .decode(&tokens(&dataset, split))
            .unwrap()
    };
    assert_eq!(text(Split::Train), "hello world, héllo wör");
    assert_eq!(text(Split::Val), "ld!");
    dataset.verify().unwrap();
    assert_eq!(workspace.left(), ["out"]);
}

#[test]
fn documents_begin_with_end_of_text_in_both_splits() {
    let workspace = Workspace::new();
    workspace.file("b.txt", "0123456789");
    workspace.file("a.txt", "abcd");
    let inputs = [workspace.path("in")];
    let manifest = workspace.manifest(&inputs, &options(TokenizerKind::Byte, 0.5));
    let dataset = workspace.dataset();
    let ids = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let expected = [vec![256], ids("abcd"), vec![256], ids("012")].concat();
    assert_eq!(tokens(&dataset, Split::Train), expected);
    let expected = [vec![256], ids("3456789")].concat();
    assert_eq!(tokens(&dataset, Split::Val), expected);
    let splits = &manifest.splits;
    assert_eq!((splits.train.documents, splits.val.documents), (2, 1));
}

#[test]
fn border_between_documents_begins_each_document_once() {
    let workspace = Workspace::new();
    let inputs = [workspace.file("a", "abcd"), workspace.file("b", "efgh")];
    workspace.manifest(&inputs, &options(TokenizerKind::Byte, 0.5));
    let dataset = workspace.dataset();
    assert_eq!(tokens(&dataset, Split::Train), [256, 97, 98, 99, 100]);
    assert_eq!(tokens(&dataset, Split::Val), [256, 101, 102, 103, 104]);
}

#[test]
fn char_tokenizer_joins_documents_without_separator() {
    let workspace = Workspace::new();
    let inputs = [workspace.file("a", "ab"), workspace.file("b", "cd")];
    workspace.manifest(&inputs, &options(TokenizerKind::Char, 0.0));
    let dataset = workspace.dataset();
    assert_eq!(tokens(&dataset, Split::Train), [0, 1, 2, 3]);
    assert!(dataset.split(Split::Val).unwrap().is_empty());
}

#[test]
fn shards_are_limited_and_read_as_one_sequence() {
    let workspace = Workspace::new();
    let input = workspace.file("a.txt", "abcdefghij".repeat(10));
    let options = PrepareOptions {
        shard_tokens: 33,
        ..options(TokenizerKind::Byte, 0.2)
    };
    let manifest = workspace.manifest(&[input], &options);
    let shards = &manifest.splits.train.shards;
    let sizes: Vec<u64> = shards.iter().map(|shard| shard.tokens).collect();
    assert_eq!(sizes, [33, 33, 15]);
    let dataset = workspace.dataset();
    let train = tokens(&dataset, Split::Train);
    let text = dataset.tokenizer().decode(&train).unwrap();
    assert_eq!(text, "abcdefghij".repeat(8));
}

/// About a megabyte of varied lines, which takes several blocks and is therefore cut.
fn long_text() -> String {
    let line = |i: usize| match i % 7 {
        0 => format!("Line {i} of some; words/\n"),
        1 => format!("    let x_{i} = \"{i}\";\r\n"),
        2 => format!("日本語{i}のテキスト。\n\n"),
        3 => format!("It's {i}'s turn...\n/path/to/{i}\n"),
        _ => format!("The {i}th line is ordinary prose, long enough to be one.\n"),
    };
    (0..25_000).map(line).collect()
}

#[test]
fn long_file_tokens_do_not_depend_on_cuts_or_threads() {
    let text = long_text();
    for kind in [TokenizerKind::Gpt2, TokenizerKind::O200k] {
        let workspace = Workspace::new();
        let input = [workspace.file("long.txt", &text)];
        let with_threads = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let out = workspace.path(&format!("out{threads}"));
            let work = || run(&input, &out, &options(kind, 0.1));
            pool.build().unwrap().install(work).unwrap();
            Dataset::open(&out).unwrap()
        };
        let (one, four) = (with_threads(1), with_threads(4));
        // The manifests include the hashes of the shards.
        assert_eq!(one.manifest(), four.manifest());

        let tokenizer = Tokenizer::builtin(kind).unwrap();
        let border = text.chars().count() * 9 / 10;
        let at = text.char_indices().nth(border).unwrap().0;
        for (split, text) in [(Split::Train, &text[..at]), (Split::Val, &text[at..])] {
            let mut expected = vec![tokenizer.end_of_text().unwrap()];
            expected.extend(tokenizer.encode(text).unwrap());
            assert!(tokens(&one, split) == expected, "{kind} {split}");
            assert_eq!(one.manifest().split(split).bytes, text.len() as u64);
        }
    }
}

#[test]
fn progress_reaches_the_total_in_both_phases() {
    let workspace = Workspace::new();
    let inputs = [
        workspace.file("a", "abc".repeat(200_000)),
        workspace.file("b", "text\n"),
    ];
    let seen = Mutex::new(Vec::new());
    let progress = |step| seen.lock().unwrap().push(step);
    let options = options(TokenizerKind::Byte, 0.1);
    prepare(&inputs, &workspace.out(), &options, &progress).unwrap();
    let mut sums = Vec::new();
    for step in seen.into_inner().unwrap() {
        match step {
            Progress::Start { phase, bytes } => sums.push((phase, bytes, 0)),
            Progress::Advance { bytes } => sums.last_mut().unwrap().2 += bytes,
        }
    }
    let total = 600_005;
    let expected = [Phase::Scan, Phase::Tokenize].map(|phase| (phase, total, total));
    assert_eq!(sums, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_character_is_lost_or_changed(
        texts in prop::collection::vec("[a-c é漢\r\n🔥]{1,30}", 1..5),
        val_fraction in 0.0..0.7f64,
    ) {
        let workspace = Workspace::new();
        let write = |(i, text)| workspace.file(&format!("{i}"), text);
        let inputs: Vec<PathBuf> = (0..).zip(&texts).map(write).collect();
        let whole = texts.concat();
        let characters = whole.chars().count();
        let train = (characters as f64 * (1.0 - val_fraction)) as usize;
        prop_assume!(train > 0 && train < characters);
        workspace.manifest(&inputs, &options(TokenizerKind::Byte, val_fraction));
        let dataset = workspace.dataset();
        let text = |split| dataset.tokenizer().decode(&tokens(&dataset, split)).unwrap();
        prop_assert_eq!(text(Split::Train).chars().count(), train);
        prop_assert_eq!(text(Split::Train) + &text(Split::Val), whole);
    }
}
