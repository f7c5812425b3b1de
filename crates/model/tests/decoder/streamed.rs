//! Gradients that are handed over during the backward pass.

use burn::backend::Autodiff;
use burn_flex::Flex;
use emberlm_kernels::HeadLossOptions;
use emberlm_model::{RouterCoefficients, TrainingPass};

use crate::decoder::gradients::{by_path, one_at_a_time, streamed};
use crate::decoder::spread::spread;
use crate::decoder::values::tokens;

type B = Autodiff<Flex>;

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
        for recompute in [true, false] {
            let name = format!("{name}, recompute: {recompute}");
            let pass = TrainingPass {
                recompute,
                ..TrainingPass::default()
            };
            let arrived = streamed(&decoder, |sink| {
                let none = RouterCoefficients::default();
                decoder.streamed_gradients(tokens::<B>(7), pass, none, loss, sink);
            });
            let blocks = decoder.stack.blocks.len();
            for (path, (segment, gradient)) in arrived {
                assert_eq!(gradient.as_ref(), whole.get(&path), "{name}: {path}");
                // The only parameter that is not trained comes after all others.
                if gradient.is_none() && path.ends_with("choice_bias") {
                    continue;
                }
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
