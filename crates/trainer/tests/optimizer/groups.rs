//! The groups partition the parameters: for every preset of every family, at small sizes, each parameter is
//! in the expected group.

use std::collections::{BTreeMap, BTreeSet};

use burn_flex::Flex;
use emberlm_model::config::{AttentionKind, FeedForwardKind, Position};
use emberlm_model::{Parameter, TransformerConfig, count, families};
use emberlm_trainer::optimizer::ParameterGroup;

/// A preset's architecture at small sizes.
fn small(name: &str) -> TransformerConfig {
    let mut config = families::preset(name).unwrap().config;
    config.vocab_size = Some(11);
    config.seq_len = 8;
    config.d_model = 8;
    config.n_layers = 2;
    config.heads = 4;
    config.kv_heads = config.kv_heads.map(|_| 2);
    config.head_dim = Some(2);
    config.attention = AttentionKind::SOFTMAX;
    config.feed_forward.width = Some(12);
    if let Some(experts) = &mut config.experts {
        (experts.count, experts.active, experts.width) = (3, 2, None);
        experts.shared_width = experts.shared_width.map(|_| 12);
        (experts.groups, experts.dense_layers) = (None, Vec::new());
    }
    if let Position::Rotary { dims, .. } = &mut config.position {
        *dims = None;
    }
    if let Some(latent) = &mut config.latent_attention {
        config.head_dim = Some(4);
        (latent.rank, latent.rope_dim, latent.value_dim) = (3, None, None);
        latent.query_rank = latent.query_rank.map(|_| 5);
    }
    TransformerConfig::try_from(config).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Paths and element counts by group.
#[derive(Default)]
struct Found {
    paths: BTreeMap<&'static str, BTreeSet<String>>,
    elements: BTreeMap<&'static str, usize>,
}

impl Found {
    fn add(&mut self, parameter: &Parameter) {
        let group = match ParameterGroup::of(&parameter.role) {
            ParameterGroup::Matrices => "matrices",
            ParameterGroup::Embeddings => "embeddings",
            ParameterGroup::Head => "head",
            ParameterGroup::Vectors => "vectors",
        };
        let path = &parameter.path;
        let fresh = self.paths.entry(group).or_default().insert(path.clone());
        assert!(fresh, "{path} is there twice");
        let elements: usize = parameter.shape.iter().product();
        *self.elements.entry(group).or_default() += elements;
    }
}

#[test]
fn groups_partition_every_preset_s_parameters() {
    let presets = families::presets();
    assert!(presets.len() > 20);
    let mut seen = BTreeSet::new();
    for preset in presets {
        let name = preset.name;
        let config = small(name);
        let mut found = Found::default();
        let decoder = config.init::<Flex>(1, &Default::default());
        decoder.parameters().iter().for_each(|p| found.add(p));

        let gated = config.feed_forward().kind == FeedForwardKind::Gated;
        let learned = *config.position() == Position::Learned;
        let mut names = vec!["up", "down"];
        names.extend(gated.then_some("gate"));
        let mut maps = vec!["attention.qkv".to_owned(), "attention.out".to_owned()];
        let experts = config.experts().map_or(0, |experts| experts.count);
        maps.extend((experts > 0).then(|| "feed_forward.router".to_owned()));
        let shared = config
            .experts()
            .is_some_and(|experts| experts.shared_width.is_some());
        let gated_experts = config.experts().is_some_and(|experts| experts.shared_gate);
        let shared_gate = shared && gated_experts;
        maps.extend(shared_gate.then(|| "feed_forward.shared.gate".to_owned()));
        if let Some(latent) = config.latent_attention() {
            maps.push("attention.latent.up".to_owned());
            let q_up = latent.query_rank.is_some();
            maps.extend(q_up.then(|| "attention.latent.q_up".to_owned()));
        }
        for name in names {
            maps.extend(shared.then(|| format!("feed_forward.shared.expert.{name}")));
            let of_expert = |expert| format!("feed_forward.experts.{expert}.{name}");
            maps.extend((0..experts).map(of_expert));
            maps.extend((experts == 0).then(|| format!("feed_forward.{name}")));
        }
        let mut matrices: BTreeSet<String> = (0..config.n_layers())
            .flat_map(|layer| {
                maps.iter()
                    .map(move |map| format!("blocks.{layer}.{map}.weight"))
            })
            .collect();
        let nets = config.delta_nets();
        let nets = nets.map_or_else(Vec::new, |nets| nets.layers(config.n_layers()));
        let gates = match config.gated_attention() {
            true => (0..config.n_layers()).collect(),
            false => nets.clone(),
        };
        matrices.extend(
            gates
                .iter()
                .map(|n| format!("blocks.{n}.attention.gate.weight")),
        );
        for name in ["rates.weight", "convolution"] {
            let of = |n: &usize| format!("blocks.{n}.attention.delta.{name}");
            matrices.extend(nets.iter().map(of));
        }
        let mut embeddings = BTreeSet::from(["tokens".to_owned()]);
        embeddings.extend(learned.then(|| "positions.weight".to_owned()));
        if let Some(values) = config.value_embeddings() {
            for layer in values.layers.layers(config.n_layers()) {
                let of = |name| format!("blocks.{layer}.attention.values.{name}");
                matrices.insert(of("gate"));
                embeddings.insert(of("table"));
            }
        }
        let head: BTreeSet<String> = (!config.head().tied)
            .then(|| "head".to_owned())
            .into_iter()
            .collect();
        let paths = |group| found.paths.get(group).cloned().unwrap_or_default();
        assert_eq!(paths("matrices"), matrices, "{name}");
        assert_eq!(paths("embeddings"), embeddings, "{name}");
        assert_eq!(paths("head"), head, "{name}");
        let gain_or_bias = |path: &String| {
            let ends = [".delta.decay", ".delta.step_bias", ".choice_bias"];
            let factor = path.contains(".mix.") || ends.iter().any(|end| path.ends_with(end));
            factor || path.ends_with(".gain") || path.ends_with(".bias") || path == "head_bias"
        };
        assert!(paths("vectors").iter().all(gain_or_bias), "{name}");
        assert_eq!(paths("vectors").contains("head_bias"), config.head().bias);

        // Also matches the model's own parameter count.
        let counted = count::parameters(&config);
        let elements = |group| found.elements.get(group).copied().unwrap_or(0);
        assert_eq!(
            found.elements.values().sum::<usize>(),
            counted.total,
            "{name}"
        );
        let [tables, gates] = config.value_embeddings().map_or([0, 0], |values| {
            let layers = values.layers.layers(config.n_layers()).len();
            let inputs = values.gate_inputs_for(config.d_model());
            let of_heads = [config.vocab_size() * config.head_dim(), inputs];
            of_heads.map(|each| layers * config.kv_heads() * each)
        });
        assert_eq!(
            elements("embeddings"),
            counted.embedding + counted.positions + tables
        );
        let head_bias = if config.head().bias { 11 } else { 0 };
        assert_eq!(elements("head") + head_bias, counted.head, "{name}");
        let maps = config.d_model() * (8 + 2 * 2 * config.kv_heads()) + 8 * config.d_model();
        let feed_forward = if gated { 3 } else { 2 } * config.d_model() * 12;
        let [shared, gates_of_shared] = [shared, shared_gate].map(usize::from);
        let feed_forward = feed_forward * (experts.max(1) + shared)
            + config.d_model() * (experts + gates_of_shared);
        let matrices = 2 * (maps + feed_forward) + gates;
        // The sizes of delta nets and latents are in the count of all elements.
        if nets.is_empty() && config.latent_attention().is_none() {
            assert_eq!(elements("matrices"), matrices, "{name}");
        }
        seen.insert((gated, learned, config.head().tied, config.head().bias));
    }
    assert!(seen.len() >= 5, "the presets are of many kinds: {seen:?}");
}
