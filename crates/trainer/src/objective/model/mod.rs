//! The models in the form that Burn's learner expects.

use std::ops::Deref;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor};
use burn::train::{InferenceStep, ItemLazy, TrainOutput, TrainStep};
use emberlm_data::DataError;

use emberlm_kernels::{Backend, HeadLossOptions, Precision, TrainingBackend};
use emberlm_model::{
    ExpertLoad, GradientSink, ModelInput, ModelKind, Tokens, TrainingPass, Transformer,
};

use crate::objective::model::gradient_sums::GradientSums;
use crate::objective::{CompletionBatch, CompletionScores};

pub(crate) mod config;
pub(crate) mod gradient_sums;

/// Input tokens and their targets.
///
/// | objective | inputs | targets |
/// |---|---|---|
/// | next token | `[batch, seq]` | the next tokens, `[batch, seq]` |
/// | masked tokens | `[batch, seq]`, some of them replaced | the chosen tokens, `[batch, seq]` |
/// | labels | `[batch, seq]`, padded | the labels, `[batch, 1]` |
/// | preferences | chosen, then rejected sequences, `[2 · pairs, seq]`, padded | the completions' tokens, `[2 · pairs, seq]` |
/// | sampled completions | prompts with completions, `[completions, seq]`, padded | the completions' tokens, `[completions, seq]` |
/// | span corruption, pairs of texts | the sources, `[batch, source]`, padded | the targets, `[batch, target]` |
#[derive(Clone, Debug)]
pub struct TokenBatch<B: BurnBackend> {
    /// The input tokens, `[batch, seq]`, with document boundaries if documents are isolated.
    pub tokens: Tokens<B>,
    /// The segment of each input token, `[batch, seq]`; by default 0.
    pub segments: Option<Tensor<B, 2, Int>>,
    /// False at padding tokens of the inputs, `[batch, seq]`; by default there are none.
    pub padding: Option<Tensor<B, 2, Bool>>,
    /// The targets; [`emberlm_model::IGNORED_ELEMENT`] where there is no loss.
    pub targets: Tensor<B, 2, Int>,
    /// The number of targets with a loss, or of pairs or sampled completions.
    pub learnt: usize,
    /// The completions of an objective that learns from preferences or rewards.
    pub completions: Option<CompletionBatch>,
}

impl<B: BurnBackend> TokenBatch<B> {
    /// The number of input positions, `batch * seq`.
    pub fn count(&self) -> usize {
        self.tokens.dims().iter().product()
    }

    /// The sequences of a batch of continuous text, cut into sequences of `seq_len` tokens, which divides them.
    pub(crate) fn cut(mut self, seq_len: usize) -> Self {
        let shape = [self.count() / seq_len.max(1), seq_len];
        self.tokens.ids = self.tokens.ids.reshape(shape);
        self.targets = self.targets.reshape(shape);
        self
    }

    /// The input of a model.
    fn input(&self, model: &Transformer<B>) -> ModelInput<B>
    where
        B: Backend,
    {
        let is_pair = model.config().kind() == ModelKind::EncoderDecoder;
        ModelInput {
            tokens: self.tokens.clone(),
            segments: self.segments.clone(),
            padding: self.padding.clone(),
            target: is_pair.then(|| model.shifted_right(self.targets.clone())),
        }
    }
}

/// A model in training: Burn's steps cannot be implemented for a type of another crate.
#[derive(Module, Debug)]
pub struct TrainingModel<B: BurnBackend> {
    /// The model.
    pub model: Transformer<B>,
}

impl<B: BurnBackend> From<Transformer<B>> for TrainingModel<B> {
    fn from(model: Transformer<B>) -> Self {
        Self { model }
    }
}

impl<B: BurnBackend> Deref for TrainingModel<B> {
    type Target = Transformer<B>;

    fn deref(&self) -> &Transformer<B> {
        &self.model
    }
}

impl<B: Backend> TrainingModel<B> {
    /// Sets the precision of the matrix products.
    pub(crate) fn with_precision(self, precision: Precision) -> Self {
        self.model.with_precision(precision).into()
    }

    /// Sets the windows of attention, or those of the model's configuration.
    pub(crate) fn with_window(self, tokens: Option<usize>) -> Self {
        self.model.with_window(tokens).into()
    }

    /// The decoder; `None` for another model.
    pub fn decoder(&self) -> Option<&Transformer<B>> {
        (self.config().kind() == ModelKind::Decoder).then_some(&self.model)
    }

    /// The loss in nats, summed over the batch's targets, `[1]`. NaN for an encoder without a head for the targets.
    pub fn loss_sum(&self, batch: TokenBatch<B>) -> Tensor<B, 1> {
        if batch.completions.is_some() {
            let scores = self.completion_scores(&batch);
            return Tensor::full([1], scores.loss_sum() as f32, &self.device());
        }
        match self.config().kind() {
            ModelKind::Decoder => self.model.loss_sum(batch.tokens, batch.targets),
            ModelKind::Encoder => {
                let states = self.states(batch.input(&self.model));
                self.head_loss(states, &batch, HeadLossOptions::default())
            }
            ModelKind::EncoderDecoder => {
                let source = self.encode_source(batch.tokens.ids, batch.padding);
                self.target_loss_sum(batch.targets, &source)
            }
        }
    }

    /// The losses and rewards of a batch's completions; those of none for a batch without completions or another model.
    pub fn completion_scores(&self, batch: &TokenBatch<B>) -> CompletionScores {
        let Some(completions) = &batch.completions else {
            return CompletionScores::default();
        };
        let (hidden, ids) = (self.hidden_states(batch.tokens.clone()), &batch.tokens.ids);
        completions
            .loss_sum(&self.model, hidden, ids, &batch.targets)
            .1
    }

    /// The log-probabilities of the tokens of each completion of a batch; of preferences, the chosen and then the rejected
    /// ones, only their sums. Empty for a batch without completions or another model.
    pub fn completion_log_probabilities(&self, batch: &TokenBatch<B>) -> Vec<Vec<f64>> {
        let Some(completions) = &batch.completions else {
            return Vec::new();
        };
        let hidden = self.hidden_states(batch.tokens.clone());
        completions.log_probabilities(&self.model, &hidden, &batch.targets)
    }

    /// The logits of the labels, `[batch, labels]`, of an encoder that classifies texts. `None` for another model.
    pub fn class_logits(&self, batch: &TokenBatch<B>) -> Option<Tensor<B, 2>> {
        let states = || self.states(batch.input(&self.model));
        let is_encoder = self.config().kind() == ModelKind::Encoder;
        let states = is_encoder.then(states)?;
        self.model
            .class_logits(self.class_states(states, batch.padding.clone()))
    }

    /// The loss of an encoder's head, `[1]`; NaN without a head for the targets.
    fn head_loss(
        &self,
        states: Tensor<B, 3>,
        batch: &TokenBatch<B>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let (padding, targets) = (batch.padding.clone(), batch.targets.clone());
        let loss = self.head_loss_sum(states, padding, targets, options);
        loss.unwrap_or_else(|| Tensor::full([1], f32::NAN, &self.device()))
    }
}

/// The results of a training pass over a batch, without its gradients.
pub struct BatchPass<B: BurnBackend> {
    /// The loss divided by the step's targets, `[1]`.
    pub loss: Tensor<B, 1>,
    /// The tokens of each expert.
    pub expert_load: ExpertLoad,
    /// The scores of the batch's completions.
    pub completions: CompletionScores,
}

impl<B: TrainingBackend> TrainingModel<B> {
    /// The summed loss divided by `divisor`, on the device and detached from the graph, with its gradients and the
    /// tokens of each expert. Loss and gradients include the terms that `options` adds to the cross-entropy, and the
    /// losses of routers, weighted by the batch's share of `divisor`. `scale` multiplies only the gradients.
    pub fn loss_and_gradients(
        &self,
        batch: TokenBatch<B>,
        divisor: usize,
        options: HeadLossOptions,
        pass: TrainingPass,
        scale: Option<f64>,
    ) -> (Tensor<B::InnerBackend, 1>, GradientsParams, ExpertLoad) {
        let sums = GradientSums::default();
        let made = self.streamed_gradients(batch, divisor, options, pass, scale, &sums.sink());
        (made.loss, sums.into_gradients(), made.expert_load)
    }

    /// [`TrainingModel::loss_and_gradients`] with the scores of completions. The options do not apply to these. The
    /// gradients are handed to `sink` as soon as they are complete.
    pub fn streamed_gradients(
        &self,
        batch: TokenBatch<B>,
        divisor: usize,
        options: HeadLossOptions,
        pass: TrainingPass,
        scale: Option<f64>,
        sink: &GradientSink<B>,
    ) -> BatchPass<B::InnerBackend> {
        let mut scores = None;
        let mut unscaled = None;
        let mut scaled = |sum: Tensor<B, 1>| {
            let mean = sum / divisor as f64;
            match scale {
                Some(scale) => {
                    unscaled = Some(mean.clone().inner());
                    mean * scale
                }
                None => mean,
            }
        };
        let share = batch.learnt as f64 / divisor as f64;
        let routers = self.config().router_coefficients();
        let routers = routers.times(share * scale.unwrap_or(1.0));
        let input = batch.input(&self.model);
        let is_encoder = self.config().kind() == ModelKind::Encoder;
        let loss = |hidden| match &batch.completions {
            Some(completions) => {
                let (ids, targets) = (&batch.tokens.ids, &batch.targets);
                let (sum, found) = completions.loss_sum(&self.model, hidden, ids, targets);
                scores = Some(found);
                scaled(sum)
            }
            None if is_encoder => scaled(self.head_loss(hidden, &batch, options)),
            None => {
                let targets = batch.targets.clone();
                scaled(self.training_loss_sum_of(hidden, targets, options))
            }
        };
        let made = self
            .model
            .streamed_gradients(input, pass, routers, loss, sink);
        let mut value = match scores {
            Some(scores) => {
                let loss = scores.loss_sum() / divisor as f64;
                Tensor::full([1], loss as f32, &self.device())
            }
            None => unscaled.unwrap_or(made.loss),
        };
        if let Some(router_loss) = made.router_loss {
            value = value + router_loss / scale.unwrap_or(1.0);
        }
        BatchPass {
            loss: value,
            expert_load: made.expert_load,
            completions: scores.unwrap_or_default(),
        }
    }
}

impl<B: BurnBackend> BatchPass<B> {
    /// A pass without completions.
    fn of_loss(loss: Tensor<B, 1>) -> Self {
        Self {
            loss,
            expert_load: ExpertLoad::default(),
            completions: CompletionScores::default(),
        }
    }
}

/// Burn's learner hands it over with the loss still on the device.
impl<B: BurnBackend> ItemLazy for BatchPass<B> {
    type ItemSync = Self;

    fn sync(self) -> Self {
        self
    }
}

/// A step for Burn's own strategies, with the cross-entropy as the loss; NaN without gradients for data that cannot be
/// read. This crate's strategy uses [`TrainingModel::streamed_gradients`] instead.
impl<B: TrainingBackend> TrainStep for TrainingModel<B> {
    type Input = Result<TokenBatch<B>, DataError>;
    type Output = BatchPass<B::InnerBackend>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        let sums = GradientSums::default();
        let item = match batch {
            Ok(batch) => {
                let count = batch.learnt.max(1);
                let (options, pass) = (HeadLossOptions::default(), TrainingPass::default());
                self.streamed_gradients(batch, count, options, pass, None, &sums.sink())
            }
            Err(_) => BatchPass::of_loss(Tensor::full([1], f32::NAN, &self.device())),
        };
        TrainOutput {
            grads: sums.into_gradients(),
            item,
        }
    }
}

/// The mean loss of a batch; NaN for data that cannot be read.
impl<B: Backend> InferenceStep for TrainingModel<B> {
    type Input = Result<TokenBatch<B>, DataError>;
    type Output = BatchPass<B>;

    fn step(&self, batch: Self::Input) -> BatchPass<B> {
        BatchPass::of_loss(match batch {
            Ok(batch) => {
                let count = batch.learnt.max(1);
                self.loss_sum(batch) / count as f64
            }
            Err(_) => Tensor::full([1], f32::NAN, &self.device()),
        })
    }
}
