//! One pass over texts of unequal length, without padding.
//!
//! The texts are sorted by length and their tokens are consecutive rows, `[1, rows, d_model]`: embedding, norms and
//! linear layers process all rows at once. Attention processes the texts of one length as one batch, so no operation
//! computes anything for padding.

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::{AttentionMask, Backend};

use crate::config::Pooling;
use crate::nn::packed::RowSpan;
use crate::nn::stack::{StackInputs, StackSpan};
use crate::transformer::model::Transformer;

/// The tokens of a text.
#[derive(Clone, Copy, Debug)]
pub struct TextTokens<'a> {
    /// At least one token id.
    pub ids: &'a [u32],
    /// The segment of each token; if empty, 0 for all.
    pub segments: &'a [u32],
}

impl<'a> From<&'a [u32]> for TextTokens<'a> {
    fn from(ids: &'a [u32]) -> Self {
        Self { ids, segments: &[] }
    }
}

/// The final hidden states of several texts.
#[derive(Clone, Debug)]
pub struct TextStates<B: Backend> {
    /// `[1, rows, d_model]`, text by text in the order of `order`.
    states: Tensor<B, 3>,
    groups: Vec<RowSpan>,
    /// The text whose states are at each place.
    order: Vec<usize>,
}

impl<B: Backend> Transformer<B> {
    /// Computes the final hidden states of texts. A text's states are those of [`Transformer::states`] on only this text,
    /// except for rounding: products of more rows may add up their terms in another order.
    ///
    /// The requirements on tokens are those of [`Transformer::states`], for each text.
    pub fn encode(&self, texts: &[TextTokens<'_>]) -> TextStates<B> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&text| texts[text].ids.len());
        let groups = RowSpan::of_lengths(order.iter().map(|&text| texts[text].ids.len()));
        let rows: usize = texts.iter().map(|text| text.ids.len()).sum();
        let first = self.config().first_position();
        let (mut ids, mut positions) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut segments = Vec::new();
        let segmented = texts.iter().any(|text| !text.segments.is_empty());
        for &text in &order {
            let text = &texts[text];
            ids.extend(text.ids.iter().map(|&id| i64::from(id)));
            positions.extend((first..first + text.ids.len()).map(|position| position as i64));
            if segmented {
                let of = |token| {
                    text.segments
                        .get(token)
                        .map_or(0, |&segment| i64::from(segment))
                };
                segments.extend((0..text.ids.len()).map(of));
            }
        }
        let device = self.device();
        let row = |values: Vec<i64>| {
            Tensor::<B, 2, Int>::from_data(TensorData::new(values, [1, rows]), &device)
        };
        let positions: Tensor<B, 1, Int> = row(positions).squeeze_dim(0);
        let segments = segmented.then(|| row(segments));
        let x = self.embeddings.forward_at(row(ids), &positions, segments);
        let spans = groups.iter().map(|&rows| StackSpan {
            rows,
            mask: AttentionMask::default(),
            cache: None,
            memory: None,
        });
        let x = self
            .stack
            .run_blocks(x, spans.collect(), StackInputs::default()); // [1, rows, d_model]
        TextStates {
            states: self.stack.finish(x),
            groups,
            order,
        }
    }
}

impl<B: Backend> TextStates<B> {
    /// Pools each text's states: `[texts, d_model]` in the order of the texts.
    pub fn pooled(&self, pooling: Pooling) -> Tensor<B, 2> {
        let pooled = |group: &RowSpan| pooling.forward(group.of(&self.states));
        let pooled: Vec<Tensor<B, 2>> = self.groups.iter().map(pooled).collect();
        let mut places = vec![0; self.order.len()];
        for (place, &text) in self.order.iter().enumerate() {
            places[text] = place as i64;
        }
        let count = places.len();
        let places = TensorData::new(places, [count]);
        let places = Tensor::<B, 1, Int>::from_data(places, &self.states.device());
        Tensor::cat(pooled, 0).select(0, places)
    }

    /// The states of text number `text`, `[len, d_model]`.
    pub fn of(&self, text: usize) -> Option<Tensor<B, 2>> {
        let place = self.order.iter().position(|&at| at == text)?;
        let mut before = 0;
        let group = self.groups.iter().find(|group| {
            let holds = place < before + group.count;
            before += if holds { 0 } else { group.count };
            holds
        })?;
        let first = group.first + (place - before) * group.len;
        let states = self.states.clone().narrow(1, first, group.len);
        Some(states.squeeze_dim(0))
    }
}
