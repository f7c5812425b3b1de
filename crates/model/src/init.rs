//! The first weights.
//!
//! | part | `normal { std }` | `fan_in` |
//! |---|---|---|
//! | token and position embeddings | N(0, std²) | N(0, 1) |
//! | a map `[in, out]` | N(0, std²) | U(±1/√in) |
//! | a map into the residual stream | N(0, (std/√(2·n_layers))²) with `scale_residual`, else as a map | as a map |
//! | an untied head | as a map | as a map |
//! | a map's bias | 0 | U(±1/√in) |
//! | a norm's gain, its bias | 1, 0 | 1, 0 |
//!
//! Numbers are drawn on the host, each parameter from a stream of its own that depends on the seed and the parameter's
//! path alone: the same model on every backend, whatever else is in it.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal, Uniform};

use emberlm_kernels::Backend;

use crate::checked::DecoderConfig;
use crate::config::Init;

/// What a linear map writes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapInto {
    /// A hidden space.
    Hidden,
    /// The residual stream.
    Residual,
}

/// Draws the parameters of one model.
pub(crate) struct Initializer<'a, B: Backend> {
    init: Init,
    n_layers: usize,
    seed: u64,
    device: &'a Device<B>,
}

impl<'a, B: Backend> Initializer<'a, B> {
    pub(crate) fn new(config: &DecoderConfig, seed: u64, device: &'a Device<B>) -> Self {
        Self {
            init: config.init,
            n_layers: config.n_layers,
            seed,
            device,
        }
    }

    pub(crate) fn device(&self) -> &'a Device<B> {
        self.device
    }

    /// An embedding's rows, `[count, d_model]`.
    pub(crate) fn embedding(&self, path: &str, shape: [usize; 2]) -> Param<Tensor<B, 2>> {
        let std = match self.init {
            Init::Normal { std, .. } => std,
            Init::FanIn => 1.0,
        };
        self.param(self.normal(path, shape.iter().product(), std), shape)
    }

    /// A map's weight of `fan_in` inputs, of any layout.
    pub(crate) fn map(
        &self,
        path: &str,
        shape: [usize; 2],
        fan_in: usize,
        into: MapInto,
    ) -> Param<Tensor<B, 2>> {
        let count = shape.iter().product();
        let values = match self.init {
            Init::Normal {
                std,
                scale_residual,
            } => {
                let residual = scale_residual && into == MapInto::Residual;
                let scale = if residual {
                    (2.0 * self.n_layers as f64).sqrt()
                } else {
                    1.0
                };
                self.normal(path, count, std / scale)
            }
            Init::FanIn => self.uniform(path, count, 1.0 / (fan_in as f64).sqrt()),
        };
        self.param(values, shape)
    }

    /// A map's bias, `[width]`.
    pub(crate) fn bias(&self, path: &str, width: usize, fan_in: usize) -> Param<Tensor<B, 1>> {
        let values = match self.init {
            Init::Normal { .. } => vec![0.0; width],
            Init::FanIn => self.uniform(path, width, 1.0 / (fan_in as f64).sqrt()),
        };
        self.param(values, [width])
    }

    /// The same number everywhere, `[width]`.
    pub(crate) fn constant(&self, value: f32, width: usize) -> Param<Tensor<B, 1>> {
        self.param(vec![value; width], [width])
    }

    fn normal(&self, path: &str, count: usize, std: f64) -> Vec<f32> {
        let rng = self.stream(path);
        let std = std as f32;
        Distribution::<f32>::sample_iter(StandardNormal, rng)
            .take(count)
            .map(|z| z * std)
            .collect()
    }

    fn uniform(&self, path: &str, count: usize, bound: f64) -> Vec<f32> {
        let rng = self.stream(path);
        let bound = bound as f32;
        match Uniform::new_inclusive(-bound, bound) {
            Ok(uniform) => uniform.sample_iter(rng).take(count).collect(),
            // Only a bound that is not finite ends here, which a fan-in of at least 1 cannot give.
            Err(_) => vec![0.0; count],
        }
    }

    fn stream(&self, path: &str) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(fnv1a(path));
        rng
    }

    fn param<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<B, D>> {
        let data = TensorData::new(values, shape);
        Param::from_tensor(Tensor::from_data(data, self.device))
    }
}

/// The 64-bit FNV-1a hash: a name for the path that is the same everywhere and always.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
