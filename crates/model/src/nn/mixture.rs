//! A mixture of experts: several feed-forward layers, of which a router chooses a few for each token.
//!
//! ```text
//! p = softmax(x R)                       a probability for each expert, in f32
//! y = Σ wₑ · expertₑ(x)                  over the `active` experts with the largest probabilities; wₑ is pₑ, or
//!                                        pₑ / Σ p of the chosen ones
//!   + σ(x s) · shared(x)                 where there is a shared expert
//! ```
//!
//! The tokens of each expert are computed together: their rows are gathered, go through the expert's linear layers in
//! one product each, and are added to the result with their weights. The weights of an expert that no token chose are
//! not read. The choice is made on the host: one transfer of `[tokens, count]` logits per layer.

use burn::module::{Module, Param};
use burn::tensor::activation::sigmoid;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{Backend, ops};

use crate::config::ExpertScores;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::context::FeedForwardContext;
use crate::nn::feed_forward::{FeedForward, FeedForwardConfig};
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig, LinearWeight};
use crate::nn::probe::Point;
use crate::nn::routing::{Chosen, RoutingRule, softmax};

/// The configuration of a [`Mixture`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixtureConfig {
    /// One expert.
    pub expert: FeedForwardConfig,
    /// Number of experts.
    pub count: usize,
    /// The choice of a token's experts.
    pub routing: RoutingRule,
    /// True if a number per expert is added to the scores for the choice.
    pub choice_bias: bool,
    /// Hidden elements of the shared expert, which computes every token; `None` if there is none.
    pub shared_width: Option<usize>,
    /// True if the shared expert has a gate.
    pub shared_gate: bool,
}

impl MixtureConfig {
    /// `count` experts of which `active` compute a token, with weights that add up to 1, without a shared expert.
    pub const fn new(expert: FeedForwardConfig, count: usize, active: usize) -> Self {
        Self {
            expert,
            count,
            routing: RoutingRule::new(active),
            choice_bias: false,
            shared_width: None,
            shared_gate: true,
        }
    }

    /// The router, `[d_model, count]`, with a bias if the experts have some.
    pub(crate) fn router(&self) -> LinearConfig {
        LinearConfig::new(self.expert.d_model, self.count).with_bias(self.expert.bias)
    }

    /// Number of biases of the choice.
    pub(crate) fn choice_biases(&self) -> usize {
        if self.choice_bias { self.count } else { 0 }
    }

    /// The shared expert and its gate `[d_model, 1]`, if any.
    pub(crate) fn shared(&self) -> Option<(FeedForwardConfig, Option<LinearConfig>)> {
        let width = self.shared_width?;
        let shared = FeedForwardConfig {
            width,
            ..self.expert
        };
        let gate = LinearConfig::new(self.expert.d_model, 1);
        Some((shared, self.shared_gate.then_some(gate)))
    }

    /// Builds a mixture with the initial weights of [`LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Mixture<B> {
        self.init_from(&Initializer::standalone(self.expert.d_model, device), "")
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> Mixture<B> {
        let linear = |config: LinearConfig, name: &str| {
            config.init_from(from, &format!("{path}.{name}"), OutputRole::Hidden)
        };
        let expert = |number| {
            let path = format!("{path}.experts.{number}");
            self.expert.init_from(from, &path)
        };
        Mixture {
            router: linear(self.router(), "router"),
            experts: (0..self.count).map(expert).collect(),
            shared: self.shared().map(|(shared, gate)| SharedExpert {
                gate: gate.map(|gate| linear(gate, "shared.gate")),
                expert: shared.init_from(from, &format!("{path}.shared.expert")),
            }),
            choice_bias: self.choice_bias.then(|| {
                let zeros = from.constant(0.0, self.count);
                zeros.set_require_grad(false)
            }),
            routing: RoutingRule {
                active: self.routing.active.clamp(1, self.count.max(1)),
                ..self.routing
            },
        }
    }
}

/// Feed-forward layers of which a router chooses a few for each token.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::nn::{FeedForwardConfig, MixtureConfig};
///
/// let device = Default::default();
/// let config = MixtureConfig::new(FeedForwardConfig::new(16, 40), 4, 2);
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// assert_eq!(config.init::<Flex>(&device).forward(x, None, None).dims(), [2, 3, 16]);
/// ```
#[derive(Module, Debug)]
pub struct Mixture<B: BurnBackend> {
    /// `[d_model, count]`, multiplied in f32 whatever the precision of the other layers.
    pub router: Linear<B>,
    /// The experts.
    pub experts: Vec<FeedForward<B>>,
    /// The expert of every token.
    pub shared: Option<SharedExpert<B>>,
    /// Added to the scores for the choice of experts, `[count]`. It has no gradient.
    pub choice_bias: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    routing: RoutingRule,
}

/// An expert that computes every token.
#[derive(Module, Debug)]
pub struct SharedExpert<B: BurnBackend> {
    /// `[d_model, 1]`; the sigmoid of its output is the expert's weight. Without it, the weight is 1.
    pub gate: Option<Linear<B>>,
    /// The expert.
    pub expert: FeedForward<B>,
}

/// The routing of one layer in one pass, which the losses of the router are computed from.
#[derive(Clone, Debug)]
pub struct Routing<B: BurnBackend> {
    /// The router's output, `[tokens, count]`.
    pub logits: Tensor<B, 2>,
    /// The experts' scores divided by their sum, `[tokens, count]`.
    pub probabilities: Tensor<B, 2>,
    /// The tokens that each expert computes.
    pub tokens: Vec<usize>,
}

impl<B: Backend> Mixture<B> {
    /// Maps `[batch, seq, d_model]` to the same shape and adds `residual` if given. The routing is added to `routings`.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        routings: Option<&mut Vec<Routing<B>>>,
    ) -> Tensor<B, 3> {
        let context = FeedForwardContext {
            routings,
            ..FeedForwardContext::default()
        };
        self.run(x, residual, context)
    }

    /// [`Mixture::forward`] with the adapter of each row.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        context: FeedForwardContext<'_, B>,
    ) -> Tensor<B, 3> {
        // Probes see the router and the sum of the experts.
        let FeedForwardContext {
            routings,
            adapters,
            probe,
        } = context;
        let shape = x.dims();
        let [batch, seq, d_model] = shape;
        let rows = [batch * seq, d_model];
        let base = match (&self.shared, residual) {
            (Some(shared), residual) => shared.run(x.clone(), residual, adapters),
            (None, Some(residual)) => residual,
            (None, None) => Tensor::zeros(shape, &x.device()),
        };
        let x = x.reshape(rows); // [tokens, d_model]
        let count = self.experts.len();
        let logits = self.router.forward(x.clone().unsqueeze(), None);
        let logits = logits.reshape([rows[0], count]); // [tokens, count]
        let mut scores = self.routing.scores(logits.clone());
        let mut log_scores = self.routing.log_scores(logits.clone());
        if let Some(mut probe) = probe {
            let seen = scores.reshape([batch, seq, count]);
            scores = probe
                .rows(Point::ExpertWeights, seen)
                .reshape([rows[0], count]);
            log_scores = scores.clone().log();
        }
        let bias = self.choice_bias.as_ref().map(Param::val);
        let chosen = self.routing.choose(&scores, &log_scores, bias);
        let weights = self.routing.weights(&scores, &log_scores, &chosen); // [tokens · active, 1]
        let output = self.mixed(x, base.reshape(rows), &weights, &chosen, adapters);
        if let Some(routings) = routings {
            routings.push(Routing {
                logits,
                probabilities: match self.routing.scores {
                    ExpertScores::Softmax => scores,
                    ExpertScores::Sigmoid => softmax(log_scores),
                },
                tokens: chosen
                    .experts
                    .iter()
                    .map(|rows| rows.tokens.len())
                    .collect(),
            });
        }
        output.reshape(shape)
    }

    /// Adds the weighted outputs of the chosen experts for `x` to `base`, both `[tokens, d_model]`.
    fn mixed(
        &self,
        x: Tensor<B, 2>,
        mut base: Tensor<B, 2>,
        weights: &Tensor<B, 2>,
        chosen: &Chosen,
        adapters: Option<&AdapterRows>,
    ) -> Tensor<B, 2> {
        let device = x.device();
        let d_model = x.dims()[1];
        let ids = |ids: &[i32]| {
            Tensor::<B, 1, Int>::from_data(TensorData::new(ids.to_vec(), [ids.len()]), &device)
        };
        for (expert, rows) in self.experts.iter().zip(&chosen.experts) {
            let (tokens, weights) = match rows.tokens.as_slice() {
                [] if !is_trained(expert) => continue,
                // A weight of 0 for one token gives an expert that no token chose a gradient of zeros, so that the
                // optimizer treats it as in any other step.
                [] => (ids(&[0]), Tensor::zeros([1], &device)),
                tokens => {
                    let places = ids(&rows.places).unsqueeze();
                    let weights = ops::embedding(weights.clone(), places); // [1, rows, 1]
                    (ids(tokens), weights.reshape([tokens.len()]))
                }
            };
            let count = tokens.dims()[0];
            let gathered = ops::embedding(x.clone(), tokens.clone().unsqueeze());
            let output = match rows.tokens.is_empty() {
                // It would draw numbers that a pass without gradients does not.
                true => expert.forward_without_dropout(gathered),
                false => {
                    let adapters = adapters.map(|all| all.select(&rows.tokens));
                    expert.run(gathered, None, adapters.as_ref())
                }
            };
            let output = output.reshape([count, d_model]);
            base = ops::add_rows(base, output, weights, tokens);
        }
        base
    }

    /// The linear layers except the router, with their paths in the mixture.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (String, &Linear<B>)> {
        let experts = self
            .experts
            .iter()
            .enumerate()
            .flat_map(|(number, expert)| {
                let linears = expert.linears();
                linears.map(move |(name, linear)| (format!("experts.{number}.{name}"), linear))
            });
        let shared = self.shared.iter().flat_map(|shared| {
            let linears = shared.expert.linears();
            linears.map(|(name, linear)| (format!("shared.expert.{name}"), linear))
        });
        experts.chain(shared)
    }

    /// The linear layers in the order of [`Mixture::linears`].
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        let shared = self.shared.iter_mut().map(|shared| &mut shared.expert);
        let experts = self.experts.iter_mut().chain(shared);
        experts.flat_map(FeedForward::linears_mut)
    }
}

impl<B: Backend> SharedExpert<B> {
    fn run(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        adapters: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        let Some(gate) = &self.gate else {
            return self.expert.run(x, residual, adapters);
        };
        let gate = sigmoid(gate.forward(x.clone(), None)); // [batch, seq, 1]
        let output = self.expert.run(x, None, adapters) * gate;
        match residual {
            Some(residual) => residual + output,
            None => output,
        }
    }
}

/// Returns true if the expert's weights have gradients in this pass.
fn is_trained<B: Backend>(expert: &FeedForward<B>) -> bool {
    match &expert.up.weight {
        LinearWeight::Float(weight) => weight.is_require_grad(),
        LinearWeight::Packed(_) => false,
    }
}
