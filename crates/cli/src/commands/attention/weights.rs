//! The attention weights of a model of any kind, on the host.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};
use clap::ValueEnum;
use emberlm_checkpoint::{Model, ModelKind, kind_of};
use emberlm_generate::{GenerateOptions, Generator, SamplerConfig};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{Transformer, id_tensor};
use emberlm_tokenizer::Tokenizer;

use super::AttentionArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::head_habits::AttentionPattern;
use crate::model::needed;
use crate::opened_model::OpenedModel;
use crate::text_arg::encoded;

/// The most tokens of a target that the model generates itself.
const TARGET_TOKENS: usize = 32;

/// An attention of an encoder–decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AttentionOf {
    /// The encoder's self-attention, of the source
    Encoder,
    /// The decoder's self-attention, of the target
    Decoder,
    /// The decoder's attention to the source
    Cross,
}

/// A model and the tokens to look at.
pub struct Subject {
    model: OpenedModel,
    of: AttentionOf,
    /// The text, or the source of an encoder–decoder.
    pub tokens: Vec<u32>,
    /// The target of an encoder–decoder, without the start token, if it is given.
    target: Option<Vec<u32>>,
    pub tokenizer: Option<Tokenizer>,
}

/// The tokens that attend and those that are attended to.
pub struct Attended {
    pub queries: Vec<u32>,
    pub keys: Vec<u32>,
    /// By layer, then head: `[queries, keys]`.
    pub weights: Vec<Vec<Vec<f32>>>,
}

impl Subject {
    /// Opens the model and encodes the text.
    ///
    /// # Errors
    /// The model cannot be opened, does not have the requested attention, or cannot process the text.
    pub fn open(args: &AttentionArgs) -> Result<Self, CliError> {
        let kind = kind_of(&args.model);
        let of = match (kind, args.of) {
            (ModelKind::EncoderDecoder, of) => of.unwrap_or(AttentionOf::Cross),
            (ModelKind::Encoder, None | Some(AttentionOf::Encoder)) => AttentionOf::Encoder,
            (ModelKind::Decoder, None | Some(AttentionOf::Decoder)) => AttentionOf::Decoder,
            (kind, Some(_)) => return Err(only_of_encoder_decoders(args, "--of", kind)),
        };
        let given = [
            ("--target", args.target.is_some()),
            ("--target-tokens", args.target_tokens.is_some()),
        ];
        if kind != ModelKind::EncoderDecoder
            && let Some((option, _)) = given.into_iter().find(|(_, given)| *given)
        {
            return Err(only_of_encoder_decoders(args, option, kind));
        }
        let path = &args.model;
        let model = OpenedModel::open_with(path, &args.adapter)?;
        let tokenizer = model.tokenizer()?;
        let tokens = match &args.prompt {
            Some(text) => encoded(text, &model, path)?,
            None => args.tokens.clone().unwrap_or_default(),
        };
        let target = match (&args.target, &args.target_tokens) {
            (Some(text), _) => Some(needed(tokenizer.as_ref(), path)?.encode(text)?),
            (None, ids) => ids.clone(),
        };
        model.check_tokens(&tokens)?;
        if let Some(target) = target.as_ref().filter(|target| !target.is_empty()) {
            model.check_tokens(target)?;
        }
        Ok(Self {
            model,
            of,
            tokens,
            target,
            tokenizer,
        })
    }

    /// The queries and keys of the attention.
    pub fn pattern(&self) -> AttentionPattern {
        match self.of {
            AttentionOf::Encoder => AttentionPattern::Full,
            AttentionOf::Decoder => AttentionPattern::Causal,
            AttentionOf::Cross => AttentionPattern::Cross,
        }
    }

    /// The name of the attention, for headings.
    pub fn name(&self) -> &'static str {
        match (&self.model, self.of) {
            (OpenedModel::Decoder(_) | OpenedModel::Encoder(_), _) => "Attention",
            (OpenedModel::EncoderDecoder(_), AttentionOf::Encoder) => "Encoder self-attention",
            (OpenedModel::EncoderDecoder(_), AttentionOf::Decoder) => "Decoder self-attention",
            (OpenedModel::EncoderDecoder(_), AttentionOf::Cross) => "Cross-attention",
        }
    }

    /// The number of layers and of heads.
    pub fn sizes(&self) -> (usize, usize) {
        let config = self.model.config();
        let layers = match self.of {
            AttentionOf::Encoder if config.encoder_layers() > 0 => config.encoder_layers(),
            AttentionOf::Encoder | AttentionOf::Decoder | AttentionOf::Cross => config.n_layers(),
        };
        (layers, config.heads())
    }

    /// The chosen layers without those that have a delta net.
    pub fn with_weights(&self, chosen: Vec<usize>) -> Result<Vec<usize>, CliError> {
        let have = self.layers_with_weights();
        let kept = chosen.iter().filter(|layer| have.contains(layer));
        let kept: Vec<usize> = kept.copied().collect();
        if kept.is_empty() {
            let listed = have.iter().map(ToString::to_string).collect::<Vec<_>>();
            let hint = match listed.as_slice() {
                [] => "no layer of this model has any".to_owned(),
                listed => format!("the layers that have some are {}", listed.join(", ")),
            };
            let error = "a delta net has no attention weights";
            return Err(CliError::new(error).hint(hint));
        }
        Ok(kept)
    }

    /// The layers that have attention weights.
    fn layers_with_weights(&self) -> Vec<usize> {
        let nets = self.model.config().delta_nets();
        let (layers, _) = self.sizes();
        let nets = nets.map_or_else(Vec::new, |nets| nets.layers(layers));
        (0..layers).filter(|layer| !nets.contains(layer)).collect()
    }
}

/// The error for an option that only encoder–decoders have.
fn only_of_encoder_decoders(args: &AttentionArgs, option: &str, kind: ModelKind) -> CliError {
    let article = match kind {
        ModelKind::Decoder => "a",
        ModelKind::Encoder | ModelKind::EncoderDecoder => "an",
    };
    let (path, kind) = (args.model.display(), kind.name());
    CliError::new(format!(
        "{option} is for encoder–decoders, and {path} is {article} {kind}"
    ))
    .hint(format!("leave {option} out"))
}

/// Computes the weights of some layers and heads.
pub struct Weights<'a> {
    pub subject: &'a Subject,
    pub layers: &'a [usize],
    pub heads: &'a [usize],
    /// Checks the numbers of queries and of keys before the weights are computed.
    pub check: &'a dyn Fn(usize, usize) -> Result<(), CliError>,
}

impl Job for Weights<'_> {
    type Output = Result<Attended, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let subject = self.subject;
        let tokens = &subject.tokens;
        let row = |ids: &[u32]| id_tensor::<B::InnerBackend>(ids, [1, ids.len()], &device);
        match &subject.model {
            OpenedModel::Decoder(model) => {
                (self.check)(tokens.len(), tokens.len())?;
                let decoder = model.decoder::<B::InnerBackend>(&device)?;
                let ids = row(tokens);
                self.attended(tokens, tokens, decoder.attention_weights(ids))
            }
            OpenedModel::Encoder(model) => {
                (self.check)(tokens.len(), tokens.len())?;
                let encoder = model.load::<B::InnerBackend>(&device)?;
                let ids = row(tokens);
                self.attended(tokens, tokens, encoder.text_attention_weights(ids))
            }
            OpenedModel::EncoderDecoder(model) => {
                let loaded = model.decoder::<B::InnerBackend>(&device)?;
                let target = self.target(model, &loaded)?;
                let (queries, keys) = match subject.of {
                    AttentionOf::Encoder => (tokens, tokens),
                    AttentionOf::Decoder => (&target, &target),
                    AttentionOf::Cross => (&target, tokens),
                };
                (self.check)(queries.len(), keys.len())?;
                let source = row(tokens);
                let targets = row(&target);
                let encode = || loaded.encode_source(source.clone(), None);
                let weights = match subject.of {
                    AttentionOf::Encoder => loaded.encoder_attention_weights(source, None),
                    AttentionOf::Decoder => loaded.decoder_attention_weights(targets, &encode()),
                    AttentionOf::Cross => loaded.cross_attention_weights(targets, &encode()),
                };
                self.attended(queries, keys, weights)
            }
        }
    }
}

impl Weights<'_> {
    /// The decoder's input: the start token, then the target, by default the most probable one.
    fn target<B: Backend>(
        &self,
        model: &Model,
        loaded: &Transformer<B>,
    ) -> Result<Vec<u32>, CliError> {
        let target = match &self.subject.target {
            Some(target) => target.clone(),
            None => {
                let options = GenerateOptions {
                    max_new_tokens: TARGET_TOKENS,
                    stop_tokens: model.stop_tokens(self.subject.tokenizer.as_ref()),
                    chooser: SamplerConfig::greedy().into(),
                    ..GenerateOptions::default()
                };
                let generator = Generator::new(loaded, &self.subject.tokens, &options)?;
                generator.collect::<Result<_, _>>()?
            }
        };
        let start = model.config().start_token().unwrap_or(0);
        Ok(std::iter::once(start).chain(target).collect())
    }

    /// Copies the weights `[1, heads, queries, keys]` of the chosen layers and heads to the host.
    fn attended<B: BurnBackend>(
        &self,
        queries: &[u32],
        keys: &[u32],
        weights: Vec<Tensor<B, 4>>,
    ) -> Result<Attended, CliError> {
        let have = self.subject.layers_with_weights();
        let layers = have.into_iter().zip(weights);
        let layers = layers.filter(|(layer, _)| self.layers.contains(layer));
        let heads = |weights: Tensor<B, 4>| {
            let head = |&head: &usize| weights.clone().narrow(1, head, 1).into_data();
            let data = self.heads.iter().map(head);
            data.map(|data| data.iter::<f32>().collect()).collect()
        };
        Ok(Attended {
            queries: queries.to_vec(),
            keys: keys.to_vec(),
            weights: layers.map(|(_, weights)| heads(weights)).collect(),
        })
    }
}
