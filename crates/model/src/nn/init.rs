//! Weight initialization.
//!
//! | parameter | `normal { std }` | `fan_in` | `le_cun` | `truncated_xavier` | `small` |
//! |---|---|---|---|---|---|
//! | token and position embeddings | N(0, std²) | N(0, 1) | N(0, 1) | N(0, 2/(rows + d)), truncated at 3σ | N(0, 2/(5d)) |
//! | linear layer `[in, out]` | N(0, std²) | U(±1/√in) | N(0, 1/in) | N(0, 2/(in + out)), truncated at 3σ | N(0, 2/(5d)) |
//! | linear layer into the residual stream | with `scale_residual` N(0, std²/(2·n_layers)), else as other linear layers | as other linear layers | as other linear layers | as other linear layers | N(0, 4/(n_layers²·d)) |
//! | untied head | as linear layers | as linear layers | as linear layers | as linear layers | as linear layers |
//! | bias of a linear layer | 0 | U(±1/√in) | 0 | 0 | 0 |
//! | gate of value embeddings | 0 | 0 | 0 | 0 | 0 |
//! | `decay`, `step_bias` of a delta net | ln U(0.01, 16), 1 | as `normal` | as `normal` | as `normal` | as `normal` |
//! | gain and bias of a norm | 1, 0 | 1, 0 | 1, 0 | 1, 0 | 1, 0 |
//!
//! `d` is `d_model`. Layers of `zero_init` start with zeros instead. With a [`SizeRatio`] to a base model, each parameter has the
//! distribution of its counterpart in the base, and the standard deviations of linear layers are divided by `√width`.
//!
//! Values are drawn on the host. Each parameter has a separate random stream, which depends only on the seed and the
//! parameter's path. Initial weights are therefore the same on every backend and independent of other parameters.

mod distribution;

use burn::module::{Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use emberlm_kernels::Backend;

use self::distribution::WeightDistribution;
use crate::config::{Init, SizeRatio, ZeroInit};
use crate::nn::token_table::{TokenTable, rows_of_parts};

/// Role of a linear layer's output, which determines its initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRole {
    /// Hidden elements.
    Hidden,
    /// The residual stream.
    Residual,
}

/// Draws the initial parameters of a model.
pub(crate) struct Initializer<'a, B: Backend> {
    init: Init,
    /// Layers that start with zeros.
    zeros: &'a [ZeroInit],
    n_layers: f64,
    d_model: f64,
    /// Width over that of the model whose initial weights these follow.
    width_ratio: f64,
    /// Seed of the streams. `None` initializes with zeros, for weights to be loaded.
    seed: Option<u64>,
    device: &'a Device<B>,
    /// Maximum size of a buffer in bytes; larger token tables are split.
    largest: Option<u64>,
    /// Beginning of the paths of the parameters that are drawn.
    scope: &'static str,
}

impl<'a, B: Backend> Initializer<'a, B> {
    /// Draws parameters of a model with `[n_layers, d_model]`, except for those of the layers `zeros`.
    pub(crate) fn new(
        (init, zeros): (Init, &'a [ZeroInit]),
        [n_layers, d_model]: [usize; 2],
        seed: Option<u64>,
        device: &'a Device<B>,
        largest: Option<u64>,
    ) -> Self {
        Self {
            init,
            zeros,
            n_layers: n_layers as f64,
            d_model: d_model as f64,
            width_ratio: 1.0,
            seed,
            device,
            largest,
            scope: "",
        }
    }

    /// Draws the parameters as those of a model that is smaller by `ratio`.
    pub(crate) fn relative_to_base(self, ratio: SizeRatio) -> Self {
        Self {
            n_layers: self.n_layers / ratio.depth,
            d_model: self.d_model / ratio.width,
            width_ratio: ratio.width,
            ..self
        }
    }

    /// The same for a component whose paths begin with `scope`, so that its random streams differ from those of other components.
    pub(crate) fn within(&self, scope: &'static str) -> Self {
        Self { scope, ..*self }
    }

    /// Initializes a standalone module: PyTorch's initial weights, with a seed from the backend's random state.
    pub(crate) fn standalone(d_model: usize, device: &'a Device<B>) -> Self {
        let distribution = burn::tensor::Distribution::Uniform(0.0, 65_536.0);
        let drawn = Tensor::<B, 1>::random([4], distribution, device).into_data();
        let seed = drawn
            .iter::<f32>()
            .fold(0, |seed, x| (seed << 16) ^ x as u64);
        Self {
            init: Init::FanIn,
            zeros: &[],
            n_layers: 1.0,
            d_model: d_model as f64,
            width_ratio: 1.0,
            seed: Some(seed),
            device,
            largest: None,
            scope: "",
        }
    }

    pub(crate) fn device(&self) -> &'a Device<B> {
        self.device
    }

    /// Draws the rows of an embedding, `[count, d_model]`.
    pub(crate) fn embedding(&self, path: &str, shape: [usize; 2]) -> Param<Tensor<B, 2>> {
        self.drawn(path, shape, self.embedding_distribution(shape))
    }

    /// Draws the token embedding, `[vocab_size, d_model]`.
    pub(crate) fn token_embedding(&self, path: &str, shape: [usize; 2]) -> TokenTable<B> {
        self.table(path, shape, self.embedding_distribution(shape))
    }

    /// Draws an untied head's weight, `[vocab_size, d_model]`.
    pub(crate) fn head(&self, path: &str, shape: [usize; 2]) -> TokenTable<B> {
        let [rows, columns] = shape.map(|size| size as f64);
        let columns = columns / self.width_ratio;
        let drawn = self.linear_distribution(rows + columns, columns, OutputRole::Hidden);
        self.table(path, shape, self.unless(ZeroInit::Head, drawn))
    }

    /// The distribution of an embedding's rows.
    fn embedding_distribution(&self, shape: [usize; 2]) -> WeightDistribution {
        match self.init {
            Init::Normal { std, .. } => WeightDistribution::Normal(std),
            Init::FanIn | Init::LeCun | Init::T5 { .. } => WeightDistribution::Normal(1.0),
            Init::TruncatedXavier => xavier(shape[0] as f64 + shape[1] as f64 / self.width_ratio),
            Init::Small => self.small(),
        }
    }

    /// Draws the weight, in any layout, of a linear layer with `fan_in` inputs.
    pub(crate) fn linear(
        &self,
        path: &str,
        shape: [usize; 2],
        fan_in: usize,
        into: OutputRole,
    ) -> Param<Tensor<B, 2>> {
        let sizes = (shape[0] + shape[1]) as f64 / self.width_ratio;
        let of_base = self.linear_distribution(sizes, fan_in as f64 / self.width_ratio, into);
        let drawn = of_base.times(self.width_ratio.sqrt().recip());
        let drawn = match into {
            OutputRole::Hidden => drawn,
            OutputRole::Residual => self.unless(ZeroInit::Residual, drawn),
        };
        self.drawn(path, shape, drawn)
    }

    /// The distribution, or only zeros for layers that start with them.
    fn unless(&self, zero: ZeroInit, drawn: WeightDistribution) -> WeightDistribution {
        match self.zeros.contains(&zero) {
            true => WeightDistribution::Zeros,
            false => drawn,
        }
    }

    /// The distribution of a linear layer's weight, whose rows and columns are `sizes` together.
    fn linear_distribution(&self, sizes: f64, fan_in: f64, into: OutputRole) -> WeightDistribution {
        let (residual, layers) = (into == OutputRole::Residual, self.n_layers);
        match self.init {
            Init::Normal {
                std,
                scale_residual,
            } if residual && scale_residual => {
                WeightDistribution::Normal(std / (2.0 * layers).sqrt())
            }
            Init::Normal { std, .. } => WeightDistribution::Normal(std),
            Init::FanIn => WeightDistribution::Uniform(1.0 / fan_in.sqrt()),
            Init::LeCun | Init::T5 { .. } => WeightDistribution::Normal(1.0 / fan_in.sqrt()),
            Init::TruncatedXavier => xavier(sizes),
            Init::Small if residual => {
                WeightDistribution::Normal(2.0 / (layers * self.d_model.sqrt()))
            }
            Init::Small => self.small(),
        }
    }

    /// Fills a matrix with zeros.
    pub(crate) fn zero_matrix(&self, path: &str, shape: [usize; 2]) -> Param<Tensor<B, 2>> {
        self.drawn(path, shape, WeightDistribution::Zeros)
    }

    /// Draws a linear layer's bias, `[width]`.
    pub(crate) fn bias(&self, path: &str, width: usize, fan_in: usize) -> Param<Tensor<B, 1>> {
        match self.init {
            Init::FanIn => {
                let bound = 1.0 / (fan_in as f64 / self.width_ratio).sqrt();
                self.drawn(path, [width], WeightDistribution::Uniform(bound))
            }
            Init::Normal { .. }
            | Init::LeCun
            | Init::TruncatedXavier
            | Init::Small
            | Init::T5 { .. } => self.constant(0.0, width),
        }
    }

    /// Fills `[width]` with a constant.
    pub(crate) fn constant(&self, value: f32, width: usize) -> Param<Tensor<B, 1>> {
        self.param(vec![value; width], [width])
    }

    /// Draws `[width]` logarithms of numbers that are uniform between 0.01 and `largest`.
    pub(crate) fn log_uniform(
        &self,
        path: &str,
        width: usize,
        largest: f64,
    ) -> Param<Tensor<B, 1>> {
        const SMALLEST: f64 = 0.01;
        let Some(values) = self.sampled(path, width, WeightDistribution::Uniform(0.5)) else {
            return self.zeros([width]);
        };
        let number = |x: f32| SMALLEST + (f64::from(x) + 0.5) * (largest - SMALLEST);
        let values = values.into_iter().map(|x| number(x).ln() as f32);
        self.param(values.collect(), [width])
    }

    fn small(&self) -> WeightDistribution {
        WeightDistribution::Normal((2.0 / (5.0 * self.d_model)).sqrt())
    }

    fn drawn<const D: usize>(
        &self,
        path: &str,
        shape: [usize; D],
        from: WeightDistribution,
    ) -> Param<Tensor<B, D>> {
        match self.sampled(path, shape.iter().product(), from) {
            Some(values) => self.param(values, shape),
            None => self.zeros(shape),
        }
    }

    /// Draws a table `[vocab_size, d_model]` and splits it if the device requires it. The values do not depend on the
    /// split.
    fn table(
        &self,
        path: &str,
        [count, width]: [usize; 2],
        from: WeightDistribution,
    ) -> TokenTable<B> {
        let rows = rows_of_parts(count, width, self.largest);
        let values = self.sampled(path, count * width, from);
        let Some(values) = values else {
            let zeros = rows.iter().map(|&rows| self.zeros([rows, width]));
            return TokenTable::of(zeros.collect());
        };
        if rows.len() == 1 {
            return TokenTable::of(vec![self.param(values, [count, width])]);
        }
        let mut rest = values.as_slice();
        let parts = rows.iter().map(|&rows| {
            let (own, after) = rest.split_at(rows * width);
            rest = after;
            self.param(own.to_vec(), [rows, width])
        });
        TokenTable::of(parts.collect())
    }

    /// Draws a parameter's values; returns `None` for zeros.
    fn sampled(&self, path: &str, count: usize, from: WeightDistribution) -> Option<Vec<f32>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed?);
        rng.set_stream(fnv1a(&format!("{}{path}", self.scope)));
        Some(from.sample(rng, count))
    }

    /// Zeros, allocated lazily and, if the backend supports it, as one repeated element. Loading weights therefore
    /// never holds both the zeros and the weights.
    fn zeros<const D: usize>(&self, shape: [usize; D]) -> Param<Tensor<B, D>> {
        Param::uninitialized(
            ParamId::new(),
            move |device, tracked| {
                let zeros = Tensor::<B, D>::zeros([1; D], device).expand(shape);
                zeros.set_require_grad(tracked)
            },
            self.device.clone(),
            true,
            shape.into(),
        )
    }

    fn param<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<B, D>> {
        let data = TensorData::new(values, shape);
        Param::from_tensor(Tensor::from_data(data, self.device))
    }
}

/// `N(0, 2/(rows + columns))`, truncated at three standard deviations. Independent of the layout.
fn xavier(sizes: f64) -> WeightDistribution {
    WeightDistribution::Truncated((2.0 / sizes).sqrt())
}

/// The 64-bit FNV-1a hash of a path, which is stable across platforms and versions.
pub(crate) fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::families;
    use crate::params::named_tensors;
    use crate::transformer::checked::TransformerConfig;
    use crate::transformer::parameters::ParameterRole;

    /// The random stream of each drawn parameter is derived from the path that the model lists it under.
    #[test]
    fn streams_derive_from_parameter_paths() {
        for preset in families::presets() {
            let mut raw = preset.config.tiny();
            let std = 0.5;
            raw.init = Init::Normal {
                std,
                scale_residual: false,
            };
            let config = TransformerConfig::try_from(raw).unwrap();
            let decoder = config.init::<Flex>(3, &Default::default());
            let parameters = decoder.parameters();
            for (path, tensor) in named_tensors(&decoder) {
                let constant = path.ends_with("values.gate");
                if constant || parameters.role(&path) == Some(&ParameterRole::Vector) {
                    continue;
                }
                let mut rng = ChaCha8Rng::seed_from_u64(3);
                rng.set_stream(fnv1a(&path));
                let expected = WeightDistribution::Normal(std).sample(rng, tensor.values.len());
                assert_eq!(tensor.values, expected, "{}: {path}", preset.name);
            }
        }
    }

    /// A model four times as wide as its base has the base's weights in the residual stream's ends and half of their
    /// standard deviation in its linear layers.
    #[test]
    fn weights_relative_to_a_base_follow_its_distribution() {
        let config = |width: usize, init| {
            let mut raw = families::preset("llama-2-7b").unwrap().config;
            (raw.vocab_size, raw.seq_len) = (Some(200), 8);
            (raw.d_model, raw.n_layers, raw.heads) = (width, 6, 4);
            (raw.kv_heads, raw.head_dim) = (None, None);
            raw.feed_forward.width = Some(2 * width);
            raw.init = init;
            TransformerConfig::try_from(raw).unwrap()
        };
        let ratio = SizeRatio {
            width: 4.0,
            depth: 3.0,
        };
        let deviations = |tensors: Vec<(String, crate::weights::HostTensor)>| {
            let of = |values: &[f32]| {
                let squares = values.iter().map(|&x| f64::from(x).powi(2));
                (squares.sum::<f64>() / values.len() as f64).sqrt()
            };
            let tensors = tensors.into_iter();
            let named = tensors.map(|(path, tensor)| (path, of(&tensor.values)));
            named.collect::<std::collections::BTreeMap<_, _>>()
        };
        for init in [
            Init::Normal {
                std: 0.02,
                scale_residual: true,
            },
            Init::FanIn,
            Init::LeCun,
            Init::TruncatedXavier,
            Init::Small,
        ] {
            let device = Default::default();
            let mut base = config(64, init).raw();
            base.n_layers = 2;
            let base = TransformerConfig::try_from(base).unwrap();
            let base = deviations(named_tensors(&base.init::<Flex>(3, &device)));
            let wide = config(256, init).init_relative::<Flex>(3, ratio, &device);
            let wide = deviations(named_tensors(&wide));
            for (path, base) in &base {
                let is_linear = path.starts_with("blocks") && path.ends_with(".weight");
                let expected = if is_linear { 0.5 * base } else { *base };
                let error = (wide[path] - expected).abs() / expected;
                assert!(
                    error < 0.05,
                    "{init:?}: {path}: {}, not {expected}",
                    wide[path]
                );
            }
        }
    }
}
