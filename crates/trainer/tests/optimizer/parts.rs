//! Tables split into parts are updated like whole ones, and their state is saved whole, so a run can be
//! resumed with a different split.

use std::collections::HashMap;

use burn_flex::Flex;
use emberlm_model::weights::{HostTensor, Parts, load_own, named_tensors, save_own, whole_path};
use emberlm_model::{TokenTable, Transformer};
use emberlm_trainer::OptimizerKind;
use emberlm_trainer::optimizer::ParameterGroup;

use crate::optimizer::fixture::{Training, config, decoder_config, optimizer, start, updated};
use crate::optimizer::restore::on_host;

type Model = Transformer<Training<Flex>>;
/// Tensors by name.
type Named = Vec<(String, HostTensor)>;

/// The same weights with tables in three parts: 5, 4 and 4 of 13 rows.
fn cut(decoder: &Model) -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_own(&named_tensors(decoder), HashMap::new(), &path).unwrap();
    let row = 4 * (decoder.config().d_model() as u64 + 1);
    let blank = decoder_config().blank_within(&Default::default(), Some(5 * row));
    let decoder: Model = load_own(blank, &path).unwrap();
    assert!(matches!(&decoder.embeddings.tokens, TokenTable::Parts(parts) if parts.len() == 3));
    assert!(matches!(&decoder.lm_head.head, Some(TokenTable::Parts(parts)) if parts.len() == 3));
    decoder
}

/// The same weights with whole tables.
fn whole(decoder: &Model) -> Model {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_own(&named_tensors(decoder), HashMap::new(), &path).unwrap();
    load_own(decoder_config().blank(&Default::default()), &path).unwrap()
}

/// Ten updates. At the fourth, the run is stopped and resumed with the model that `between` returns.
fn relayed(kind: OptimizerKind, first: Model, between: fn(&Model) -> Model) -> (Named, Named) {
    let config = config(kind, true);
    let mut before = optimizer::<Flex>(&config);
    let decoder = between(&updated(&mut before, first, 0..4));
    let snapshot = before.snapshot();
    let parts = Parts::of::<Training<Flex>, _>(&decoder);
    let mut after = optimizer::<Flex>(&config);
    after
        .restore(
            snapshot.updates,
            on_host(&snapshot),
            &parts,
            &Default::default(),
        )
        .unwrap();
    let decoder = updated(&mut after, decoder, 4..10);
    (named_tensors(&decoder), on_host(&after.snapshot()))
}

#[test]
fn a_run_resumes_with_differently_split_tables() {
    for kind in OptimizerKind::ALL {
        let expected = relayed(kind, start(), Model::clone);
        assert!(expected.1.iter().all(|(name, _)| !name.contains("parts")));
        for (first, between) in [
            (cut(&start()), Model::clone as fn(&Model) -> Model),
            (cut(&start()), whole),
            (start(), cut),
        ] {
            let found = relayed(kind, first, between);
            assert_eq!(found, expected, "{kind:?}");
        }
    }
}

#[test]
fn moments_with_a_wrong_row_count_are_rejected() {
    let decoder = cut(&start());
    let parts = Parts::of::<Training<Flex>, _>(&decoder);
    let mut optimizer = optimizer::<Flex>(&config(OptimizerKind::AdamW, false));
    updated(&mut optimizer, decoder, 0..1);
    let mut tensors = on_host(&optimizer.snapshot());
    let (_, moment) = tensors
        .iter_mut()
        .find(|(name, _)| name == "head.moment2")
        .unwrap();
    moment.shape[0] -= 1;
    moment.values.truncate(moment.shape.iter().product());
    let found = optimizer.restore(1, tensors, &parts, &Default::default());
    assert_eq!(found, Err("head.moment2".to_owned()));
}

#[test]
fn a_part_is_in_its_table_s_group() {
    let parameters = cut(&start()).parameters();
    for (table, group) in [
        ("tokens", ParameterGroup::Embeddings),
        ("head", ParameterGroup::Head),
    ] {
        let parts = parameters.iter().filter(|p| whole_path(&p.path) == table);
        let groups: Vec<_> = parts.map(|p| ParameterGroup::of(&p.role)).collect();
        assert_eq!(groups, [group; 3], "{table}");
        assert_eq!(parameters.role(table).map(ParameterGroup::of), Some(group));
    }
}
