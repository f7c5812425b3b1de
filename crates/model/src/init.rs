//! The first weights.
//!
//! | part | `normal { std }` | `fan_in` | `le_cun` | `truncated_xavier` | `small` |
//! |---|---|---|---|---|---|
//! | token and position embeddings | N(0, std²) | N(0, 1) | N(0, 1) | N(0, 2/(rows + d)), cut at 3σ | N(0, 2/(5d)) |
//! | a map `[in, out]` | N(0, std²) | U(±1/√in) | N(0, 1/in) | N(0, 2/(in + out)), cut at 3σ | N(0, 2/(5d)) |
//! | a map into the residual stream | with `scale_residual` N(0, std²/(2·n_layers)), else as a map | as a map | as a map | as a map | N(0, 4/(n_layers²·d)) |
//! | an untied head | as a map | as a map | as a map | as a map | as a map |
//! | a map's bias | 0 | U(±1/√in) | 0 | 0 | 0 |
//! | a norm's gain, its bias | 1, 0 | 1, 0 | 1, 0 | 1, 0 | 1, 0 |
//!
//! `d` is `d_model`.
//!
//! Numbers are drawn on the host, each parameter from a stream of its own that depends on the seed and the parameter's
//! path alone: the same model on every backend, whatever else is in it.

use burn::module::{Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal, Uniform};

use emberlm_kernels::Backend;

use crate::checked::DecoderConfig;
use crate::config::Init;
use crate::token_table::{TokenTable, rows_of_parts};

/// The role of a linear layer's output, which decides its initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRole {
    /// A hidden space.
    Hidden,
    /// The residual stream.
    Residual,
}

/// Draws the parameters of one model.
pub(crate) struct Initializer<'a, B: Backend> {
    init: Init,
    n_layers: usize,
    d_model: usize,
    /// None leaves zeros, for weights that are read over them.
    seed: Option<u64>,
    device: &'a Device<B>,
    /// The most bytes of a buffer, which a table of tokens is cut to.
    largest: Option<u64>,
}

impl<'a, B: Backend> Initializer<'a, B> {
    pub(crate) fn new(
        config: &DecoderConfig,
        seed: Option<u64>,
        device: &'a Device<B>,
        largest: Option<u64>,
    ) -> Self {
        Self {
            init: config.initialization(),
            n_layers: config.n_layers(),
            d_model: config.d_model(),
            seed,
            device,
            largest,
        }
    }

    /// For a module on its own: PyTorch's initial weights, with a seed from the backend's random state.
    pub(crate) fn standalone(d_model: usize, device: &'a Device<B>) -> Self {
        let distribution = burn::tensor::Distribution::Uniform(0.0, 65_536.0);
        let drawn = Tensor::<B, 1>::random([4], distribution, device).into_data();
        let seed = drawn
            .iter::<f32>()
            .fold(0, |seed, x| (seed << 16) ^ x as u64);
        Self {
            init: Init::FanIn,
            n_layers: 1,
            d_model,
            seed: Some(seed),
            device,
            largest: None,
        }
    }

    pub(crate) fn device(&self) -> &'a Device<B> {
        self.device
    }

    /// An embedding's rows, `[count, d_model]`.
    pub(crate) fn embedding(&self, path: &str, shape: [usize; 2]) -> Param<Tensor<B, 2>> {
        self.drawn(path, shape, self.embedded(shape))
    }

    /// The token embedding, `[vocab_size, d_model]`.
    pub(crate) fn token_embedding(&self, path: &str, shape: [usize; 2]) -> TokenTable<B> {
        self.table(path, shape, self.embedded(shape))
    }

    /// An untied head's weight, `[vocab_size, d_model]`.
    pub(crate) fn head(&self, path: &str, shape: [usize; 2]) -> TokenTable<B> {
        self.table(
            path,
            shape,
            self.mapped(shape, shape[1], OutputRole::Hidden),
        )
    }

    /// The distribution of an embedding's rows.
    fn embedded(&self, shape: [usize; 2]) -> Drawn {
        match self.init {
            Init::Normal { std, .. } => Drawn::Normal(std),
            Init::FanIn | Init::LeCun => Drawn::Normal(1.0),
            Init::TruncatedXavier => xavier(shape),
            Init::Small => self.small(),
        }
    }

    /// A map's weight of `fan_in` inputs, of any layout.
    pub(crate) fn map(
        &self,
        path: &str,
        shape: [usize; 2],
        fan_in: usize,
        into: OutputRole,
    ) -> Param<Tensor<B, 2>> {
        self.drawn(path, shape, self.mapped(shape, fan_in, into))
    }

    /// The distribution of a map's weight.
    fn mapped(&self, shape: [usize; 2], fan_in: usize, into: OutputRole) -> Drawn {
        let (residual, layers) = (into == OutputRole::Residual, self.n_layers as f64);
        let fan_in = fan_in as f64;
        match self.init {
            Init::Normal {
                std,
                scale_residual,
            } if residual && scale_residual => Drawn::Normal(std / (2.0 * layers).sqrt()),
            Init::Normal { std, .. } => Drawn::Normal(std),
            Init::FanIn => Drawn::Uniform(1.0 / fan_in.sqrt()),
            Init::LeCun => Drawn::Normal(1.0 / fan_in.sqrt()),
            Init::TruncatedXavier => xavier(shape),
            Init::Small if residual => Drawn::Normal(2.0 / (layers * (self.d_model as f64).sqrt())),
            Init::Small => self.small(),
        }
    }

    /// A map's bias, `[width]`.
    pub(crate) fn bias(&self, path: &str, width: usize, fan_in: usize) -> Param<Tensor<B, 1>> {
        match self.init {
            Init::FanIn => {
                let bound = 1.0 / (fan_in as f64).sqrt();
                self.drawn(path, [width], Drawn::Uniform(bound))
            }
            Init::Normal { .. } | Init::LeCun | Init::TruncatedXavier | Init::Small => {
                self.constant(0.0, width)
            }
        }
    }

    /// The same number everywhere, `[width]`.
    pub(crate) fn constant(&self, value: f32, width: usize) -> Param<Tensor<B, 1>> {
        self.param(vec![value; width], [width])
    }

    fn small(&self) -> Drawn {
        Drawn::Normal((2.0 / (5.0 * self.d_model as f64)).sqrt())
    }

    fn drawn<const D: usize>(
        &self,
        path: &str,
        shape: [usize; D],
        from: Drawn,
    ) -> Param<Tensor<B, D>> {
        match self.sampled(path, shape.iter().product(), from) {
            Some(values) => self.param(values, shape),
            None => self.zeros(shape),
        }
    }

    /// A table `[vocab_size, d_model]`, drawn as one and cut where the device needs it.
    fn table(&self, path: &str, [count, width]: [usize; 2], from: Drawn) -> TokenTable<B> {
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

    /// The numbers of a parameter, none where there are to be zeros.
    fn sampled(&self, path: &str, count: usize, from: Drawn) -> Option<Vec<f32>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed?);
        rng.set_stream(fnv1a(path));
        Some(from.sample(rng, count))
    }

    /// Made when it is asked for, and one number where a backend can repeat it: whoever reads weights over zeros never holds
    /// both.
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

/// `N(0, 2/(rows + columns))` cut at three standard deviations; a table's sum is the same either way round.
fn xavier(shape: [usize; 2]) -> Drawn {
    Drawn::Truncated((2.0 / (shape[0] + shape[1]) as f64).sqrt())
}

/// A distribution around 0.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    /// By its standard deviation.
    Normal(f64),
    /// A normal one by its standard deviation; what lies beyond three of them is drawn again.
    Truncated(f64),
    /// By its bound.
    Uniform(f64),
}

impl Drawn {
    fn sample(self, rng: ChaCha8Rng, count: usize) -> Vec<f32> {
        let normal = |std: f64, cut: f32| {
            let std = std as f32;
            Distribution::<f32>::sample_iter(StandardNormal, rng.clone())
                .filter(move |z: &f32| z.abs() <= cut)
                .take(count)
                .map(move |z| z * std)
                .collect()
        };
        match self {
            Self::Normal(std) => normal(std, f32::INFINITY),
            Self::Truncated(std) => normal(std, 3.0),
            Self::Uniform(bound) => {
                let bound = bound as f32;
                match Uniform::new_inclusive(-bound, bound) {
                    Ok(uniform) => uniform.sample_iter(rng).take(count).collect(),
                    // Only a bound that is not finite ends here, which a fan-in of at least 1 cannot give.
                    Err(_) => vec![0.0; count],
                }
            }
        }
    }
}

/// The 64-bit FNV-1a hash: a name for the path that is the same everywhere and always.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::families;
    use crate::parameters::ParameterRole;
    use crate::weights::named_tensors;

    /// The random stream of every drawn parameter is that of the path which the model lists it under.
    #[test]
    fn streams_are_those_of_the_parameters_paths() {
        for preset in families::presets() {
            let mut raw = preset.config.tiny();
            let std = 0.5;
            raw.init = Init::Normal {
                std,
                scale_residual: false,
            };
            let config = DecoderConfig::try_from(raw).unwrap();
            let decoder = config.init::<Flex>(3, &Default::default());
            let parameters = decoder.parameters();
            for (path, tensor) in named_tensors(&decoder) {
                if parameters.role(&path) == Some(&ParameterRole::Vector) {
                    continue;
                }
                let mut rng = ChaCha8Rng::seed_from_u64(3);
                rng.set_stream(fnv1a(&path));
                let expected = Drawn::Normal(std).sample(rng, tensor.values.len());
                assert_eq!(tensor.values, expected, "{}: {path}", preset.name);
            }
        }
    }
}
