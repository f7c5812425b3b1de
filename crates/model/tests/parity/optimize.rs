//! Compares ten AdamW steps on the fixture's batch.

use std::collections::HashMap;

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use emberlm_kernels::{AdamWStep, Backend, ops};
use emberlm_model::Transformer;
use emberlm_model::weights::{ParamMapper, ParamVisitor, map_params, visit_params};
use serde_json::Value;

use crate::parity::checks::{Batch, host, within};
use crate::parity::fixture::Fixture;

/// Factor on the tolerance for gradient norms. They are more sensitive to rounding of the weights than the loss.
const NORM: f64 = 4.0;

type Moments<B> = (Tensor<B, 1>, Tensor<B, 1>);
type Gradients<B> = <Autodiff<B> as AutodiffBackend>::Gradients;

pub struct Trainer<B: Backend> {
    decoder: Transformer<Autodiff<B>>,
    moments: HashMap<String, Moments<B>>,
    settings: Value,
}

impl<B: Backend> Trainer<B> {
    pub fn new(decoder: Transformer<Autodiff<B>>, fixture: &Fixture) -> Self {
        Self {
            decoder,
            moments: HashMap::new(),
            settings: fixture.json("adamw"),
        }
    }

    pub fn check_steps(mut self, fixture: &Fixture, batch: &Batch<Autodiff<B>>, tolerance: f64) {
        let losses = fixture.floats("adamw_losses");
        let norms = fixture.floats("adamw_grad_norms");
        assert_eq!(
            losses.len() as u64,
            self.settings["steps"].as_u64().unwrap()
        );
        for (step, (expected_loss, expected_norm)) in (1..).zip(losses.iter().zip(&norms)) {
            let (loss, norm) = self.step(step, batch);
            let error = |found: f64, expected: &f32| (found / f64::from(*expected) - 1.0).abs();
            within(
                &format!("loss before step {step}"),
                error(loss, expected_loss),
                tolerance,
            );
            within(
                &format!("gradient norm of step {step}"),
                error(norm, expected_norm),
                NORM * tolerance,
            );
        }
    }

    /// Returns the loss before the step and the gradient norm before clipping.
    fn step(&mut self, step: u64, batch: &Batch<Autodiff<B>>) -> (f64, f64) {
        let loss = batch.loss(&self.decoder);
        let grads = loss.backward();
        let mut norm = SquaredNorm::<'_, B>(&grads, 0.0);
        visit_params(&self.decoder, &mut norm);
        let norm = norm.1.sqrt();
        let number = |value: &Value| value.as_f64().unwrap();
        let mut update = Update {
            factor: (number(&self.settings["clip"]) / (norm + 1e-6)).min(1.0),
            numbers: AdamWStep {
                rate: number(&self.settings["lr"]),
                beta1: number(&self.settings["betas"][0]),
                beta2: number(&self.settings["betas"][1]),
                epsilon: number(&self.settings["eps"]),
                decay: number(&self.settings["weight_decay"]),
                cautious: false,
                step,
            },
            grads: &grads,
            moments: &mut self.moments,
        };
        self.decoder = map_params(self.decoder.clone(), &mut update);
        (f64::from(host(loss)[0]), norm)
    }
}

/// Sum of the squares of all gradients.
struct SquaredNorm<'a, B: Backend>(&'a Gradients<B>, f64);

impl<B: Backend> ParamVisitor<Autodiff<B>> for SquaredNorm<'_, B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<Autodiff<B>, D>) {
        if !value.is_require_grad() {
            return;
        }
        let grad = value.grad(self.0).expect(path);
        let squares = host(grad).into_iter().map(|x| f64::from(x) * f64::from(x));
        self.1 += squares.sum::<f64>();
    }
}

struct Update<'a, B: Backend> {
    factor: f64,
    numbers: AdamWStep,
    grads: &'a Gradients<B>,
    moments: &'a mut HashMap<String, Moments<B>>,
}

impl<B: Backend> ParamMapper<Autodiff<B>> for Update<'_, B> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<Autodiff<B>, D>,
    ) -> Tensor<Autodiff<B>, D> {
        if !value.is_require_grad() {
            return value;
        }
        let grad = value.grad(self.grads).expect(path) * self.factor;
        let value = value.inner();
        let shape = value.shape();
        let count = shape.num_elements();
        let zeros = || Tensor::zeros([count], &value.device());
        let moments = self
            .moments
            .remove(path)
            .unwrap_or_else(|| (zeros(), zeros()));
        // Weight decay applies only to matrices.
        let decay = if D >= 2 { self.numbers.decay } else { 0.0 };
        let numbers = AdamWStep {
            decay,
            ..self.numbers
        };
        let (flat, grad) = (value.reshape([count]), grad.reshape([count]));
        let (updated, moments) = ops::adamw(flat, grad, moments, None, numbers);
        self.moments.insert(path.to_owned(), moments);
        Tensor::from_inner(updated.reshape(shape)).require_grad()
    }
}
