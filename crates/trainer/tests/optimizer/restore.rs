//! Saving and restoring an optimizer.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_model::weights::{HostTensor, Parts, read_tensors};
use emberlm_trainer::optimizer::{Optimizer, Snapshot};
use emberlm_trainer::{OptimizerConfig, OptimizerKind};

use crate::optimizer::fixture::{config, optimizer, start, updated, updated_by, values};

/// The tensors of the snapshot's file.
pub fn on_host<B: Backend>(snapshot: &Snapshot<B>) -> Vec<(String, HostTensor)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("optimizer.safetensors");
    snapshot.save(&file).unwrap();
    read_tensors(&file).unwrap().map(Result::unwrap).collect()
}

fn restores_bit_exactly<B: Backend>() {
    for kind in OptimizerKind::ALL {
        let config = config(kind, true);
        let mut whole = optimizer::<B>(&config);
        let expected = values(&updated(&mut whole, start::<B>(), 0..10));

        let mut before = optimizer::<B>(&config);
        let decoder = updated(&mut before, start::<B>(), 0..4);
        let snapshot = before.snapshot();
        // Later updates do not change a snapshot.
        updated(&mut before, decoder.clone(), 4..6);
        let (updates, tensors) = (snapshot.updates, on_host(&snapshot));
        assert_eq!(updates, 4);
        let mut after = optimizer::<B>(&config);
        after
            .restore(updates, tensors, &Parts::default(), &Default::default())
            .expect("its own");
        let found = values(&updated(&mut after, decoder, 4..10));
        assert_eq!(found, expected, "{kind:?}");
        let same = |a: Vec<(String, HostTensor)>, b: Vec<(String, HostTensor)>| {
            a.iter()
                .zip(&b)
                .all(|((a, x), (b, y))| a == b && x.values == y.values && x.shape == y.shape)
        };
        let ends = [on_host(&whole.snapshot()), on_host(&after.snapshot())];
        let [whole, after] = ends;
        assert_eq!(whole.len(), after.len());
        assert!(same(whole, after), "{kind:?}");
    }
}

#[test]
fn on_flex() {
    restores_bit_exactly::<Flex>();
}

#[test]
fn on_ndarray() {
    restores_bit_exactly::<NdArray>();
}

/// A module that contains a decoder.
#[derive(Module, Debug)]
struct Holder<B: BurnBackend> {
    decoder: Transformer<B>,
}

/// A module that contains the decoder, like the trainer's, uses the decoder's paths. States of versions that
/// used the module's own paths can be read.
#[test]
fn states_of_earlier_versions_are_read() {
    for kind in OptimizerKind::ALL {
        let config = config(kind, true);
        let expected = values(&updated(&mut optimizer::<Flex>(&config), start(), 0..10));
        let decoder = start::<Flex>();
        let mut before = Optimizer::<Flex>::new(&config, decoder.parameters());
        let trainee = Holder { decoder };
        let trainee = updated_by(&mut before, trainee, 0..4, |trainee| &trainee.decoder);
        let tensors = on_host(&before.snapshot());
        assert!(tensors.iter().any(|(name, _)| name.starts_with("tokens.m")));
        let prefixed = tensors
            .into_iter()
            .map(|(name, tensor)| (format!("decoder.{name}"), tensor));
        let mut after = Optimizer::<Flex>::new(&config, trainee.decoder.parameters());
        after
            .restore(4, prefixed, &Parts::default(), &Default::default())
            .unwrap();
        let found = updated(&mut after, trainee.decoder, 4..10);
        assert_eq!(values(&found), expected, "{kind:?}");
    }
}

fn state(kind: OptimizerKind) -> Vec<(String, HostTensor)> {
    let mut optimizer = optimizer::<Flex>(&config(kind, false));
    updated(&mut optimizer, start::<Flex>(), 0..1);
    on_host(&optimizer.snapshot())
}

#[test]
fn each_parameter_has_what_its_update_needs() {
    let ends = |kind, path: &str| -> Vec<String> {
        let names = state(kind).into_iter().map(|(name, _)| name);
        let names = names.filter(|name| name.starts_with(path));
        names.map(|name| name[path.len()..].to_owned()).collect()
    };
    let pair = [".moment1", ".moment2"];
    let map = "blocks.0.attention.out.weight";
    assert_eq!(ends(OptimizerKind::AdamW, map), pair);
    assert_eq!(ends(OptimizerKind::Muon, map), [".momentum"]);
    assert_eq!(ends(OptimizerKind::NorMuon, map), [".momentum", ".neurons"]);
    assert_eq!(ends(OptimizerKind::Lion, map), [".momentum"]);
    let [left, right] = [[".left", ".left_basis"], [".right", ".right_basis"]];
    let rotated = [left, pair, right].concat();
    assert_eq!(ends(OptimizerKind::Soap, map), rotated);
    for path in ["tokens", "head", "norm_final.gain"] {
        assert_eq!(ends(OptimizerKind::Muon, path), pair, "{path}");
        assert_eq!(ends(OptimizerKind::NorMuon, path), pair, "{path}");
        assert_eq!(ends(OptimizerKind::Soap, path), pair, "{path}");
        assert_eq!(ends(OptimizerKind::Lion, path), [".momentum"], "{path}");
    }
}

#[test]
fn foreign_tensors_are_rejected_by_name() {
    let restore = |kind, tensors| {
        let mut optimizer = optimizer::<Flex>(&config(kind, false));
        optimizer.restore(1, tensors, &Parts::default(), &Default::default())
    };
    let matrix = "blocks.0.attention.out.weight";
    for (kind, missing) in [
        (OptimizerKind::AdamW, "head.moment1".to_owned()),
        (OptimizerKind::AdamW, "head.moment2".to_owned()),
        (OptimizerKind::NorMuon, format!("{matrix}.momentum")),
        (OptimizerKind::NorMuon, format!("{matrix}.neurons")),
        (OptimizerKind::Soap, format!("{matrix}.moment2")),
        (OptimizerKind::Soap, format!("{matrix}.left")),
        (OptimizerKind::Soap, format!("{matrix}.right_basis")),
    ] {
        let mut tensors = state(kind);
        tensors.retain(|(other, _)| *other != missing);
        assert_eq!(restore(kind, tensors), Err(missing), "{kind:?}");
    }
    // Other sides of a matrix are rotated.
    let mut narrow = config(OptimizerKind::Soap, false);
    if let OptimizerConfig::Soap(soap) = &mut narrow.optimizer {
        soap.max_precond_dim = 8;
    }
    let wide = "blocks.0.feed_forward.down.weight";
    let mut tensors = state(OptimizerKind::Soap);
    tensors.retain(|(name, _)| name.starts_with(wide));
    let mut narrow = optimizer::<Flex>(&narrow);
    let refused = narrow.restore(1, tensors.clone(), &Parts::default(), &Default::default());
    assert!(refused.is_err_and(|name| name.starts_with(&format!("{wide}.left"))));
    tensors.retain(|(name, _)| !name.contains(".left"));
    let restored = narrow.restore(1, tensors, &Parts::default(), &Default::default());
    assert_eq!(restored, Ok(()));
    for (kind, other) in [
        (OptimizerKind::AdamW, OptimizerKind::Muon),
        (OptimizerKind::Muon, OptimizerKind::NorMuon),
        (OptimizerKind::NorMuon, OptimizerKind::Muon),
        (OptimizerKind::Muon, OptimizerKind::Lion),
        (OptimizerKind::Lion, OptimizerKind::AdamW),
        (OptimizerKind::Soap, OptimizerKind::AdamW),
        (OptimizerKind::AdamW, OptimizerKind::Soap),
    ] {
        assert!(restore(kind, state(kind)).is_ok());
        assert!(restore(kind, state(other)).is_err(), "{kind:?}, {other:?}");
    }
}
