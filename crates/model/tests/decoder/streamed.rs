//! Gradients that are handed over during the backward pass.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_flex::Flex;
use emberlm_kernels::HeadLossOptions;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{CompleteGradient, GradientSink, RouterCoefficients, TrainingPass};

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

/// Each gradient arrives once and has the bits of a pass without a sink: the head first, then the blocks from the last one
/// on. A tied token table arrives with the embeddings, since both uses contribute to it.
#[test]
fn streamed_gradients_arrive_by_block_and_are_those_of_one_graph() {
    let _graphs = one_at_a_time();
    for (name, config) in spread() {
        let decoder = config.init::<B>(5, &Default::default());
        let loss = |hidden| {
            let targets = tokens::<B>(8);
            decoder.training_loss_sum_of(hidden, targets, HeadLossOptions::default())
        };
        let graph = loss(decoder.hidden_states(tokens::<B>(7))).backward();
        let whole = by_path(&decoder, &graph);
        let mut paths = Paths::default();
        visit_params(&decoder, &mut paths);
        let paths = paths.0;
        for recompute in [true, false] {
            let name = format!("{name}, recompute: {recompute}");
            let (sender, arrived) = mpsc::channel();
            let sink = GradientSink::new(move |complete| sender.send(complete).unwrap());
            let none = RouterCoefficients::default();
            let pass = TrainingPass {
                recompute,
                ..TrainingPass::default()
            };
            decoder.streamed_gradients(tokens::<B>(7), pass, none, loss, &sink);
            sink.close();
            let mut segments = BTreeMap::new();
            for (segment, complete) in arrived.iter().enumerate() {
                for CompleteGradient { id, gradient } in complete {
                    let path = &paths[&id];
                    let before = segments.insert(path.clone(), segment);
                    assert_eq!(before, None, "{name}: {path}");
                    let gradient = gradient.map(|gradient| {
                        host(Tensor::<Flex, 1>::from_primitive(TensorPrimitive::Float(
                            gradient,
                        )))
                    });
                    assert_eq!(gradient.as_ref(), whole.get(path), "{name}: {path}");
                }
            }
            let blocks = decoder.stack.blocks.len();
            assert_eq!(segments.len(), paths.len(), "{name}");
            for (path, segment) in segments {
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
}
