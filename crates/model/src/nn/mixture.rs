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

use burn::module::Module;
use burn::tensor::activation::{self, sigmoid};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{Backend, ops};

use crate::nn::adapter_rows::AdapterRows;
use crate::nn::context::FeedForwardContext;
use crate::nn::feed_forward::{FeedForward, FeedForwardConfig};
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig, LinearWeight};
use crate::nn::probe::Point;

/// The configuration of a [`Mixture`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixtureConfig {
    /// One expert.
    pub expert: FeedForwardConfig,
    /// Number of experts.
    pub count: usize,
    /// Experts that compute a token.
    pub active: usize,
    /// True if the weights of a token's experts are divided by their sum.
    pub normalize: bool,
    /// Hidden elements of the shared expert, which computes every token; `None` if there is none.
    pub shared_width: Option<usize>,
}

impl MixtureConfig {
    /// `count` experts of which `active` compute a token, with weights that add up to 1, without a shared expert.
    pub const fn new(expert: FeedForwardConfig, count: usize, active: usize) -> Self {
        Self {
            expert,
            count,
            active,
            normalize: true,
            shared_width: None,
        }
    }

    /// The router, `[d_model, count]`, with a bias if the experts have some.
    pub(crate) fn router(&self) -> LinearConfig {
        LinearConfig::new(self.expert.d_model, self.count).with_bias(self.expert.bias)
    }

    /// The shared expert and its gate `[d_model, 1]`.
    pub(crate) fn shared(&self) -> Option<(FeedForwardConfig, LinearConfig)> {
        let width = self.shared_width?;
        let shared = FeedForwardConfig {
            width,
            ..self.expert
        };
        Some((shared, LinearConfig::new(self.expert.d_model, 1)))
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
                gate: linear(gate, "shared.gate"),
                expert: shared.init_from(from, &format!("{path}.shared.expert")),
            }),
            active: self.active.clamp(1, self.count.max(1)),
            normalize: self.normalize,
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
    #[module(skip)]
    active: usize,
    #[module(skip)]
    normalize: bool,
}

/// An expert that computes every token, weighted by a gate.
#[derive(Module, Debug)]
pub struct SharedExpert<B: BurnBackend> {
    /// `[d_model, 1]`; the sigmoid of its output is the expert's weight.
    pub gate: Linear<B>,
    /// The expert.
    pub expert: FeedForward<B>,
}

/// The routing of one layer in one pass, which the losses of the router are computed from.
#[derive(Clone, Debug)]
pub struct Routing<B: BurnBackend> {
    /// The router's output, `[tokens, count]`.
    pub logits: Tensor<B, 2>,
    /// Its softmax, `[tokens, count]`.
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
        let mut logits = logits.reshape([rows[0], count]); // [tokens, count]
        let mut probabilities = softmax(logits.clone());
        if let Some(mut probe) = probe {
            let seen = probabilities.reshape([batch, seq, count]);
            probabilities = probe
                .rows(Point::ExpertWeights, seen)
                .reshape([rows[0], count]);
            // The logits of the probabilities that the probe returned, but for a constant of each token.
            logits = probabilities.clone().log();
        }
        let chosen = Chosen::of(&logits, self.active);
        let weights = self.weights(&logits, &probabilities, &chosen); // [tokens · active, 1]
        let output = self.mixed(x, base.reshape(rows), &weights, &chosen, adapters);
        if let Some(routings) = routings {
            routings.push(Routing {
                logits,
                probabilities,
                tokens: chosen
                    .experts
                    .iter()
                    .map(|rows| rows.tokens.len())
                    .collect(),
            });
        }
        output.reshape(shape)
    }

    /// The weights of each token's experts, in the order of [`Chosen::ids`], `[tokens · active, 1]`.
    fn weights(
        &self,
        logits: &Tensor<B, 2>,
        probabilities: &Tensor<B, 2>,
        chosen: &Chosen,
    ) -> Tensor<B, 2> {
        let tokens = logits.dims()[0];
        let ids = TensorData::new(chosen.ids.clone(), [tokens, self.active]);
        let ids = Tensor::<B, 2, Int>::from_data(ids, &logits.device());
        let weights = match self.normalize {
            // Their probabilities divided by the sum of these.
            true => softmax(logits.clone().gather(1, ids)),
            false => probabilities.clone().gather(1, ids),
        }; // [tokens, active]
        weights.reshape([tokens * self.active, 1])
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
        let gate = sigmoid(self.gate.forward(x.clone(), None)); // [batch, seq, 1]
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

/// The softmax of each row of `[rows, count]`, with the gradient `pᵢ (gᵢ - Σⱼ pⱼ gⱼ)` of `p` computed from products.
///
/// The backward pass of Burn's softmax divides, and on ndarray Burn's autodiff divides by an estimate of the reciprocal
/// with 12 to 14 bits.
fn softmax<B: Backend>(logits: Tensor<B, 2>) -> Tensor<B, 2> {
    let constant = logits.clone().detach();
    let p = activation::softmax(constant.clone(), 1);
    let change = logits - constant; // zeros, with the gradient of the logits
    let mean = (p.clone() * change.clone()).sum_dim(1);
    p.clone() + p * (change - mean)
}

/// The experts of each token and the tokens of each expert.
struct Chosen {
    /// Token by token, its experts from the most probable on.
    ids: Vec<i32>,
    /// For each expert.
    experts: Vec<ExpertRows>,
}

/// The tokens of one expert, in their order.
#[derive(Clone, Default)]
struct ExpertRows {
    tokens: Vec<i32>,
    /// The expert's place in [`Chosen::ids`] for each of the tokens.
    places: Vec<i32>,
}

impl Chosen {
    /// The `active` experts of each token with the largest logits `[tokens, count]`; of equal ones, the first.
    fn of<B: Backend>(logits: &Tensor<B, 2>, active: usize) -> Self {
        let [tokens, count] = logits.dims();
        let data = logits.clone().into_data();
        let logits: Vec<f32> = data.iter::<f32>().collect();
        let mut chosen = Self {
            ids: Vec::with_capacity(tokens * active),
            experts: vec![ExpertRows::default(); count],
        };
        let mut best = Vec::with_capacity(active + 1);
        for (token, row) in logits.chunks(count.max(1)).enumerate() {
            largest(row, active, &mut best);
            for &expert in &best {
                let rows = &mut chosen.experts[expert];
                rows.tokens.push(token as i32);
                rows.places.push(chosen.ids.len() as i32);
                chosen.ids.push(expert as i32);
            }
        }
        chosen
    }
}

/// Fills `best` with the places of the `count` largest values, the largest first. A value that is not a number is chosen
/// only if there are too few others before it.
fn largest(values: &[f32], count: usize, best: &mut Vec<usize>) {
    best.clear();
    for (place, value) in values.iter().enumerate() {
        let smaller = |&other: &usize| *value > values[other];
        let at = best.iter().position(smaller).unwrap_or(best.len());
        if at < count {
            best.truncate(count - 1);
            best.insert(at, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_found_in_their_order() {
        let of = |values: &[f32], count| {
            let mut best = Vec::new();
            largest(values, count, &mut best);
            best
        };
        assert_eq!(of(&[1.0, 3.0, 2.0, 3.0], 3), [1, 3, 2]);
        assert_eq!(of(&[0.0; 4], 2), [0, 1]);
        assert_eq!(of(&[-1.0, -2.0], 2), [0, 1]);
        assert_eq!(of(&[f32::NAN; 3], 2), [0, 1]);
        assert_eq!(of(&[5.0], 1), [0]);
    }
}
