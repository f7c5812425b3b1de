//! The head's loss: against its composed body in one block, differentiated by Burn, and in blocks of any height.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::{Backend, HeadLossGradients, ops, reference};

use crate::compare::{
    Reference, assert_all_close, assert_close, constant, host, numbers, primitive, tracked, typed,
    with_gradients,
};

/// Numbers of one case.
struct Case {
    hidden: TensorData,
    weight: TensorData,
    targets: TensorData,
}

impl Case {
    fn new([tokens, width, vocab]: [usize; 3], seed: u64) -> Self {
        let targets = (0..tokens as u64)
            .map(|i| ((seed ^ i.wrapping_mul(0x9e37_79b9)) % vocab as u64) as i64);
        Self {
            hidden: numbers(seed, [tokens, width]),
            weight: numbers(seed + 1, [vocab, width]),
            targets: TensorData::new(targets.collect(), [tokens]),
        }
    }

    fn targets<B: Backend>(&self) -> Tensor<B, 1, Int> {
        Tensor::from_data(self.targets.clone(), &Default::default())
    }

    /// Output and gradients of the composed body, all tokens at once.
    fn expected(&self) -> Vec<Vec<f32>> {
        let hidden = tracked::<Reference, 2>(&self.hidden);
        let weight = tracked::<Reference, 2>(&self.weight);
        let made = reference::head_loss::<Reference>(
            primitive(hidden.clone()),
            primitive(weight.clone()),
            self.targets::<Reference>().into_primitive(),
            usize::MAX,
        );
        with_gradients(typed::<Reference, 1>(made), &[&hidden, &weight])
    }
}

fn head_loss<B: Backend>(shape: [usize; 3], seed: u64) {
    let case = Case::new(shape, seed);
    let hidden = tracked::<Autodiff<B>, 2>(&case.hidden);
    let weight = tracked::<Autodiff<B>, 2>(&case.weight);
    let loss = ops::head_loss(hidden.clone(), weight.clone(), case.targets());
    let found = with_gradients(loss, &[&hidden, &weight]);
    assert_all_close("head_loss", &found, &case.expected());
}

fn blocks<B: Backend>(shape: [usize; 3], rows: usize, seed: u64) {
    let case = Case::new(shape, seed);
    let made = |rows| -> HeadLossGradients<B> {
        reference::head_loss_gradients::<B>(
            primitive(constant::<B, 2>(&case.hidden)),
            primitive(constant::<B, 2>(&case.weight)),
            case.targets::<B>().into_primitive(),
            rows,
        )
    };
    let (in_blocks, whole) = (made(rows), made(usize::MAX));
    let parts = |made: HeadLossGradients<B>| {
        let loss = host(typed::<B, 1>(made.loss));
        let hidden = host(typed::<B, 2>(made.hidden));
        vec![loss, hidden, host(typed::<B, 2>(made.weight))]
    };
    assert_all_close("blocks", &parts(in_blocks), &parts(whole));
    let loss = reference::head_loss::<B>(
        primitive(constant::<B, 2>(&case.hidden)),
        primitive(constant::<B, 2>(&case.weight)),
        case.targets::<B>().into_primitive(),
        rows,
    );
    let loss = host(typed::<B, 1>(loss));
    assert_close("the loss alone, in blocks", &loss, &case.expected()[0]);
}

crate::on_backends! {
    // A vocabulary of one has no loss and no gradient.
    head_loss(shape in [1_usize..12, 1..10, 2..30], seed in 0..u64::MAX - 1);
    blocks(shape in [1_usize..12, 1..10, 2..30], rows in 1_usize..13, seed in 0..u64::MAX - 1);
}
