//! Opens the models to serve, and loads encoders.

use burn::tensor::Device;
use emberlm_checkpoint::{EncoderModel, Model, ModelError, ModelKind, kind_of};
use emberlm_kernels::Backend;
use emberlm_model::WeightFormat;
use emberlm_model::adapter::ADAPTER_CONFIG_FILE;
use emberlm_serve::{EncoderPlan, LoadPlan, ModelSource, Place, Reload, ServedKind, ServedModel};
use indicatif::HumanCount;

use super::log::Log;
use super::models::ModelSpec;
use super::{follow, groups};
use crate::cache_arg;
use crate::console;
use crate::draft_model;
use crate::error::CliError;
use crate::opened_model::OpenedModel;
use crate::progress;
use crate::run_folders::is_run;
use crate::shell::shell_path;

/// A model with its checked serving options.
pub enum Plan<'a> {
    Generator(Box<LoadPlan<'a>>),
    Encoder(Box<EncoderPlan<'a>>),
}

/// A model, or an adapter.
pub enum Opened {
    Model(OpenedModel),
    /// An adapter in PEFT's format whose base model is not where it records it, and the error to open it.
    Adapter(ModelError),
}

/// Opens a model to serve, and waits for the first checkpoint of a run that is followed.
pub fn open(spec: &ModelSpec) -> Result<Opened, CliError> {
    let path = &spec.path;
    let kind = kind_of(path);
    cache_arg::check_kind(spec.options.cache, kind, path)?;
    if kind != ModelKind::Decoder {
        let shown = path.display();
        if let Some(packed) = spec.weights.filter(|format| *format != WeightFormat::F32) {
            let message = format!(
                "{shown} is an {}, whose weights are held in f32",
                kind.name()
            );
            let hint = format!("leave out --weights {} for it", packed.name());
            return Err(CliError::new(message).hint(hint));
        }
        if spec.follows && is_run(path) {
            let message = format!(
                "{shown} trains an {}, and --follow is for decoders",
                kind.name()
            );
            let path = shell_path(path);
            let hint = format!("serve its newest checkpoint: emberlm serve {path}");
            return Err(CliError::new(message).hint(hint));
        }
        if spec.follows {
            return Err(follow::no_run(path));
        }
    } else if spec.follows {
        follow::wait(path)?;
    } else if path.join(ADAPTER_CONFIG_FILE).exists() {
        return Ok(match Model::open(path) {
            Ok(model) => Opened::Model(OpenedModel::Decoder(Box::new(model))),
            Err(error @ ModelError::AdapterOnly { .. }) => Opened::Adapter(error),
            Err(error) => return Err(error.into()),
        });
    }
    OpenedModel::open(path).map(Opened::Model)
}

/// A model, and the smaller one that drafts its tokens.
pub struct ModelFiles {
    pub model: OpenedModel,
    pub draft: Option<Model>,
}

impl ModelFiles {
    /// Opens the draft model of a model.
    ///
    /// # Errors
    /// The model is not a decoder, or the draft model cannot be read or has another tokenizer.
    pub fn of(model: OpenedModel, spec: &ModelSpec) -> Result<Self, CliError> {
        let Some(path) = &spec.draft else {
            return Ok(Self { model, draft: None });
        };
        if !matches!(model, OpenedModel::Decoder(_)) {
            let (shown, kind) = (spec.path.display(), model.model().kind().named());
            let message = format!(
                "{shown} is {kind}, and a draft model ({}) is for decoders",
                path.display()
            );
            return Err(CliError::new(message)
                .hint("with --config, give each decoder its draft model: draft = \"PATH\""));
        }
        let tokenizer = model.tokenizer()?;
        let draft = draft_model::open(path, &spec.path, tokenizer.as_ref())?;
        Ok(Self {
            model,
            draft: Some(draft),
        })
    }
}

/// Checks everything that does not need weights.
pub fn plan<'a>(files: &'a ModelFiles, spec: &ModelSpec) -> Result<Plan<'a>, CliError> {
    let options = spec.options.clone();
    Ok(match &files.model {
        OpenedModel::Encoder(model) => Plan::Encoder(Box::new(EncoderPlan::new(model, options)?)),
        OpenedModel::Decoder(model) | OpenedModel::EncoderDecoder(model) => {
            let plan = LoadPlan::new(model, options)?;
            Plan::Generator(Box::new(match &files.draft {
                Some(draft) => plan.with_draft(draft)?,
                None => plan,
            }))
        }
    })
}

/// Loads a model again after it was unloaded from its place; `None` without a place.
pub fn reload<M>(
    place: Option<Place>,
    name: &str,
    log: &Log,
    load: impl Fn() -> Result<M, CliError> + Send + 'static,
) -> Option<Reload<M>> {
    let (name, log) = (name.to_owned(), log.clone());
    let load = move || {
        let model = load().map_err(|error| error.message().to_owned())?;
        log.note(format!("{name}: loaded again"));
        Ok(model)
    };
    place.map(|place| Reload {
        place,
        load: Box::new(load),
    })
}

/// The paths of a model, for an administrator.
pub fn source(spec: &ModelSpec, model: &Model) -> ModelSource {
    ModelSource {
        path: spec.path.clone(),
        base: model.has_adapter().then(|| groups::base_path(model)),
        follows: spec.follows,
        memory: None,
    }
}

/// The uses of an encoder, for the line about it.
fn encoder_uses(kind: &ServedKind) -> &'static str {
    let labels = match kind {
        ServedKind::Encoder(encoder) => encoder.classifier.as_ref(),
        ServedKind::Decoder { .. } | ServedKind::EncoderDecoder(_) => None,
    };
    match labels.map(|classifier| classifier.labels.len()) {
        None => "it embeds only",
        Some(1) => "it embeds, classifies and ranks documents",
        Some(_) => "it embeds and classifies",
    }
}

/// Loads an encoder's weights and starts its thread.
pub fn encoder<B: Backend>(
    spec: &ModelSpec,
    plan: EncoderPlan<'_>,
    place: Option<Place>,
    device: &Device<B>,
    log: &Log,
) -> Result<ServedModel, CliError> {
    let model = plan.model();
    let sign = progress::loading(model.model().path());
    let embedder = model.embedder::<B>(device)?;
    drop(sign);
    let (reopen, on) = (model.model().reopen(), device.clone());
    let again = move || Ok(EncoderModel::of(reopen()?)?.embedder::<B>(&on)?);
    let reload = reload(place, &plan.options().name, log, again);
    let mut served = plan.load(embedder, reload)?;
    served.source = source(spec, model.model());
    console::note(format_args!(
        "{}{}: {}, {} parameters; texts of at most {} tokens; {}",
        served.name,
        aliases(&served),
        model.model().about()?,
        HumanCount(parameters(model.config().parameters())),
        HumanCount(served.worker.limits().context as u64),
        encoder_uses(&served.kind),
    ));
    Ok(served)
}

fn parameters(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The aliases of a model, in parentheses.
pub fn aliases(served: &ServedModel) -> String {
    match &served.aliases[..] {
        [] => String::new(),
        aliases => format!(" (also {})", aliases.join(", ")),
    }
}

pub fn chats(served: &ServedModel) -> &'static str {
    match served.chat {
        Some(_) => "; chat is supported",
        None => "",
    }
}
