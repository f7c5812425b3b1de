//! A model with its tokenizer, for evaluations on texts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use emberlm_checkpoint::Model;
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::peers::Peers;
use emberlm_trainer::tasks::{BATCH_TOKENS, Likelihood, Question, Row, score};
use indicatif::HumanCount;

use super::among_ranks::{AmongRanks, ModelEvaluation};
use super::{EvalArgs, check_memory, check_window};
use crate::backend::Placement;
use crate::error::{CliError, warn};
use crate::progress;
use crate::ranks::Ranks;

/// The model that tasks are evaluated on.
pub(super) struct Prepared {
    backend: Placement,
    pub(super) model: Model,
    pub(super) tokenizer: Tokenizer,
    pub(super) seq_len: usize,
}

impl Prepared {
    /// Opens the model and its tokenizer.
    pub(super) fn open(args: &EvalArgs, ranks: &Ranks) -> Result<Self, CliError> {
        let backend = args.backend.choose()?.of_local_rank(ranks.local_rank());
        let model = args.adapter.open_decoder(&args.model)?;
        let Some(tokenizer) = model.tokenizer()? else {
            let folder = model.path().display();
            let message = format!("{folder} has no tokenizer, so it cannot read text");
            return Err(CliError::new(message)
                .hint("copy its tokenizer.json next to its config.json")
                .hint("or measure the loss on a dataset of token ids: --data DATASET"));
        };
        let context = model.config().seq_len();
        check_window(args.seq_len, context)?;
        Ok(Self {
            backend,
            model,
            tokenizer,
            seq_len: args.seq_len.unwrap_or(context),
        })
    }

    /// Warns about texts that are cut, and checks the memory and that all ranks score the same rows. Questions are answered
    /// one after another.
    pub(super) fn check(
        &self,
        args: &EvalArgs,
        ranks: &Ranks,
        rows: &[&Row],
        questions: &[&Question],
    ) -> Result<(), CliError> {
        let cut = rows.iter().filter(|row| row.is_cut).count();
        if cut > 0 && ranks.rank().is_zero() {
            warn(&format!(
                "{} of {} texts are longer than the context of {} tokens, and were scored without their beginning",
                HumanCount(cut as u64),
                HumanCount(rows.len() as u64),
                self.seq_len
            ));
        }
        let longest = rows.iter().map(|row| row.seq()).max().unwrap_or(1);
        let batch = args.batch.unwrap_or(BATCH_TOKENS / longest.max(1)).max(1);
        let lengths = questions
            .iter()
            .map(|question| question.prompt.len() + question.tokens);
        let longest = lengths.max().unwrap_or(1).max(longest).max(1);
        let batch = batch.min(rows.len()).max(1);
        check_memory(args, ranks, self.backend, &self.model, batch, longest)?;
        ranks.agree(
            "evaluate",
            &[
                ("the backend", self.backend.name().to_owned()),
                ("the hash of the items", requests_hash(rows, questions)),
                ("--precision", args.weights.precision.name().to_owned()),
                ("--batch-size", format!("{:?}", args.batch)),
            ],
        )
    }

    /// Evaluates the model with the other ranks.
    pub(super) fn evaluated<E: ModelEvaluation>(
        &self,
        args: &EvalArgs,
        ranks: &Ranks,
        evaluation: E,
    ) -> Result<E::Output, CliError> {
        self.backend.run(AmongRanks {
            ranks,
            model: &self.model,
            formats: args.weights.with_cache(args.cache.cache),
            evaluation,
        })?
    }

    /// The likelihoods of rows, after [`Prepared::check`].
    pub(super) fn likelihoods(
        &self,
        args: &EvalArgs,
        ranks: &Ranks,
        rows: &[Row],
    ) -> Result<Vec<Likelihood>, CliError> {
        self.check(args, ranks, &rows.iter().collect::<Vec<_>>(), &[])?;
        let batch = args.batch;
        self.evaluated(args, ranks, Score { ranks, rows, batch })
    }
}

/// Scores rows.
struct Score<'a> {
    ranks: &'a Ranks,
    rows: &'a [Row],
    batch: Option<usize>,
}

impl ModelEvaluation for Score<'_> {
    type Output = Vec<Likelihood>;

    fn evaluate<B: Backend>(
        self,
        decoder: &Transformer<B>,
        peers: &dyn Peers<B>,
    ) -> Result<Vec<Likelihood>, CliError> {
        let tokens = self.rows.iter().map(|row| row.seq() as u64).sum();
        let bar = progress::tokens(tokens, self.ranks.rank());
        let never = || ControlFlow::Continue(());
        let done = |tokens| bar.inc(tokens);
        let found = score(peers, decoder, self.rows, self.batch, done, never)?;
        bar.finish_and_clear();
        // It breaks only if it is stopped.
        Ok(found.continue_value().unwrap_or_default())
    }
}

/// A hash of the token ids of `rows` and of `questions`.
fn requests_hash(rows: &[&Row], questions: &[&Question]) -> String {
    let mut hasher = DefaultHasher::new();
    questions.hash(&mut hasher);
    for row in rows {
        (&row.tokens, row.predicted).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}
