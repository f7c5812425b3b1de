//! Compares packed sequences with their separate documents.

use std::collections::BTreeMap;

use burn::tensor::{Int, Tensor};
use emberlm_kernels::{HeadLossOptions, TrainingBackend};
use emberlm_model::{IGNORED_ELEMENT, Tokens, TrainingPass, Transformer};

use crate::decoder::gradients::by_path;
use crate::decoder::values::{host, tensor};

const OPTIONS: HeadLossOptions = HeadLossOptions {
    label_smoothing: 0.1,
    z_loss: 1e-3,
    soft_cap: 0.0,
};

/// Sequences of documents with their targets, followed by padding.
struct Packed {
    seq_len: usize,
    rows: Vec<Vec<Document>>,
}

#[derive(Clone)]
struct Document {
    ids: Vec<i64>,
    targets: Vec<i64>,
}

/// A loss with its gradients.
struct LossAndGradients {
    loss: f64,
    grads: BTreeMap<String, Vec<f32>>,
}

/// Compares the losses and gradients of packed sequences with those of separate documents, with and without
/// recomputation. `tolerance` bounds `‖a - b‖ / ‖b‖` of the gradients.
pub fn check<B: TrainingBackend>(name: &str, decoder: &Transformer<B>, seed: u64, tolerance: f64) {
    let config = decoder.config();
    let packed = Packed::new(config.seq_len(), config.vocab_size() as u64, seed);
    let mut single = LossAndGradients {
        loss: 0.0,
        grads: BTreeMap::new(),
    };
    let mut losses = Vec::new();
    for row in &packed.rows {
        for document in row {
            single.add(loss_and_gradients(
                decoder,
                document.tokens(),
                document.targets(),
                false,
            ));
            losses.extend(host(
                decoder.token_losses(document.tokens(), document.targets()),
            ));
        }
        let padding = packed.seq_len - row.iter().map(Document::len).sum::<usize>();
        losses.extend(vec![0.0; padding]);
    }
    for recompute in [false, true] {
        let together = loss_and_gradients(decoder, packed.tokens(), packed.targets(), recompute);
        let name = format!("{name}, recompute {recompute}");
        together.assert_close(&single, &name, tolerance);
    }
    let together = host(decoder.token_losses(packed.tokens(), packed.targets()));
    assert_eq!(together.len(), losses.len());
    for (token, (together, single)) in together.into_iter().zip(losses).enumerate() {
        let error = (together - single).abs();
        assert!(
            error < 2e-5,
            "{name}: token {token}: {together}, by itself {single}"
        );
    }
}

fn loss_and_gradients<B: TrainingBackend>(
    decoder: &Transformer<B>,
    tokens: Tokens<B>,
    targets: Tensor<B, 2, Int>,
    recompute: bool,
) -> LossAndGradients {
    let pass = TrainingPass {
        recompute,
        dropout_seed: 0,
        ..TrainingPass::default()
    };
    let (loss, grads) = decoder.gradients(tokens, pass, |hidden| {
        decoder.training_loss_sum_of(hidden, targets, OPTIONS)
    });
    LossAndGradients {
        loss: f64::from(host(loss)[0]),
        grads: by_path(decoder, &grads),
    }
}

impl LossAndGradients {
    fn add(&mut self, other: Self) {
        self.loss += other.loss;
        for (path, grad) in other.grads {
            let sum = self
                .grads
                .entry(path)
                .or_insert_with(|| vec![0.0; grad.len()]);
            sum.iter_mut()
                .zip(grad)
                .for_each(|(sum, grad)| *sum += grad);
        }
    }

    fn assert_close(&self, single: &Self, name: &str, tolerance: f64) {
        let error = (self.loss / single.loss - 1.0).abs();
        assert!(error < 1e-6, "{name}: the loss is off by {error:.1e}");
        let paths = |found: &Self| found.grads.keys().cloned().collect::<Vec<_>>();
        assert_eq!(paths(self), paths(single), "{name}");
        let whole = single.grads.values().map(|grad| square(grad)).sum::<f64>();
        for (path, grad) in &self.grads {
            let expected = &single.grads[path];
            let difference: Vec<f32> = grad.iter().zip(expected).map(|(a, b)| a - b).collect();
            // The error of a gradient that cancels to zero, like that of a key's bias, is relative to all gradients.
            let size = square(expected).max(1e-4 * whole);
            let error = (square(&difference) / size).sqrt();

            assert!(
                error < tolerance,
                "{name}: {path}: relative error {error:.1e}"
            );
        }
    }
}

fn square(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x).powi(2)).sum()
}

impl Document {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn tokens<B: TrainingBackend>(&self) -> Tokens<B> {
        tensor(self.ids.clone(), self.len()).into()
    }

    fn targets<B: TrainingBackend>(&self) -> Tensor<B, 2, Int> {
        tensor(self.targets.clone(), self.len())
    }
}

impl Packed {
    /// A sequence of one document; one that begins with a single-token document and ends with padding; and one of
    /// documents with random lengths.
    fn new(seq_len: usize, vocab_size: u64, seed: u64) -> Self {
        let mut state = seed;
        let mut below = |bound: u64| {
            // A linear congruential generator with Knuth's constants; only its high bits are random.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut lengths = vec![vec![seq_len], vec![1], vec![]];
        while lengths[1].iter().sum::<usize>() + 4 < seq_len {
            lengths[1].push(1 + below(4) as usize);
        }
        while lengths[2].iter().sum::<usize>() < seq_len {
            let left = seq_len - lengths[2].iter().sum::<usize>();
            lengths[2].push(1 + below(left as u64) as usize);
        }
        let mut document = |len: usize| {
            let mut ids = || (0..len).map(|_| below(vocab_size) as i64).collect();
            let (ids, mut targets): (_, Vec<i64>) = (ids(), ids());
            // Ignore the prompt of a longer document.
            if len > 3 {
                targets[1] = i64::from(IGNORED_ELEMENT);
            }
            Document { ids, targets }
        };
        let rows = lengths
            .into_iter()
            .map(|row| row.into_iter().map(&mut document).collect())
            .collect();
        Self { seq_len, rows }
    }

    fn tokens<B: TrainingBackend>(&self) -> Tokens<B> {
        let mut documents = Vec::new();
        for row in &self.rows {
            let end = documents.len() + self.seq_len;
            let mut first = 0;
            for document in row {
                documents.extend(vec![first as i64; document.len()]);
                first += document.len();
            }
            // The padding is a separate document.
            documents.resize(end, first as i64);
        }
        Tokens {
            ids: self.padded(0, |document| &document.ids),
            documents: Some(tensor(documents, self.seq_len)),
        }
    }

    fn targets<B: TrainingBackend>(&self) -> Tensor<B, 2, Int> {
        self.padded(IGNORED_ELEMENT.into(), |document| &document.targets)
    }

    fn padded<B: TrainingBackend>(
        &self,
        padding: i64,
        of: impl Fn(&Document) -> &Vec<i64>,
    ) -> Tensor<B, 2, Int> {
        let mut values = Vec::new();
        for row in &self.rows {
            let end = values.len() + self.seq_len;
            values.extend(row.iter().flat_map(&of));
            values.resize(end, padding);
        }
        tensor(values, self.seq_len)
    }
}
