//! Random features of linear attention. Like the rotary angles, they are derived from the configuration and not stored.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor, TensorData};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use emberlm_kernels::Backend;

use crate::nn::attention::{AttentionConfig, Mechanism};

/// The vectors `ω` of the feature map `φ(x) = exp(ω x' - ‖x'‖²/2)`. They are not trained and are shared by all heads
/// of a block.
#[derive(Module, Debug)]
pub(crate) struct FeatureTable<B: BurnBackend> {
    /// `[features, head_dim]`.
    rows: Tensor<B, 2>,
}

impl<B: Backend> FeatureTable<B> {
    /// Draws the features of linear attention; returns `None` for other mechanisms.
    pub(crate) fn init(config: &AttentionConfig, device: &Device<B>) -> Option<Self> {
        let Mechanism::Linear {
            features,
            seed,
            stream,
        } = config.mechanism
        else {
            return None;
        };
        let values = orthogonal_rows(features, config.head_dim, seed, stream);
        let data = TensorData::new(values, [features, config.head_dim]);
        let rows = Tensor::from_data(data, device);
        Some(Self { rows })
    }

    pub(crate) fn rows(&self) -> Tensor<B, 2> {
        self.rows.clone()
    }
}

/// Draws `count` rows of `width` elements, each distributed as a Gaussian vector. Groups of `width` rows are
/// orthogonal, which keeps the estimate unbiased and reduces its variance (Choromanski et al. 2021, section 2.4).
/// Drawing on the host from one stream of the seed makes the features identical on every backend.
fn orthogonal_rows(count: usize, width: usize, seed: u64, stream: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    let mut gaussian = || -> Vec<f64> {
        let elements = Distribution::<f64>::sample_iter(StandardNormal, &mut rng);
        elements.take(width).collect()
    };
    let mut rows = Vec::with_capacity(count * width);
    let mut block: Vec<Vec<f64>> = Vec::with_capacity(width);
    for _ in 0..count {
        if block.len() == width {
            block.clear();
        }
        let length = norm(&gaussian());
        let direction = orthonormalized(&block, gaussian());
        rows.extend(direction.iter().map(|x| (x * length) as f32));
        block.push(direction);
    }
    rows
}

/// Returns the normalized component of `x` that is orthogonal to the unit vectors of `block`. The projection is applied
/// twice to remove the rounding error of the first pass (Giraud et al. 2005).
fn orthonormalized(block: &[Vec<f64>], mut x: Vec<f64>) -> Vec<f64> {
    for unit in block.iter().chain(block) {
        let along = dot(unit, &x);
        for (x, unit) in x.iter_mut().zip(unit) {
            *x -= along * unit;
        }
    }
    let length = norm(&x);
    for x in &mut x {
        *x /= length;
    }
    x
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tensor;
    use burn_flex::Flex;
    use emberlm_kernels::{AttentionMask, AttentionOptions, Precision, Reach, ops};

    use super::*;

    const HEAD_DIM: usize = 32;
    const SEQ: usize = 96;
    const DRAWS: u64 = 8;

    #[test]
    fn rows_of_a_group_are_orthogonal_with_gaussian_norms() {
        let rows = orthogonal_rows(70, HEAD_DIM, 1, 2);
        let rows: Vec<Vec<f64>> = rows
            .chunks(HEAD_DIM)
            .map(|row| row.iter().map(|&x| f64::from(x)).collect())
            .collect();
        for block in rows.chunks(HEAD_DIM) {
            for (i, a) in block.iter().enumerate() {
                for b in &block[..i] {
                    assert!(dot(a, b).abs() < 1e-5 * norm(a) * norm(b));
                }
            }
        }
        let mean_square = rows.iter().map(|row| dot(row, row)).sum::<f64>() / rows.len() as f64;
        // The standard error of the mean of 70 χ² values of 32 degrees of freedom is √(2 · 32 / 70) = 0.96.
        assert!((mean_square - 32.0).abs() < 3.0, "{mean_square}");
    }

    #[test]
    fn rows_depend_only_on_seed_and_layer() {
        let rows = |seed, layer| orthogonal_rows(9, 4, seed, layer);
        assert_eq!(rows(1, 2), rows(1, 2));
        assert_ne!(rows(1, 2), rows(1, 3));
        assert_ne!(rows(1, 2), rows(2, 2));
        // More features extend the same rows.
        assert_eq!(orthogonal_rows(20, 4, 1, 2)[..36], rows(1, 2));
    }

    /// Relative error `‖estimate - exact‖ / ‖exact‖` of the attention's output for Gaussian queries and keys of
    /// standard deviation `deviation` and standard Gaussian values.
    fn error(features: usize, deviation: f32, draw: u64) -> f64 {
        let device = Default::default();
        let tensor = |values: Vec<f32>, rows: usize| {
            Tensor::<Flex, 2>::from_data(TensorData::new(values, [rows, HEAD_DIM]), &device)
        };
        // The seed must differ from that of the rows: the same stream would give parallel vectors.
        let mut rng = ChaCha8Rng::seed_from_u64(1000 + draw);
        let [q, k, v] = [0, 1, 2].map(|_| {
            let elements = Distribution::<f32>::sample_iter(StandardNormal, &mut rng);
            tensor(elements.take(SEQ * HEAD_DIM).collect(), SEQ).unsqueeze::<4>()
        });
        let [q, k] = [q, k].map(|x| x * deviation);
        let rows = tensor(orthogonal_rows(features, HEAD_DIM, draw, 0), features);
        let options = AttentionOptions {
            reach: Reach::Causal,
            scale: 1.0 / (HEAD_DIM as f64).sqrt(),
            soft_cap: None,
            dropout: 0.0,
            precision: Precision::F32,
        };
        let (found, _) = ops::linear_attention(q.clone(), k.clone(), v.clone(), rows, None);
        let exact = ops::attention(q, k, v, AttentionMask::default(), options);
        let length = |x: Tensor<Flex, 4>| f64::from((x.clone() * x).sum().into_scalar()).sqrt();
        length(found - exact.clone()) / length(exact)
    }

    // `--nocapture` prints the table in docs/results.md. The estimate's variance grows exponentially with the squared
    // norms, so large queries and keys need far more features than a test can use.
    #[test]
    fn error_falls_with_square_root_of_feature_count() {
        let mean = |features, deviation| {
            let errors = (0..DRAWS).map(|draw| error(features, deviation, draw));
            errors.sum::<f64>() / DRAWS as f64
        };
        let errors = [64, 256, 1024, 4096].map(|features| {
            let [small, large] = [0.4, 1.0].map(|deviation| mean(features, deviation));
            println!("| {features} | {small:.3} | {large:.3} |");
            small
        });
        assert!(errors[2] < 0.06, "{errors:?}");
        assert!(errors[3] < 0.6 * errors[2], "{errors:?}");
        assert!(errors.is_sorted_by(|a, b| b < a), "{errors:?}");
    }
}
