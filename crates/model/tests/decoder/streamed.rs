//! Gradients that are handed over during the backward pass.

use std::collections::{BTreeMap, HashMap};

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_flex::Flex;
use emberlm_kernels::HeadLossOptions;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{CompleteGradient, RouterCoefficients, TrainingPass};

use crate::decoder::gradients::{by_path, one_at_a_time};
use crate::decoder::spread::spread;
use crate::decoder::values::{host, tokens};

type B = Autodiff<Flex>;

#[derive(Default)]
struct Paths(HashMap<ParamId, String>);

impl ParamVisitor<B> for Paths {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, _value: Tensor<B, D>) {
        self.0.insert(id, path.to_owned());
    }
}

/// With recomputation, each gradient arrives once and has the bits of a single graph's: the head first, then the blocks from the last one on.
/// A tied token table arrives with the embeddings, since both uses contribute to it.
#[test]
fn streamed_gradients_are_those_of_one_graph() {
    let _graphs = one_at_a_time();
    for (name, config) in spread() {
        let decoder = config.init::<B>(5, &Default::default());
        let loss = |hidden| {
            let targets = tokens::<B>(8);
            decoder.training_loss_sum_of(hidden, targets, HeadLossOptions::default())
        };
        let graph = loss(decoder.hidden_states(tokens::<B>(7))).backward();
        let whole = by_path(&decoder, &graph);
        let (mut arrived, mut segments) = (BTreeMap::new(), 0);
        let mut paths = Paths::default();
        visit_params(&decoder, &mut paths);
        let paths = paths.0;
        let mut sink = |complete: Vec<CompleteGradient<Flex>>| {
            for CompleteGradient { id, gradient } in complete {
                let path = &paths[&id];
                let before = arrived.insert(path.clone(), segments);
                assert_eq!(before, None, "{name}: {path}");
                let gradient = gradient.map(|gradient| {
                    host(Tensor::<Flex, 1>::from_primitive(TensorPrimitive::Float(
                        gradient,
                    )))
                });
                assert_eq!(gradient.as_ref(), whole.get(path), "{name}: {path}");
            }
            segments += 1;
        };
        let none = RouterCoefficients::default();
        let pass = TrainingPass {
            recompute: true,
            ..TrainingPass::default()
        };
        decoder.streamed_gradients(tokens::<B>(7), pass, none, loss, &mut sink);
        let blocks = decoder.stack.blocks.len();
        assert_eq!(segments, blocks + 2, "{name}");
        assert_eq!(arrived.len(), paths.len(), "{name}");
        for (path, segment) in arrived {
            let expected = match path.split('.').collect::<Vec<_>>()[..] {
                ["tokens", ..] => blocks + 1,
                ["blocks", block, ..] => blocks - block.parse::<usize>().unwrap(),
                ["norm", ..] | ["head", ..] => 0,
                _ => continue,
            };
            assert_eq!(segment, expected, "{name}: {path}");
        }
    }
}
