//! What commands accept as MODEL: a run's directory, for its newest whole checkpoint, a checkpoint's or a new model's, or
//! a Hugging Face model's.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use emberlm_data::{Dataset, MANIFEST_FILE, Packing};
use emberlm_generate::SettingError;
use emberlm_kernels::{Backend, memory};
use emberlm_model::hugging_face::{CONFIG_FILE, HuggingFaceModel};
use emberlm_model::weights::Element;
use emberlm_model::{Decoder, DecoderConfig, WeightFormat, families};
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate, Stops};
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerKind, TokenizerSpec};
use emberlm_trainer::checkpoint::Checkpoint;
use indicatif::HumanCount;
use serde_json::Value;

use crate::error::{CliError, warn};

/// The most tokens that a cache is made for where nothing is said: it is allocated at once.
const USUAL_CONTEXT: usize = 8192;

/// A model whose configuration has been read.
#[derive(Debug)]
pub struct Model {
    source: Source,
    config: DecoderConfig,
}

#[derive(Debug)]
enum Source {
    Own(Box<Checkpoint>),
    HuggingFace(Box<HuggingFaceModel>),
}

impl Model {
    /// Opens what `path` names.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let is_directory = fs::metadata(path)
            .map_err(|error| missing(path, error))?
            .is_dir();
        let holds = |name: &str| path.join(name).exists();
        if !is_directory {
            return Err(file(path));
        }
        if holds("model.json") {
            return Self::own(Checkpoint::open(path)?);
        }
        if holds("checkpoints") {
            let newest = Checkpoint::newest(path, |damaged| {
                warn(&format!("{damaged}; using the one before"));
            })?;
            return Self::own(newest.ok_or_else(|| no_checkpoint(path))?);
        }
        if holds(CONFIG_FILE) {
            let model = HuggingFaceModel::open(path)?;
            return Ok(Self {
                config: model.config().clone(),
                source: Source::HuggingFace(Box::new(model)),
            });
        }
        Err(foreign(path, holds))
    }

    fn own(checkpoint: Checkpoint) -> Result<Self, CliError> {
        Ok(Self {
            config: DecoderConfig::try_from(checkpoint.description.model.clone())?,
            source: Source::Own(Box::new(checkpoint)),
        })
    }

    /// The directory that its files are in.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::Own(checkpoint) => &checkpoint.path,
            Source::HuggingFace(model) => model.path(),
        }
    }

    /// What it is.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// It as a Hugging Face directory, if it is one.
    pub fn hugging_face(&self) -> Option<&HuggingFaceModel> {
        match &self.source {
            Source::Own(_) => None,
            Source::HuggingFace(model) => Some(model),
        }
    }

    /// One line on where it comes from.
    pub fn about(&self) -> Result<String, CliError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => match &checkpoint.state {
                Some(state) => {
                    format!("a checkpoint after {} steps", HumanCount(state.step as u64))
                }
                None => "a model that has not been trained".to_owned(),
            },
            Source::HuggingFace(model) => {
                let kind = model.config().family.model_type().unwrap_or_default();
                let element = model.element()?.name();
                format!("a Hugging Face model of type {kind}, stored in {element}")
            }
        })
    }

    /// The type of numbers that its weights are stored in.
    pub fn element(&self) -> Result<Element, CliError> {
        Ok(match &self.source {
            Source::Own(_) => Element::F32,
            Source::HuggingFace(model) => model.element()?,
        })
    }

    /// The model with its weights.
    pub fn decoder<B: Backend>(&self, device: &Device<B>) -> Result<Decoder<B>, CliError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => checkpoint.decoder(device)?,
            Source::HuggingFace(model) => model.decoder(device)?,
        })
    }

    /// The model for prediction, with its weights in a format. The memory that packing frees goes back to the system:
    /// generation takes little.
    pub fn decoder_in<B: Backend>(
        &self,
        weights: WeightFormat,
        device: &Device<B>,
    ) -> Result<Decoder<B>, CliError> {
        let made = || Ok(self.decoder(device)?.with_weights(weights));
        match weights {
            WeightFormat::F32 => made(),
            WeightFormat::Packed(_) => memory::returning_freed(made),
        }
    }

    /// How documents came into the sequences that it was trained on, as far as it is known.
    pub fn documents(&self) -> Packing {
        match &self.source {
            Source::Own(checkpoint) => checkpoint.description.documents,
            Source::HuggingFace(_) => Packing::Stream,
        }
    }

    /// What its token ids stand for, if that is known.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, CliError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => checkpoint.tokenizer()?,
            Source::HuggingFace(model) => {
                let file = model.path().join(TOKENIZER_FILE);
                file.exists()
                    .then(|| Tokenizer::from_file(&file))
                    .transpose()?
            }
        })
    }

    /// What its token ids stand for, where a text is asked for and answered.
    ///
    /// # Errors
    /// It has no tokenizer.
    pub fn speaking(&self, path: &Path) -> Result<Tokenizer, CliError> {
        self.tokenizer()?.ok_or_else(|| {
            let path = path.display();
            let message = format!("{path} has no tokenizer, so it cannot read text");
            CliError::new(message).hint(format!(
                "continue token ids: emberlm generate {path} --tokens 1,2,3"
            ))
        })
    }

    /// The tokens that a cache is made for: those asked for, else the model's context, but at most 8192.
    ///
    /// # Errors
    /// They are more than the model's context.
    pub fn context(&self, asked: Option<usize>) -> Result<usize, CliError> {
        let whole = self.config.seq_len;
        match asked {
            Some(context) if context > whole => Err(SettingError::new(
                "context",
                context,
                format!("must be at most {whole}, the model's"),
            )
            .into()),
            Some(context) => Ok(context),
            None => Ok(whole.min(USUAL_CONTEXT)),
        }
    }

    /// What its token ids stand for, without reading a built-in vocabulary.
    pub fn tokenizer_spec(&self) -> Result<Option<TokenizerSpec>, CliError> {
        match &self.source {
            Source::Own(checkpoint) => Ok(checkpoint.description.tokenizer.clone()),
            Source::HuggingFace(_) => Ok(self.tokenizer()?.map(|tokenizer| tokenizer.spec())),
        }
    }

    /// The tokenizer, unless it is known without reading it to have this hash.
    fn tokenizer_unless(&self, hash: &str) -> Result<Option<Tokenizer>, CliError> {
        let known = match &self.source {
            Source::Own(checkpoint) => checkpoint.description.tokenizer.as_ref(),
            Source::HuggingFace(_) => None,
        };
        match known {
            Some(spec) if spec.hash == hash => Ok(None),
            _ => self.tokenizer(),
        }
    }

    /// The ids that end a text: its tokenizer's, and what a Hugging Face configuration names beside it.
    pub fn stop_tokens(&self, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
        let mut ids: Vec<u32> = tokenizer
            .and_then(Tokenizer::end_of_text)
            .into_iter()
            .collect();
        if let Source::HuggingFace(model) = &self.source {
            ids.extend(token_ids(model.fields().get("eos_token_id")));
            ids.extend(token_ids(
                generation_field(model.path(), "eos_token_id").as_ref(),
            ));
        }
        // A model smaller than its tokenizer's vocabulary can never choose it.
        ids.retain(|&id| (id as usize) < self.config.vocab_size);
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What makes prompts of conversations: by the template that is `asked` for (chatml, llama3 or a path), else by the
    /// model's own; none where it has none.
    ///
    /// What `emberlm train` made has seen the end of a text before every conversation, so prompts begin with it.
    pub fn chat(
        &self,
        tokenizer: &Tokenizer,
        asked: Option<&str>,
    ) -> Result<Option<ChatEncoder>, CliError> {
        let template = match asked {
            Some(asked) => Some(asked.parse()?),
            None => self.chat_template()?,
        };
        let beginning = match &self.source {
            Source::Own(_) => tokenizer.end_of_text().into_iter().collect(),
            Source::HuggingFace(_) => Vec::new(),
        };
        Ok(
            template
                .map(|template| ChatEncoder::new(template, tokenizer).with_beginning(beginning)),
        )
    }

    /// Its own chat template: that of the dataset it was trained on, or what lies beside a Hugging Face model.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, CliError> {
        Ok(match &self.source {
            Source::Own(checkpoint) => {
                let spec = checkpoint.description.chat_template.as_ref();
                spec.map(ChatTemplate::try_from).transpose()?
            }
            Source::HuggingFace(model) => ChatTemplate::beside_model(model.path())?,
        })
    }

    /// What ends an answer of its: [`ChatEncoder::stops`], and [`Model::stop_tokens`].
    pub fn chat_stops(&self, tokenizer: &Tokenizer, encoder: &ChatEncoder) -> Stops {
        let mut stops = encoder.stops();
        stops.tokens.extend(self.stop_tokens(Some(tokenizer)));
        stops
            .tokens
            .retain(|&id| (id as usize) < self.config.vocab_size);
        stops.tokens.sort_unstable();
        stops.tokens.dedup();
        stops
    }

    /// The id that begins a text without a prompt, if there is one.
    pub fn beginning(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let named = match &self.source {
            Source::Own(_) => None,
            Source::HuggingFace(model) => token_ids(model.fields().get("bos_token_id"))
                .first()
                .copied(),
        };
        let known = named.filter(|&id| (id as usize) < self.config.vocab_size);
        known.or_else(|| tokenizer.end_of_text())
    }

    /// A dataset's ids must mean to the model what they mean to it.
    pub fn check_dataset(&self, dataset: &Dataset) -> Result<(), CliError> {
        let (model, data) = (self.path().display(), dataset.folder().display());
        let of_data = &dataset.manifest().tokenizer;
        if let Some(of_model) = self.tokenizer_unless(&of_data.hash)?
            && !of_model.agrees_with(dataset.tokenizer())
        {
            let of_model = of_model.spec();
            let message = format!(
                "{data} was made with another tokenizer than the model's: {} there, {} in {model}",
                named(of_data),
                named(&of_model),
            );
            let own = match of_model.kind {
                TokenizerKind::File => self.path().display().to_string(),
                builtin => builtin.to_string(),
            };
            return Err(CliError::new(message)
                .hint(format!("prepare the text again with --tokenizer {own}")));
        }
        let (vocab_size, ids) = (self.config.vocab_size, of_data.vocab_size);
        if ids > vocab_size {
            let message =
                format!("{data} has {ids} token ids, but the model in {model} knows {vocab_size}");
            return Err(
                CliError::new(message).hint("prepare the text again with the model's tokenizer")
            );
        }
        Ok(())
    }
}

/// The tokenizer, where text has to be read.
///
/// # Errors
/// The model at `path` has none.
pub fn needed<'a>(
    tokenizer: Option<&'a Tokenizer>,
    path: &Path,
) -> Result<&'a Tokenizer, CliError> {
    tokenizer.ok_or_else(|| {
        let message = format!(
            "{} has no tokenizer, so it cannot read text",
            path.display()
        );
        CliError::new(message).hint("give the prompt as token ids: --tokens 1,2,3")
    })
}

fn named(spec: &TokenizerSpec) -> String {
    let hash: String = spec.hash.chars().take(8).collect();
    format!(
        "{} ({} ids, {hash}…)",
        spec.kind,
        HumanCount(spec.vocab_size as u64)
    )
}

/// One id, or a list of them.
fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// A field of the `generation_config.json` beside the model, where there is one that can be read.
fn generation_field(folder: &Path, field: &str) -> Option<Value> {
    let text = read_text(&folder.join("generation_config.json"), DESCRIPTION_LIMIT).ok()?;
    let mut fields: Value = serde_json::from_str(&text).ok()?;
    fields.get_mut(field).map(Value::take)
}

/// What MODEL is.
const EXPECTED: &str = "give a run's directory (the --out of `emberlm train`), one of its checkpoints/step-…, \
    or a Hugging Face model's";

fn file(path: &Path) -> CliError {
    let message = format!("{} is a file, not a model's directory", path.display());
    let pickled = ["pt", "pth", "bin", "ckpt"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|extension| pickled.contains(&extension)) {
        return CliError::new(message)
            .hint("a PyTorch pickle can run any program when it is opened, so none is read")
            .hint("save it as safetensors where you trust it: in Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)");
    }
    CliError::new(message).hint(EXPECTED)
}

fn missing(path: &Path, error: std::io::Error) -> CliError {
    if error.kind() != std::io::ErrorKind::NotFound {
        return CliError::io("read", path)(error);
    }
    let this = CliError::new(format!("no such model: {}", path.display()));
    match path.to_str().and_then(families::preset) {
        Some(preset) => {
            let name = preset.name;
            this.hint(format!(
                "`{name}` is a preset, which has no weights yet: emberlm train --preset {name} --data DATASET --out RUN"
            ))
            .hint(format!("or its first weights: emberlm new --preset {name} --out MODEL"))
        }
        None => this.hint(EXPECTED),
    }
}

fn no_checkpoint(path: &Path) -> CliError {
    CliError::new(format!("{} has no checkpoint yet", path.display()))
        .hint("a run writes them as it goes and when it ends, Ctrl-C included")
}

/// A directory that is something else.
fn foreign(path: &Path, holds: impl Fn(&str) -> bool) -> CliError {
    let path = path.display();
    if holds(MANIFEST_FILE) {
        CliError::new(format!("{path} is a dataset, not a model")).hint(format!(
            "train one on it: emberlm train --data {path} --out RUN"
        ))
    } else {
        CliError::new(format!("{path} holds no model")).hint(EXPECTED)
    }
}
