//! A split token table gives the same model and the same files as an unsplit one. The tests split tables into three
//! parts of uneven sizes on CPU backends, as required by devices with small buffers.

use std::collections::{BTreeMap, HashMap};

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{Backend, HeadLossOptions, TrainingBackend};
use emberlm_model::weights::{
    Element, HostTensor, Parts, SafetensorsStore, load_named, load_own, named_tensors, published,
    save_own,
};
use emberlm_model::{
    IGNORED_ELEMENT, TokenTable, Tokens, TrainingPass, Transformer, TransformerConfig, WeightFormat,
};

use crate::decoder::gradients::{by_path, one_at_a_time};
use crate::decoder::spread::{SEQ_LEN, VOCAB_SIZE, spread};
use crate::decoder::values::{documents, host, host_ids, tensor, tokens};

/// Tolerance for `‖a - b‖ / ‖b‖`.
const TOLERANCE: f64 = 1e-5;

/// Buffer size in bytes that requires three parts.
fn largest(config: &TransformerConfig) -> Option<u64> {
    let rows = VOCAB_SIZE.div_ceil(3) as u64;
    Some(rows * 4 * (config.d_model() as u64 + 1))
}

fn split<B: Backend>(config: &TransformerConfig) -> Transformer<B> {
    let decoder = config.init_within::<B>(5, &Default::default(), largest(config));
    let TokenTable::Parts(parts) = &decoder.embeddings.tokens else {
        panic!("the table is not split");
    };
    let rows: Vec<usize> = parts.iter().map(|part| part.val().dims()[0]).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows.iter().sum::<usize>(), VOCAB_SIZE);
    assert!(rows[0] > rows[2], "uneven: {rows:?}");
    decoder
}

fn unsplit<B: Backend>(config: &TransformerConfig) -> Transformer<B> {
    let decoder = config.init::<B>(5, &Default::default());
    assert!(matches!(decoder.embeddings.tokens, TokenTable::Whole(_)));
    decoder
}

/// Targets, some of them ignored.
fn targets<B: Backend>() -> Tensor<B, 2, Int> {
    let mut ids = host_ids(8);
    ids[SEQ_LEN - 3..].fill(IGNORED_ELEMENT.into());
    ids[2] = IGNORED_ELEMENT.into();
    tensor(ids, SEQ_LEN)
}

fn norm(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&x| f64::from(x).powi(2));
    squares.sum::<f64>().sqrt()
}

#[track_caller]
fn assert_close(what: &str, found: &[f32], expected: &[f32], scale: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let difference: Vec<f32> = found.iter().zip(expected).map(|(a, b)| a - b).collect();
    let error = norm(&difference) / norm(expected).max(scale).max(f64::MIN_POSITIVE);
    assert!(error <= TOLERANCE, "{what}: off by {error:.1e}");
}

/// All additional loss terms; the soft cap comes from the model.
fn objective() -> HeadLossOptions {
    HeadLossOptions {
        label_smoothing: 0.1,
        z_loss: 0.01,
        ..HeadLossOptions::default()
    }
}

/// Computes the loss and gradients of a training pass.
fn trained<B: TrainingBackend>(
    decoder: &Transformer<B>,
    input: Tokens<B>,
    recompute: bool,
) -> (f32, BTreeMap<String, Vec<f32>>) {
    let pass = TrainingPass {
        recompute,
        dropout_seed: 3,
        ..TrainingPass::default()
    };
    let _guard = one_at_a_time();
    let (loss, grads) = decoder.gradients(input, pass, |hidden| {
        decoder.training_loss_sum_of(hidden, targets(), objective())
    });
    (host(loss)[0], by_path(decoder, &grads))
}

fn check_training<B: TrainingBackend>() {
    let (mut tied, mut biased, mut capped) = ([false; 2], [false; 2], [false; 2]);
    for (name, config) in spread() {
        let (parts, unsplit) = (split::<B>(&config), unsplit::<B>(&config));
        let head = config.head();
        tied[usize::from(head.tied)] = true;
        biased[usize::from(head.bias)] = true;
        capped[usize::from(head.soft_cap.is_some())] = true;
        let isolated = config.check_documents().is_ok().then(documents);
        let input = || Tokens {
            ids: tokens(7),
            documents: isolated.clone(),
        };
        let (expected, grads) = trained(&unsplit, input(), false);
        // Every parameter has a gradient, except the biases of choices.
        let trained_tensors = named_tensors(&unsplit)
            .into_iter()
            .filter(|(path, _)| !path.ends_with("choice_bias"))
            .count();
        assert_eq!(grads.len(), trained_tensors, "{name}");
        let all = grads
            .values()
            .map(|grad| norm(grad).powi(2))
            .sum::<f64>()
            .sqrt();
        for recompute in [false, true] {
            let (loss, found) = trained(&parts, input(), recompute);
            assert_close(&name, &[loss], &[expected], 0.0);
            assert!(found.keys().eq(grads.keys()), "{name}");
            for (path, grad) in &grads {
                // The gradient of a key's bias is only rounding error, and that of a factor is a sum over all elements, so the
                // error is relative to all gradients.
                let share = match path.contains(".mix.") || path.ends_with("k_norm.bias") {
                    true => 1e-2,
                    false => 1e-3,
                };
                assert_close(&format!("{name}: {path}"), &found[path], grad, share * all);
            }
        }
    }
    assert_eq!(
        [tied, biased, capped],
        [[true; 2]; 3],
        "models with and without each"
    );
}

#[test]
fn split_table_trains_like_unsplit_on_flex() {
    check_training::<Autodiff<Flex>>();
}

#[test]
fn split_table_trains_like_unsplit_on_ndarray() {
    check_training::<Autodiff<NdArray>>();
}

#[test]
fn split_table_predicts_like_unsplit() {
    for (name, config) in spread() {
        let (parts, unsplit) = (split::<Flex>(&config), unsplit::<Flex>(&config));
        for weights in [WeightFormat::F32, WeightFormat::INT8] {
            let parts = parts.clone().with_weights(weights).unwrap();
            let unsplit = unsplit.clone().with_weights(weights).unwrap();
            let found = |decoder: &Transformer<Flex>| {
                let losses = decoder.token_losses(tokens::<Flex>(7), targets());
                (
                    host(decoder.forward(tokens(7))),
                    host(losses),
                    host(decoder.loss_sum(tokens::<Flex>(7), targets())),
                )
            };
            let (found, expected) = (found(&parts), found(&unsplit));
            assert_close(&name, &found.0, &expected.0, 0.0);
            assert_close(&name, &found.1, &expected.1, 0.0);
            assert_close(&name, &found.2, &expected.2, 0.0);
        }
    }
}

/// Writes tensors to a file.
fn written(tensors: &[(String, HostTensor)]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_own(tensors, HashMap::new(), &path).unwrap();
    (folder, path)
}

#[test]
fn files_contain_one_table() {
    for (name, config) in spread() {
        let (parts, unsplit) = (split::<Flex>(&config), unsplit::<Flex>(&config));
        // Initial weights do not depend on the split.
        let expected = named_tensors::<Flex, _>(&unsplit);
        assert_eq!(named_tensors::<Flex, _>(&parts), expected, "{name}");
        let (_folder, path) = written(&expected);
        let blank = || config.blank_within::<Flex>(&Default::default(), largest(&config));
        let loaded = load_own::<Flex, _>(blank(), &path).unwrap();
        let rows = Parts::of::<Flex, _>(&loaded);
        assert_eq!(rows.rows("tokens").map(<[usize]>::len), Some(3), "{name}");
        assert_eq!(rows.rows("head").is_some(), !config.head().tied, "{name}");
        assert_eq!(named_tensors::<Flex, _>(&loaded), expected, "{name}");

        let source = |path: &str| config.family().source(&config, path);
        let of = |decoder: &Transformer<Flex>| {
            let tensors = published(decoder, Element::Bf16, source);
            let named = tensors.iter().map(|t| (t.name().to_owned(), t.values()));
            named.collect::<Vec<_>>()
        };
        // Compare published names of the tensors that all models of a family have.
        let published = of(&unsplit);
        assert_eq!(of(&parts), published, "{name}");
        if published.len() == expected.len() {
            let (_folder, path) = written(&published);
            let store = SafetensorsStore::open(&path).unwrap();
            let loaded = load_named(blank(), &store, source).unwrap();
            assert_eq!(named_tensors::<Flex, _>(&loaded), expected, "{name}");
        }
    }
}

#[test]
fn reconfiguring_keeps_rows() {
    let (_, config) = spread().swap_remove(0);
    let parts = split::<Flex>(&config);
    let mut raw = config.raw();
    raw.dropout = 0.5;
    let other = TransformerConfig::try_from(raw).unwrap();
    // On this device, the table of the new model is not split.
    let found = parts.reconfigured(&other).unwrap();
    assert_eq!(named_tensors(&found), named_tensors(&parts));
}

#[test]
fn table_of_another_size_is_rejected_as_one() {
    let (_, config) = spread().swap_remove(0);
    let blank = || config.blank_within::<Flex>(&Default::default(), largest(&config));
    let error = |change: fn(&mut Vec<(String, HostTensor)>)| {
        let mut tensors = named_tensors::<Flex, _>(&unsplit::<Flex>(&config));
        change(&mut tensors);
        let (_folder, path) = written(&tensors);
        load_own::<Flex, _>(blank(), &path).unwrap_err().to_string()
    };
    let width = config.d_model();
    let found = error(|tensors| {
        let (_, table) = tensors
            .iter_mut()
            .find(|(name, _)| name == "tokens")
            .unwrap();
        let width = table.shape[1];
        table.shape[0] -= 1;
        table.values.truncate(table.shape[0] * width);
    });
    let fewer = VOCAB_SIZE - 1;
    assert_eq!(
        found,
        format!(
            "tensor `tokens` has shape [{fewer}, {width}], the model needs [{VOCAB_SIZE}, {width}]"
        )
    );
    let found = error(|tensors| tensors.retain(|(name, _)| name != "tokens"));
    assert_eq!(found, "tensor `tokens` is missing");
    let found = error(|tensors| {
        let (_, table) = tensors.iter().find(|(name, _)| name == "tokens").unwrap();
        tensors.push(("tokens.parts.0".to_owned(), table.clone()));
    });
    assert_eq!(found, "tensors left over: tokens.parts.0");
}
