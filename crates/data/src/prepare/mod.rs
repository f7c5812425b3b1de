//! Preparation of a dataset from text files and records.
//!
//! | file | contents |
//! |---|---|
//! | `options` | [`PrepareOptions`], [`SplitRule`] |
//! | `progress` | [`Progress`] for a progress bar |
//! | `corpus` | the inputs of both splits, including standard input |
//! | `waves` | reads chunks of documents ahead, in waves |
//! | `scan` | the first pass: validates UTF-8 and measures texts |
//! | `assign` | assigns documents to splits and drops duplicates |
//! | `documents` | detects identical documents |
//! | `encoding` | [`Encoding`]: encodes documents as tokens and masks |
//! | `tokenize` | the second pass: tokenizes and writes |
//! | `journal` | the plan and the progress of an unfinished dataset |
//! | `ranks`, `wave_bytes` | divides the second pass among processes |
//! | `tally`, `findings` | counts and [`Warning`]s |
//!
//! One thread reads waves of chunks ahead. All threads tokenize a wave while the previous one is written. The output
//! does not depend on the number of threads, because texts are only cut where the tokens stay the same, and are
//! written in order.
//!
//! Progress is saved every few seconds, so that another process can resume after a kill. It reads the finished
//! documents again without tokenizing them. Everything else is a function of the documents and their order.

mod assign;
mod corpus;
mod documents;
mod encoding;
mod findings;
mod journal;
mod options;
mod progress;
mod ranks;
mod scan;
mod tally;
mod tokenize;
mod wave_bytes;
mod waves;

use std::path::{Path, PathBuf};

use emberlm_tokenizer::chat::{ChatTemplate, ChatTemplateSpec};
use emberlm_tokenizer::{Tokenizer, TokenizerChoice, TokenizerKind};

use self::assign::Assigner;
use self::corpus::Corpus;
use self::encoding::Encoder;
use self::journal::{Plan, SavedProgress};
use self::ranks::{begin_together, end_all};
use self::scan::scan;
use self::tokenize::{Destination, Tokenized, tokenize};
use crate::block_hashes::DatasetBlocks;
use crate::staging::{Staging, Unfinished};
use crate::{DataError, InputOptions, LeftOut, Manifest};

pub use encoding::Encoding;
pub use findings::{Prepared, Warning};
pub use options::{DEFAULT_JOURNAL_BYTES, PrepareOptions, SplitRule};
pub use progress::{Phase, Progress};
pub use ranks::{PrepareRanks, SingleRank};

/// Prepares the dataset directory `out` from `inputs`: files, folders, patterns or standard input (see
/// [`crate::expand`]).
///
/// Each document begins with the end-of-text token if the tokenizer has one. A tokenizer that is not built in is
/// stored in the directory as `tokenizer.json`. The directory is either complete or absent. If the process ends
/// early, for example by a kill, [`PrepareOptions::resume`] continues the work and produces the same bytes as an
/// uninterrupted run.
///
/// # Errors
/// Fails and leaves the output unchanged
///
/// - if an option is out of range or contradicts another;
/// - if a tokenizer file cannot be read or used;
/// - if an input is missing, empty, damaged or not UTF-8;
/// - if a requested split would be empty;
/// - if the output exists and may not be replaced, is not a dataset, is unfinished, or is being written by another
///   process;
/// - if the unfinished output was begun with other inputs or options;
/// - if a file cannot be read or written, as on a full disk.
pub fn prepare(
    inputs: &[PathBuf],
    out: &Path,
    options: &PrepareOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Prepared, DataError> {
    let prepared = prepare_among(&SingleRank, inputs, out, options, progress)?;
    // A single process is rank 0.
    prepared.ok_or(DataError::RankFailed { rank: 0 })
}

/// As [`prepare`], divided among the processes of `ranks`. All must have the same inputs and options, on a shared file
/// system. Only rank 0 writes; the dataset has the same bytes as that of a single process. Returns the result on rank 0,
/// and `None` on the others.
///
/// # Errors
/// As [`prepare`], and
///
/// - if an input is standard input, which only one process could read;
/// - if a rank has other inputs or options than rank 0, which is the same error on all ranks;
/// - if another rank fails ([`DataError::RankFailed`]): it returns the reason;
/// - if a rank cannot be reached.
pub fn prepare_among(
    ranks: &dyn PrepareRanks,
    inputs: &[PathBuf],
    out: &Path,
    options: &PrepareOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Option<Prepared>, DataError> {
    options.check()?;
    let input = InputOptions {
        raw_records: options.encoding.takes_records(),
        ..options.input.clone()
    };
    let options = &PrepareOptions {
        input,
        ..options.clone()
    };
    let Some(threads) = options.threads else {
        return in_pool(ranks, inputs, out, options, progress);
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get());
    let failed = |error| DataError::io("start threads for", out)(std::io::Error::other(error));
    let pool = pool.build().map_err(failed)?;
    pool.install(|| in_pool(ranks, inputs, out, options, progress))
}

fn in_pool(
    ranks: &dyn PrepareRanks,
    inputs: &[PathBuf],
    out: &Path,
    options: &PrepareOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Option<Prepared>, DataError> {
    let is_rank_zero = ranks.index() == 0;
    if options.resume
        && is_rank_zero
        && let Some(manifest) = Staging::finished(out, &options.command)?
    {
        end_all(ranks)?;
        return Ok(Some(Prepared {
            manifest,
            left_out: LeftOut::default(),
            duplicates: 0,
            warnings: Vec::new(),
        }));
    }
    let corpus = Corpus::expand(inputs, options)?;
    if ranks.count() > 1 && corpus.has_standard_input() {
        let reason = "standard input cannot be divided among ranks: only one process can read it";
        return Err(DataError::Contradiction { reason });
    }
    let known = match &options.tokenizer {
        TokenizerChoice::Named(TokenizerKind::Char) => None,
        choice => Some(Tokenizer::from_choice(choice)?),
    };
    // Checked before the long work begins.
    options.encoding.check(&corpus.inputs)?;
    let template = options.encoding.template()?;
    if template.is_some() && known.is_none() {
        let reason = "a chat template needs a tokenizer that is there before the text: char is not";
        return Err(DataError::Contradiction { reason });
    }
    let unfinished = match (options.resume, options.force) {
        (true, _) => Unfinished::Continue,
        (false, true) => Unfinished::Discard,
        (false, false) => Unfinished::Refuse,
    };
    let staging = match is_rank_zero {
        true => Some(Staging::begin(out, options.force, unfinished)?),
        false => None,
    };
    let work = Work {
        ranks,
        out,
        options,
        progress,
    };
    let made = make(&work, staging.as_ref(), corpus, known, template);
    let is_resumable = || staging.as_ref().is_some_and(Staging::is_resumable);
    let made = made.map_err(|error| match error {
        error @ (DataError::CannotContinue { .. }
        | DataError::RankFailed { .. }
        | DataError::RanksDiffer { .. }) => error,
        error if is_resumable() => DataError::Kept {
            source: Box::new(error),
        },
        error => error,
    })?;
    let (Some(staging), Some((prepared, blocks))) = (staging, made) else {
        return Ok(None);
    };
    staging.commit(&prepared.manifest, &blocks)?;
    Ok(Some(prepared))
}

/// The work of this process.
struct Work<'a> {
    ranks: &'a dyn PrepareRanks,
    out: &'a Path,
    options: &'a PrepareOptions,
    progress: &'a (dyn Fn(Progress) + Sync),
}

/// Writes all files of the dataset except the manifest, on rank 0, which has a `staging`.
fn make(
    work: &Work,
    staging: Option<&Staging>,
    mut corpus: Corpus,
    known: Option<Tokenizer>,
    template: Option<ChatTemplate>,
) -> Result<Option<(Prepared, DatasetBlocks)>, DataError> {
    let options = work.options;
    if let Some(staging) = staging {
        corpus.spool(staging.work_folder(), &options.input)?;
    }
    let plan = plan(&corpus, known.as_ref(), template.as_ref(), options)?;
    let (command, saved) = match staging {
        Some(staging) => begin(staging, &plan)?,
        None => (plan.command.clone(), SavedProgress::default()),
    };
    let Some(tally) = begin_together(work.ranks, plan, saved.tally)? else {
        return Ok(None);
    };
    let scan = scan(&corpus, options, known.is_none(), work.progress)?;
    let assigner = Assigner::new(&corpus, &scan, options)?;
    let tokenizer = match known {
        Some(tokenizer) => tokenizer,
        None => Tokenizer::char_from_alphabet(scan.alphabet.iter().copied())?,
    };
    let mut recorded = template.as_ref().map(ChatTemplateSpec::from);
    let encoder = Encoder::new(&tokenizer, template);
    if let Some(recorded) = &mut recorded {
        recorded.begins_with = encoder.begins_with().map(str::to_owned);
    }
    let destination = match staging {
        Some(staging) => Destination::Folder(staging, Box::new(saved)),
        None => Destination::RankZero(tally),
    };
    let tokenized = tokenize(work, &corpus, &encoder, assigner, destination)?;
    let (
        Some(staging),
        Some(Tokenized {
            splits,
            blocks,
            tally,
            counts,
            left_out,
        }),
    ) = (staging, tokenized)
    else {
        return Ok(None);
    };
    if splits.train.tokens == 0 {
        let documents = counts.documents;
        return Err(DataError::NoTrainDocuments { documents });
    }
    staging.save_tokenizer(&tokenizer)?;
    let mut manifest = Manifest::new(command, tokenizer.spec(), splits);
    manifest.chat_template = recorded;
    let val_wanted = corpus.rule == SplitRule::File || options.val_fraction > 0.0;
    let prepared = Prepared {
        warnings: findings::warnings(
            &manifest,
            &tally,
            &counts,
            options.dedup,
            val_wanted,
            &tokenizer,
            encoder.missing(),
        ),
        duplicates: match options.dedup {
            true => counts.duplicates,
            false => 0,
        },
        manifest,
        left_out,
    };
    Ok(Some((prepared, blocks)))
}

/// The inputs and options that determine the dataset.
fn plan(
    corpus: &Corpus,
    tokenizer: Option<&Tokenizer>,
    template: Option<&ChatTemplate>,
    options: &PrepareOptions,
) -> Result<Plan, DataError> {
    // The alphabet of a char tokenizer is determined by the inputs.
    let tokenizer = match tokenizer.map(Tokenizer::spec) {
        Some(spec) => format!("{} {}", spec.kind, spec.hash),
        None => TokenizerKind::Char.to_string(),
    };
    let encoding = match template {
        // Earlier versions wrote masks that do not index documents, so their work cannot be resumed.
        Some(template) => format!("{} {} indexed", template.name(), template.hash()),
        None => "text".to_owned(),
    };
    Plan::new(corpus, options, tokenizer, encoding)
}

/// Returns the command that began the dataset, and its saved progress.
fn begin(staging: &Staging, plan: &Plan) -> Result<(String, SavedProgress), DataError> {
    if !staging.resumes() {
        plan.write(staging.work_folder())?;
        return Ok((plan.command.clone(), SavedProgress::default()));
    }
    let begun = Plan::read(staging.work_folder())?;
    begun
        .compare(plan)
        .map_err(|reason| DataError::CannotContinue {
            path: staging.out().to_owned(),
            reason,
        })?;
    Ok((begun.command, SavedProgress::read(staging.work_folder())?))
}
