//! Caches in f16 and q8: logits are close to those with f32 caches, cached decoding equals the full pass, and the caches
//! take the bytes that the planning of memory counts.

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_model::config::Position;
use emberlm_model::{CacheFormat, Transformer, TransformerConfig, count};

use crate::decoder::decoding::device;
use crate::decoder::spread::{SEQ_LEN, base, spread};
use crate::decoder::values::{BATCH, host, tokens};

/// Bound of `‖a - b‖ / ‖b‖` over all logits, with weights that make attention and activations far from linear: 2⁻¹² for
/// an element in f16, and 1/254 of the largest of 32 in q8, grow through two blocks.
const BOUNDS: [(CacheFormat, f64); 2] = [(CacheFormat::F16, 0.005), (CacheFormat::Q8, 0.05)];

/// The tested models, with heads of 32 elements. A token that is routed to another expert by the rounding would change
/// its logits by any amount.
fn decoders() -> impl Iterator<Item = (String, Transformer<Flex>)> {
    let configs = spread().into_iter().map(|(_, config)| config);
    let wide = configs.filter_map(|config| {
        let mut raw = config.raw().clone();
        raw.head_dim = Some(32);
        if let Some(latent) = &mut raw.latent_attention {
            (latent.rank, latent.rope_dim) = (24, Some(8));
            if let Position::Rotary { dims, .. } = &mut raw.position {
                *dims = None;
            }
        }
        TransformerConfig::try_from(raw).ok()
    });
    let wide = wide.filter(|config| config.experts().is_none());
    wide.map(|config| (format!("{:?}", config.raw()), config.init(5, &device())))
}

fn in_format(decoder: &Transformer<Flex>, format: CacheFormat) -> Transformer<Flex> {
    decoder.clone().with_cache_format(format).unwrap()
}

fn error(found: &[f32], expected: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
    };
    let difference = squares(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    difference / squares(&mut expected.iter().copied())
}

#[test]
fn logits_are_close_to_those_of_f32_caches() {
    for (format, bound) in BOUNDS {
        let (mut worst, mut rounded) = ((0.0, String::new()), 0);
        for (name, decoder) in decoders() {
            let expected = host(decoder.forward(tokens(7)));
            let found = host(in_format(&decoder, format).forward(tokens(7)));
            let error = error(&found, &expected);
            rounded += usize::from(error > 0.0);
            if error > worst.0 {
                worst = (error, name);
            }
        }
        let (error, name) = worst;
        assert!(error <= bound, "{name}: off by {error:.2e} in {format:?}");
        assert!(rounded > 50, "{format:?}: {rounded} models were rounded");
    }
}

#[test]
fn token_by_token_decoding_equals_full_pass() {
    for (format, bound) in BOUNDS {
        for (name, decoder) in decoders() {
            let decoder = in_format(&decoder, format);
            let full = decoder.forward(tokens(7));
            let mut cache = decoder.cache(BATCH, SEQ_LEN);
            for position in 0..SEQ_LEN {
                let token = tokens(7).narrow(1, position, 1);
                let found = host(decoder.next_logits(token, &mut cache));
                let expected = host(full.clone().narrow(1, position, 1));
                // Rounding of sums in another order can move an element to the neighbouring value of the format.
                let error = error(&found, &expected);
                assert!(
                    error <= bound / 2.0,
                    "{name}: {position} is off by {error:.1e}"
                );
            }
        }
    }
}

#[test]
fn truncated_copied_and_selected_caches_continue() {
    for (format, bound) in BOUNDS {
        let mut raw = base();
        raw.head_dim = Some(32);
        let config = TransformerConfig::try_from(raw).unwrap();
        let decoder = in_format(&config.init(5, &device()), format);
        let full = host(decoder.forward(tokens(7)).narrow(1, 7, 1));
        let mut cache = decoder.cache(BATCH, SEQ_LEN);
        decoder.forward_cached(tokens(7).narrow(1, 0, 7), &mut cache);
        decoder.forward_cached(tokens(3).narrow(1, 0, 4), &mut cache);
        assert_eq!(cache.truncate(7), 7);
        let mut copy = decoder.cache(BATCH, SEQ_LEN);
        assert_eq!(copy.copy_from(&cache, 7), 7);
        // The sequences in the other order, and the token of each.
        copy.select(&[1, 0]);
        let token = tokens(7).narrow(1, 7, 1).flip([0]);
        let found = host(decoder.next_logits(token, &mut copy).flip([0]));
        assert!(error(&found, &full) <= bound / 2.0, "{format:?}");
    }
}

#[test]
fn caches_take_the_planned_bytes() {
    let mut raw = base();
    raw.head_dim = Some(64);
    let config = TransformerConfig::try_from(raw).unwrap();
    let bytes = CacheFormat::ALL.map(|format| {
        let decoder = in_format(&config.init(5, &device()), format);
        let bytes = decoder.cache(1, SEQ_LEN).bytes();
        assert_eq!(bytes, count::kv_cache(&config, SEQ_LEN, format));
        bytes
    });
    // Keys and values of 4 heads in 2 blocks.
    assert_eq!(bytes[0], 2 * 2 * 4 * SEQ_LEN * 64 * 4);
    assert_eq!(bytes[1] * 2, bytes[0]);
    // 34 bytes for 32 elements.
    assert_eq!(bytes[2] * 128, bytes[0] * 34);
    let memory = count::memory(&config);
    let counted = [memory.kv_cache, memory.kv_cache_f16];
    assert_eq!(
        (counted, memory.kv_cache_q8),
        ([bytes[0], bytes[1]], Some(bytes[2]))
    );
}

#[test]
fn heads_of_partial_blocks_and_other_backends_are_refused() {
    let mut raw = base();
    raw.head_dim = Some(48);
    let config = TransformerConfig::try_from(raw).unwrap();
    let refused = CacheFormat::Q8.check(&config).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "keys and values of 48 elements per head cannot be cached as q8: must be a multiple of 32"
    );
    assert_eq!(count::memory(&config).kv_cache_q8, None);
    assert!(CacheFormat::F16.check(&config).is_ok());
    let decoder = config.init::<NdArray>(5, &Default::default());
    let refused = decoder.with_cache_format(CacheFormat::F16).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this backend cannot cache keys and values as f16: only f32 is supported"
    );
}
