//! `emberlm patch`: replaces activations of a pass, place by place, and measures the effect on a prediction.
//!
//! - Patching (Meng et al. 2022, "Locating and Editing Factual Associations in GPT") puts an activation of a clean text into the pass over a
//!   corrupted one: an effect of 1 restores the clean text's score.
//! - Ablation replaces an activation of the clean text by zeros or by its mean over the text's positions.

mod experiment;
mod page;
mod probes;
mod report;

use std::path::PathBuf;

use burn::tensor::{Device, Int, Tensor};
use clap::{Args, ValueHint};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Transformer;
use emberlm_model::id_tensor;
use emberlm_model::nn::probe::Point;
use emberlm_system::write::write_whole;

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::opened_model::OpenedModel;
use crate::output::{print, print_json};
use experiment::{By, Experiments, Kind, Replacement, Texts};
use probes::{Capture, Replace};
use report::{Experiment, Report};

/// Rows of the texts in one pass, which limits its memory.
const ROWS: usize = 4096;

/// Arguments of `patch`.
#[derive(Debug, Args)]
#[command(after_help = examples::PATCH)]
pub struct PatchArgs {
    /// A run, checkpoint or Hugging Face directory of a decoder
    pub model: PathBuf,
    /// The experiments: clean, corrupted, answer, wrong, and tables [[patch]] and [[ablate]] with site and by
    #[arg(value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub experiments: PathBuf,
    /// Write a page with a table per experiment
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Print {"tokens", "clean", "corrupted", "experiments": [{"kind", "site", "by", "with", "scores", "effects"}]}: scores and effects
    /// by block, then place
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the experiments and prints their effects.
pub fn run(args: PatchArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let experiments = Experiments::read(&args.experiments)?;
    let model = OpenedModel::open_with(&args.model, &args.adapter)?;
    let tokenizer = model.tokenizer()?;
    let texts = experiments.texts(&model, tokenizer.as_ref(), (&args.model, &args.experiments))?;
    let report = backend.run(Patches {
        model: &model,
        experiments: &experiments,
        texts: &texts,
    })??;
    if let Some(out) = &args.out {
        let (file, model) = (args.experiments.display(), args.model.display());
        let page = page::html(&report, &format!("{file} on {model}"), tokenizer.as_ref());
        write_whole(out, page.as_bytes()).map_err(CliError::io("write", out))?;
    }
    match (args.json, &args.out) {
        (true, _) => print_json(&report),
        (false, Some(out)) => {
            let (path, count) = (out.display(), report.experiments.len());
            print(&format!("{path}: {count} experiments\n"))
        }
        (false, None) => print(&report.tables(tokenizer.as_ref())),
    }
}

struct Patches<'a> {
    model: &'a OpenedModel,
    experiments: &'a Experiments,
    texts: &'a Texts,
}

impl Job for Patches<'_> {
    type Output = Result<Report, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let OpenedModel::Decoder(model) = self.model else {
            return Err(CliError::new("only decoders predict the next token")
                .hint("patch needs a decoder, such as a run of emberlm train"));
        };
        let scorer = Scorer {
            decoder: model.decoder::<B::InnerBackend>(&device)?,
            texts: self.texts,
        };
        let clean = scorer.score(&self.texts.clean);
        let corrupted = self.texts.corrupted.as_deref();
        let corrupted = corrupted.map(|tokens| scorer.score(tokens));
        let patches = self.experiments.patch.iter();
        let patches = patches.map(|patch| (Kind::Patch, patch.site, patch.by, None));
        let ablations = self.experiments.ablate.iter();
        let ablations = ablations.map(|of| (Kind::Ablate, of.site, of.by, Some(of.with)));
        let experiments = patches.chain(ablations).map(|(kind, site, by, with)| {
            let (tokens, base, whole) = match kind {
                Kind::Patch => (
                    self.texts.corrupted.as_ref(),
                    corrupted,
                    corrupted.map(|corrupted| clean - corrupted),
                ),
                Kind::Ablate => (Some(&self.texts.clean), Some(clean), Some(1.0)),
            };
            let tokens = tokens.map_or(&[][..], Vec::as_slice);
            let scores = scorer.scores(tokens, site, by, with)?;
            let effect = |score: &f64| Some((score - base?) / whole.filter(|whole| *whole != 0.0)?);
            let effects = scores.iter().map(|row| row.iter().map(effect).collect());
            Ok(Experiment {
                kind,
                site: site.name(),
                by,
                with,
                effects: effects.collect(),
                scores,
            })
        });
        Ok(Report {
            tokens: self.texts.clean.clone(),
            clean,
            corrupted,
            experiments: experiments.collect::<Result<_, CliError>>()?,
        })
    }
}

/// Scores the prediction after a text.
struct Scorer<'a, B: Backend> {
    decoder: Transformer<B>,
    texts: &'a Texts,
}

impl<B: Backend> Scorer<'_, B> {
    /// The score without a change.
    fn score(&self, tokens: &[u32]) -> f64 {
        let mut probe = Capture::none();
        let logits = self
            .decoder
            .next_logits_probed(self.ids(tokens, 1), &mut probe);
        self.scores_of(logits).first().copied().unwrap_or(f64::NAN)
    }

    /// The scores with a changed activation, by block, then place.
    fn scores(
        &self,
        tokens: &[u32],
        site: Point,
        by: By,
        with: Option<Replacement>,
    ) -> Result<Vec<Vec<f64>>, CliError> {
        let mut capture = Capture::of(site);
        let clean = self.ids(&self.texts.clean, 1);
        self.decoder.next_logits_probed(clean, &mut capture);
        let layers = capture.seen.into_iter().map(|(layer, seen)| {
            let places = seen.places(by).ok_or_else(|| {
                let message = format!("site {} has no {}s", site.name(), by.name());
                CliError::new(message).hint(r#"use by = "position" or by = "layer""#)
            })?;
            let source = seen.replaced(with);
            let most = (ROWS / tokens.len().max(1)).max(1);
            let mut scores = Vec::with_capacity(places);
            for start in (0..places).step_by(most) {
                let end = places.min(start + most);
                let mut replace = Replace {
                    layer,
                    point: site,
                    by,
                    places: start..end,
                    source: &source,
                };
                let ids = self.ids(tokens, end - start);
                let logits = self.decoder.next_logits_probed(ids, &mut replace);
                scores.extend(self.scores_of(logits));
            }
            Ok(scores)
        });
        let scores = layers.collect::<Result<Vec<_>, CliError>>()?;
        match scores.is_empty() {
            false => Ok(scores),
            true => {
                let message = format!("the model has no activation {}", site.name());
                Err(CliError::new(message)
                    .hint("emberlm activations MODEL writes all activations that it has"))
            }
        }
    }

    /// `count` copies of a text.
    fn ids(&self, tokens: &[u32], count: usize) -> Tensor<B, 2, Int> {
        let ids = tokens.repeat(count);
        id_tensor(&ids, [count, tokens.len()], &self.decoder.device())
    }

    /// The score of each row of `[batch, vocab_size]`.
    fn scores_of(&self, logits: Tensor<B, 2>) -> Vec<f64> {
        let width = logits.dims()[1].max(1);
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        let rows = logits.chunks(width);
        rows.map(|logits| self.texts.score(logits)).collect()
    }
}
