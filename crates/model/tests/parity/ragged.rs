//! Compares ragged passes, and truncated and copied caches, on one backend with full passes on flex.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::Backend;
use emberlm_model::{
    KvCache, ModelConfig, RequestedOutput, SequenceChunk, Transformer, TransformerConfig, families,
};

use crate::parity::checks::{host, relative, within};

const SEQ: usize = ModelConfig::TINY_SEQ_LEN;

/// Compares the last logits of two sequences with those of full passes.
pub fn check<B: Backend>(preset: &str, device: &Device<B>) {
    let config = families::preset(preset).unwrap().config.tiny();
    let config = TransformerConfig::try_from(config).unwrap();
    let decoder = config.init::<B>(5, device);
    let ids = [3, 8].map(|factor| {
        let id = |i: usize| ((i * i * factor + 3 * i + factor) % config.vocab_size()) as u32;
        (0..SEQ).map(id).collect::<Vec<_>>()
    });
    // The second sequence continues the beginning of the first one in a cache that has held other tokens.
    let ids = [ids[0].clone(), [&ids[0][..4], &ids[1][4..]].concat()];
    let mut caches = [0; 2].map(|_| KvCache::<B>::new(&config, 1, SEQ, device));
    pass(&decoder, &ids, &mut caches, [9, 7]);
    caches[0].truncate(6);
    let [first, second] = &mut caches;
    assert_eq!(second.copy_from(first, 4), 4);
    let found = pass(&decoder, &ids, &mut caches, [SEQ - 6, SEQ - 4]);

    let expected = config.init::<Flex>(5, &Default::default());
    let expected: Vec<f32> = ids.iter().flat_map(|ids| full(&expected, ids)).collect();
    within(preset, relative(&found, &expected), 2e-5);
}

/// Processes further tokens of each sequence and returns the last logits.
fn pass<B: Backend>(
    decoder: &Transformer<B>,
    ids: &[Vec<u32>; 2],
    caches: &mut [KvCache<B>; 2],
    counts: [usize; 2],
) -> Vec<f32> {
    let mut chunks: Vec<_> = ids
        .iter()
        .zip(caches)
        .zip(counts)
        .map(|((ids, cache), count)| SequenceChunk {
            tokens: &ids[cache.len()..cache.len() + count],
            cache,
            output: RequestedOutput::Last,
            source: None,
            adapter: None,
        })
        .collect();
    host(decoder.ragged(&mut chunks).logits.unwrap())
}

/// Returns the last logits of a full pass.
fn full(decoder: &Transformer<Flex>, ids: &[u32]) -> Vec<f32> {
    let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let data = TensorData::new(ids, [1, SEQ]);
    let tokens = Tensor::<Flex, 2, Int>::from_data(data, &Default::default());
    host(decoder.forward(tokens).narrow(1, SEQ - 1, 1))
}
