//! An exponential moving average (EMA) of the weights.

use std::collections::HashMap;

use burn::module::ParamId;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

use emberlm_kernels::Backend;
use emberlm_model::weights::{ParamMapper, ParamVisitor, map_params, visit_params};

use crate::objective::model::TrainingModel;
use crate::optimizer::guard::Guard;

/// A model whose weights are an exponential moving average (EMA) of another model's weights:
///
/// ```text
/// avg <- d_t · avg + (1 - d_t) · w,   d_t = min(d, (1 + t) / (10 + t))
/// ```
///
/// after update `t`. The bound `(1 + t) / (10 + t)` discounts the initial weights quickly, as in TensorFlow's
/// `ExponentialMovingAverage(num_updates=…)`.
#[derive(Clone, Debug)]
pub struct Average<B: Backend> {
    decay: f64,
    model: TrainingModel<B>,
}

impl<B: Backend> Average<B> {
    /// Starts, or resumes, an average from the weights of `model`. `decay` is `d`.
    pub fn new(model: TrainingModel<B>, decay: f64) -> Self {
        Self { decay, model }
    }

    /// Updates the average with the weights after the update number `updates`, counted from 1.
    pub fn update(&mut self, model: &TrainingModel<B>, updates: u64) {
        self.guarded_update(model, updates, None);
    }

    /// As [`Average::update`], but leaves the average unchanged if the guard rejects the step.
    pub(crate) fn guarded_update(
        &mut self,
        model: &TrainingModel<B>,
        updates: u64,
        guard: Option<&Guard<B>>,
    ) {
        let mut current = Current::<B>::default();
        visit_params(model, &mut current);
        let mut blend = Blend {
            current,
            share: 1.0 - decay_at(self.decay, updates),
            guard,
        };
        // Move the average out instead of cloning it: the backend updates an unshared tensor in place.
        let average = std::mem::replace(&mut self.model, model.clone());
        self.model = map_params(average, &mut blend);
    }

    /// The averaged weights.
    pub fn model(&self) -> &TrainingModel<B> {
        &self.model
    }
}

/// The decay `d_t` of update `t`.
fn decay_at(decay: f64, updates: u64) -> f64 {
    let t = updates as f64;
    decay.min((1.0 + t) / (10.0 + t))
}

/// The current weights by path.
struct Current<B: BurnBackend>(HashMap<String, FloatTensor<B>>);

impl<B: BurnBackend> Default for Current<B> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<B: BurnBackend> ParamVisitor<B> for Current<B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let value = value.into_primitive().tensor();
        self.0.insert(path.to_owned(), value);
    }
}

struct Blend<'a, B: Backend> {
    current: Current<B>,
    /// `1 - d_t`.
    share: f64,
    guard: Option<&'a Guard<B>>,
}

impl<B: Backend> ParamMapper<B> for Blend<'_, B> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        average: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let Some(current) = self.current.0.remove(path) else {
            return average;
        };
        let current = Tensor::<B, D>::from_primitive(TensorPrimitive::Float(current));
        // Add the difference, so a weight that does not change keeps its exact bits.
        let change = (current - average.clone()) * self.share;
        match self.guard {
            Some(guard) => guard.choose(average.clone(), average + change),
            None => average + change,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use emberlm_model::{TransformerConfig, families};

    use super::*;

    /// A small model with every parameter filled with one number.
    fn filled(value: f32) -> TrainingModel<Flex> {
        let mut config = families::preset("gpt2").unwrap().config;
        config.vocab_size = Some(7);
        config.seq_len = 4;
        config.d_model = 4;
        config.n_layers = 1;
        config.heads = 2;
        config.kv_heads = Some(2);
        config.head_dim = Some(2);
        let decoder = TransformerConfig::try_from(config)
            .unwrap()
            .init::<Flex>(1, &Default::default());
        map_params(TrainingModel::from(decoder), &mut Fill(value))
    }

    struct Fill(f32);

    impl ParamMapper<Flex> for Fill {
        fn map<const D: usize>(
            &mut self,
            _path: &str,
            _id: ParamId,
            value: Tensor<Flex, D>,
        ) -> Tensor<Flex, D> {
            value.full_like(self.0)
        }
    }

    struct Values(Vec<f32>);

    impl ParamVisitor<Flex> for Values {
        fn visit<const D: usize>(&mut self, _path: &str, _id: ParamId, value: Tensor<Flex, D>) {
            self.0.extend(value.into_data().iter::<f32>());
        }
    }

    #[track_caller]
    fn assert_all(average: &Average<Flex>, expected: f64) {
        let mut values = Values(Vec::new());
        visit_params(average.model(), &mut values);
        assert!(values.0.len() > 200, "every parameter");
        for value in values.0 {
            let error = (f64::from(value) - expected).abs();
            assert!(error < 1e-6 * expected.abs(), "{value}, not {expected}");
        }
    }

    // With d = 0.3, d_1 = 2/11 and d_2 = 3/12 are below d, but d_3 = 4/13 is not.
    #[test]
    fn average_matches_three_steps_by_hand() {
        let mut average = Average::new(filled(1.0), 0.3);
        assert_all(&average, 1.0);
        average.update(&filled(2.0), 1);
        let first = 2.0 / 11.0 + 2.0 * 9.0 / 11.0;
        assert_all(&average, first);
        average.update(&filled(4.0), 2);
        let second = 0.25 * first + 0.75 * 4.0;
        assert_all(&average, second);
        average.update(&filled(-1.0), 3);
        assert_all(&average, 0.3 * second - 0.7);
    }

    #[test]
    fn constant_weights_equal_their_average_exactly() {
        let decoder = filled(0.1);
        let mut average = Average::new(decoder.clone(), 0.9999);
        for step in 1..50 {
            average.update(&decoder, step);
        }
        let mut values = Values(Vec::new());
        visit_params(average.model(), &mut values);
        assert!(values.0.iter().all(|&value| value == 0.1));
    }
}
