//! A ragged pass over several sequences equals a full pass over each of them, also with truncated and copied caches.

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use emberlm_kernels::Backend;
use emberlm_model::{KvCache, RequestedOutput, SequenceChunk, Transformer, WeightFormat};

use crate::decoder::decoding::{assert_close, decoders, device};
use crate::decoder::spread::{SEQ_LEN, VOCAB_SIZE};
use crate::decoder::values::{host, host_ids, tensor};

/// Numbers of tokens that each pass processes per sequence: prompts and single tokens, with sequences joining and
/// leaving.
const PASSES: [[usize; 3]; 6] = [
    [3, 0, 0],
    [1, 5, 0],
    [1, 1, 1],
    [0, 4, 1],
    [1, 1, 1],
    [6, 1, 9],
];

fn new_cache<B: Backend>(decoder: &Transformer<B>) -> KvCache<B> {
    KvCache::new(decoder.config(), 1, SEQ_LEN, &decoder.device())
}

fn sequences() -> [Vec<u32>; 3] {
    [1, 7, 4].map(|factor| {
        let ids = host_ids(factor).into_iter().take(SEQ_LEN);
        ids.map(|id| id as u32).collect()
    })
}

/// Computes the logits `[seq, vocab_size]` of a full pass over each sequence.
fn full(decoder: &Transformer<Flex>) -> [Vec<f32>; 3] {
    sequences().map(|ids| {
        let ids = ids.into_iter().map(i64::from).collect();
        host(decoder.forward(tensor(ids, SEQ_LEN)))
    })
}

/// Runs [`PASSES`] with alternating requested outputs and compares the outputs with those of full passes.
fn assert_as_full<B: Backend>(name: &str, decoder: &Transformer<B>, full: &[Vec<f32>; 3]) {
    let (ids, mut caches) = (sequences(), [0; 3].map(|_| new_cache(decoder)));
    for (n, pass) in PASSES.iter().enumerate() {
        let mut expected = Vec::new();
        let mut chunks = Vec::new();
        for (i, cache) in caches.iter_mut().enumerate().filter(|(i, _)| pass[*i] > 0) {
            let seen = cache.len()..cache.len() + pass[i];
            let output = [
                RequestedOutput::All,
                RequestedOutput::Last,
                RequestedOutput::None,
            ][(n + i) % 3];
            let rows = match output {
                RequestedOutput::All => seen.clone(),
                RequestedOutput::Last => seen.end - 1..seen.end,
                RequestedOutput::None | RequestedOutput::HiddenSum => seen.end..seen.end,
            };
            expected.extend(&full[i][rows.start * VOCAB_SIZE..rows.end * VOCAB_SIZE]);
            let tokens = &ids[i][seen];
            chunks.push(SequenceChunk {
                tokens,
                cache,
                output,
                source: None,
                adapter: None,
            });
        }
        let found = decoder.ragged(&mut chunks).logits;
        let found = found.map_or(Vec::new(), |logits| {
            assert_eq!(logits.dims()[1], VOCAB_SIZE);
            logits.into_data().iter::<f32>().collect()
        });
        assert_eq!(found.is_empty(), expected.is_empty(), "{name}: pass {n}");
        if !found.is_empty() {
            assert_close(&format!("{name}: pass {n}"), &found, &expected);
        }
    }
    assert_eq!(caches.map(|cache| cache.len()), [12; 3]);
}

#[test]
fn ragged_passes_equal_full_passes() {
    for (name, decoder) in decoders() {
        for weights in [WeightFormat::F32, WeightFormat::INT8] {
            let decoder = &decoder.clone().with_weights(weights).unwrap();
            assert_as_full(&name, decoder, &full(decoder));
        }
    }
}

/// ndarray uses the reference implementations of the kernels.
#[test]
fn ndarray_agrees() {
    use burn_ndarray::NdArray;
    for (name, decoder) in decoders().step_by(5) {
        let full = full(&decoder);
        let config = decoder.config().clone();
        let decoder = config.init::<NdArray>(5, &Default::default());
        assert_as_full(&name, &decoder, &full);
    }
}

/// The hidden sums of several ragged passes add up to the mean of a full pass.
#[test]
fn hidden_sums_add_up_to_mean_of_full_pass() {
    for (name, decoder) in decoders() {
        for weights in [WeightFormat::F32, WeightFormat::INT8] {
            let decoder = &decoder.clone().with_weights(weights).unwrap();
            let (ids, mut caches) = (sequences(), [0; 3].map(|_| new_cache(decoder)));
            let mut sums = [0; 2].map(|_| Vec::new());
            for take in [5, 1, SEQ_LEN - 6] {
                let mut chunks = Vec::new();
                for (i, cache) in caches.iter_mut().enumerate() {
                    let seen = cache.len()..cache.len() + take;
                    chunks.push(SequenceChunk {
                        tokens: &ids[i][seen],
                        cache,
                        source: None,
                        adapter: None,
                        output: [
                            RequestedOutput::HiddenSum,
                            RequestedOutput::Last,
                            RequestedOutput::HiddenSum,
                        ][i],
                    });
                }
                let output = decoder.ragged(&mut chunks);
                assert_eq!(output.logits.unwrap().dims(), [1, VOCAB_SIZE]);
                let found: Vec<f32> = output.hidden_sums.unwrap().into_data().iter().collect();
                for (sum, found) in sums.iter_mut().zip(found.chunks(found.len() / 2)) {
                    sum.resize(found.len(), 0.0f32);
                    sum.iter_mut().zip(found).for_each(|(sum, x)| *sum += x);
                }
            }
            for (sum, ids) in sums.iter().zip([&ids[0], &ids[2]]) {
                let ids = ids.iter().map(|&id| i64::from(id)).collect();
                let expected: Vec<f32> = decoder
                    .mean_hidden(tensor(ids, SEQ_LEN))
                    .into_data()
                    .iter()
                    .collect();
                let mean: Vec<f32> = sum.iter().map(|sum| sum / SEQ_LEN as f32).collect();
                assert_close(&name, &mean, &expected);
            }
        }
    }
}

#[test]
fn empty_chunk_has_no_output() {
    let (_, decoder) = decoders().next().unwrap();
    assert!(decoder.ragged(&mut []).logits.is_none());
    let mut cache = new_cache(&decoder);
    let mut chunks = [SequenceChunk {
        tokens: &[],
        cache: &mut cache,
        output: RequestedOutput::All,
        source: None,
        adapter: None,
    }];
    assert!(decoder.ragged(&mut chunks).logits.is_none());
    assert!(cache.is_empty());
}

fn ids(range: std::ops::Range<usize>) -> Tensor<Flex, 2, Int> {
    let ids: Vec<i64> = host_ids(7)[range].to_vec();
    let len = ids.len();
    tensor(ids, len)
}

#[test]
fn truncated_and_copied_caches_equal_shorter_ones() {
    for (name, decoder) in decoders() {
        let recurrent = decoder.config().is_recurrent();
        let full = host(decoder.forward(ids(0..SEQ_LEN)));
        let mut longer = new_cache(&decoder);
        decoder.next_logits(ids(0..9), &mut longer);
        // The tokens of another sequence are overwritten.
        let mut copy = new_cache(&decoder);
        decoder.next_logits(ids(3..11), &mut copy);

        // A recurrent state can continue only from all cached tokens or from the start.
        let shared = if recurrent { 9 } else { 5 };
        assert_eq!(longer.reusable(100), 9, "{name}");
        assert_eq!(longer.reusable(5), if recurrent { 0 } else { 5 }, "{name}");
        assert_eq!(copy.copy_from(&longer, shared), shared, "{name}");
        assert_eq!(longer.truncate(shared), shared, "{name}");
        for cache in [&mut copy, &mut longer] {
            assert_eq!(cache.len(), shared);
            let found = host(decoder.next_logits(ids(shared..SEQ_LEN), cache));
            let expected = &full[full.len() - VOCAB_SIZE..];
            assert_close(&name, &found, expected);
        }

        assert_eq!(copy.truncate(3), if recurrent { 0 } else { 3 }, "{name}");
        copy.truncate(0);
        assert!(copy.is_empty());
        let found = host(decoder.next_logits(ids(0..SEQ_LEN), &mut copy));
        assert_close(&name, &found, &full[full.len() - VOCAB_SIZE..]);
    }
}

#[test]
fn copy_is_limited_to_capacity() {
    let (name, decoder) = decoders().next().unwrap();
    let mut whole = new_cache(&decoder);
    decoder.next_logits(ids(0..SEQ_LEN), &mut whole);
    let mut small = KvCache::new(decoder.config(), 1, 4, &device());
    assert_eq!(small.copy_from(&whole, 10), 4, "{name}");
    assert_eq!((small.len(), small.capacity()), (4, 4));
    // Keys and values of every block, 4 bytes per element.
    let config = decoder.config();
    let elements = config.n_layers() * 2 * config.kv_heads() * config.head_dim();
    assert_eq!(small.bytes(), 4 * elements * 4);
    assert_eq!(whole.bytes(), 4 * elements * SEQ_LEN);
}
