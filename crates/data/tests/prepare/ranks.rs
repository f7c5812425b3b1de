//! Preparation divided among ranks, which are threads of one process here.

use std::path::{Path, PathBuf};
use std::sync::{Barrier, Mutex};
use std::thread;

use emberlm_data::{
    DataError, PrepareOptions, PrepareRanks, Prepared, Progress, prepare, prepare_among,
};
use emberlm_tokenizer::TokenizerKind;
use serde_json::json;

use crate::prepare::common::{Workspace, chat, options, skip};
use crate::prepare::unfinished::{CASES, case, check, corpus, start, uninterrupted};

/// The meeting point of the ranks.
struct Hub {
    barrier: Barrier,
    slots: Mutex<Vec<Vec<u8>>>,
}

struct Rank<'a> {
    index: usize,
    count: usize,
    hub: &'a Hub,
}

impl PrepareRanks for Rank<'_> {
    fn index(&self) -> usize {
        self.index
    }

    fn count(&self) -> usize {
        self.count
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.hub.slots.lock().unwrap()[self.index] = own.to_vec();
        self.hub.barrier.wait();
        let all = self.hub.slots.lock().unwrap().clone();
        self.hub.barrier.wait();
        Ok(all)
    }
}

type Results = Vec<Result<Option<Prepared>, DataError>>;

/// The results of ranks with the inputs and options that `of_rank` gives them.
fn each(
    count: usize,
    out: &Path,
    of_rank: impl Fn(usize) -> (Vec<PathBuf>, PrepareOptions) + Sync,
    progress: &(dyn Fn(Progress) + Sync),
) -> Results {
    let hub = Hub {
        barrier: Barrier::new(count),
        slots: Mutex::new(vec![Vec::new(); count]),
    };
    let (hub, of_rank) = (&hub, &of_rank);
    thread::scope(|scope| {
        let ranks = (0..count).map(|index| {
            scope.spawn(move || {
                let (inputs, options) = of_rank(index);
                let rank = Rank { index, count, hub };
                prepare_among(&rank, &inputs, out, &options, progress)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The results of ranks with the same inputs and options.
pub fn on_ranks(
    count: usize,
    inputs: &[PathBuf],
    out: &Path,
    options: &PrepareOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Results {
    each(count, out, |_| (inputs.to_vec(), options.clone()), progress)
}

#[test]
fn ranks_write_the_bytes_of_one_process() {
    let workspace = corpus();
    for name in CASES {
        let expected = uninterrupted(&workspace, name);
        for count in [2, 3, 5] {
            let (inputs, options) = case(name, &workspace.path(""));
            let results = on_ranks(count, &inputs, &workspace.out(), &options, &|_| {});
            let prepared: Vec<bool> = results
                .into_iter()
                .map(|result| result.unwrap().is_some())
                .collect();
            let zero: Vec<bool> = (0..count).map(|rank| rank == 0).collect();
            assert_eq!(prepared, zero, "{name}");
            check(&workspace, &expected);
            std::fs::remove_dir_all(workspace.out()).unwrap();
        }
    }
}

#[test]
fn aborted_ranks_are_resumed_by_any_number_of_them() {
    for name in CASES {
        let workspace = corpus();
        let expected = uninterrupted(&workspace, name);
        let mut kills = 0;
        loop {
            let ranks = [3, 1, 2, 4][kills % 4];
            let mut child = start(&workspace, name, ranks, 1, 10 + 7 * kills);
            if child.wait().unwrap().success() {
                break;
            }
            kills += 1;
            assert!(kills < 100, "{name} does not come to its end");
        }
        assert!(kills >= 3, "{name}: {kills} kills");
        check(&workspace, &expected);
    }
}

/// Conversations of which some are broken, in chunks of a few.
fn conversations(workspace: &Workspace, broken: &[usize]) -> (Vec<PathBuf>, PrepareOptions) {
    let record = |i: usize| {
        let role = match broken.contains(&i) {
            true => "nobody",
            false => "assistant",
        };
        let question = json!({ "role": "user", "content": format!("{i}?").repeat(30) });
        let messages = [question, json!({ "role": role, "content": "yes" })];
        json!({ "messages": messages }).to_string() + "\n"
    };
    let file = workspace.file("talks.jsonl", (0..400).map(record).collect::<String>());
    let options = PrepareOptions {
        journal_bytes: 2000,
        ..chat(options(TokenizerKind::Byte, 0.2))
    };
    (vec![file], options)
}

#[test]
fn broken_records_are_left_out_as_by_one_process() {
    let workspace = Workspace::new();
    let (inputs, options) = conversations(&workspace, &[3, 77, 78, 200, 399]);
    let options = skip(options);
    let one = prepare(&inputs, &workspace.path("one"), &options, &|_| {}).unwrap();
    assert_eq!(one.left_out.broken(), 5);
    let mut results = on_ranks(3, &inputs, &workspace.out(), &options, &|_| {});
    assert_eq!(results.remove(0).unwrap(), Some(one));
}

#[test]
fn only_the_rank_of_the_first_broken_record_reports_it() {
    for broken in [&[150][..], &[201, 202, 350], &[399]] {
        let workspace = Workspace::new();
        let (inputs, options) = conversations(&workspace, broken);
        let expected = prepare(&inputs, &workspace.path("one"), &options, &|_| {})
            .unwrap_err()
            .to_string();
        assert!(
            expected.contains(&format!("line {}:", broken[0] + 1)),
            "{expected}"
        );
        let results = on_ranks(3, &inputs, &workspace.out(), &options, &|_| {});
        let errors = results.into_iter().map(Result::unwrap_err);
        let (others, own): (Vec<_>, Vec<_>) =
            errors.partition(|error| matches!(error, DataError::RankFailed { .. }));
        assert_eq!((others.len(), own.len()), (2, 1));
        let own = match &own[0] {
            DataError::Kept { source } => source.to_string(),
            error => error.to_string(),
        };
        assert_eq!(own, expected);
        assert!(!workspace.out().exists());
    }
}

#[test]
fn ranks_with_other_inputs_or_options_are_refused() {
    let workspace = Workspace::new();
    let [first, second] = ["first.txt", "second.txt"].map(|name| workspace.file(name, "some text"));
    let base = (vec![first.clone()], options(TokenizerKind::Byte, 0.0));
    let with = |change: fn(&mut PrepareOptions)| {
        let mut options = base.1.clone();
        change(&mut options);
        (base.0.clone(), options)
    };
    for (other, expected) in [
        (
            with(|options| options.dedup = true),
            "`dedup` is true, and false on rank 0",
        ),
        (
            with(|options| options.tokenizer = TokenizerKind::Gpt2.into()),
            "`tokenizer` is gpt2",
        ),
        (
            (vec![second.clone()], base.1.clone()),
            "second.txt, and rank 0",
        ),
        (
            (vec![first.clone(), second], base.1.clone()),
            "it has 2 inputs, and rank 0 has 1",
        ),
    ] {
        let of_rank = |rank| {
            if rank == 2 {
                other.clone()
            } else {
                base.clone()
            }
        };
        for result in each(3, &workspace.out(), of_rank, &|_| {}) {
            let message = result.unwrap_err().to_string();
            let begin = "rank 2 does not prepare the same dataset as rank 0: ";
            assert!(
                message.starts_with(begin) && message.contains(expected),
                "{message}"
            );
        }
        assert!(workspace.left().is_empty());
    }
    // Standard input belongs to one process.
    let inputs = [PathBuf::from("-")];
    for result in on_ranks(2, &inputs, &workspace.out(), &base.1, &|_| {}) {
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("standard input cannot be divided"),
            "{message}"
        );
    }
}
