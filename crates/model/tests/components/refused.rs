//! Components reject unsupported contexts with an error that states the reason.

use burn::tensor::{Bool, Int, Tensor};
use burn_flex::Flex;
use emberlm_model::ContextError;
use emberlm_model::config::ResidualMix;
use emberlm_model::nn::{
    AttentionConfig, AttentionContext, AttentionMask, BlockConfig, CrossAttentionConfig,
    FeedForwardConfig, Mechanism, Stack, StackConfig, StackContext, ValueEmbeddingConfig,
};

use crate::components::{D, random};

fn stack(n_layers: usize, attention: AttentionConfig, crosses: bool) -> StackConfig {
    let block = BlockConfig {
        cross_attention: crosses.then(|| CrossAttentionConfig::new(D, 4)),
        ..BlockConfig::new(attention, FeedForwardConfig::new(D, 40))
    };
    StackConfig::new(n_layers, block)
}

fn linear() -> AttentionConfig {
    AttentionConfig {
        mechanism: Mechanism::Linear {
            features: 16,
            seed: 0,
            stream: 0,
        },
        ..AttentionConfig::new(D, 4)
    }
}

/// One mask of each kind over 5 tokens.
fn masks() -> [(&'static str, AttentionMask<Flex>); 3] {
    let device = Default::default();
    let documents = Tensor::<Flex, 2, Int>::zeros([1, 5], &device);
    let padding = Tensor::<Flex, 2, Bool>::full([1, 5], true, &device);
    let none = AttentionMask::default;
    [
        ("documents", AttentionMask::of_documents(Some(documents))),
        (
            "padding",
            AttentionMask {
                padding: Some(padding),
                ..none()
            },
        ),
        (
            "bias",
            AttentionMask {
                bias: Some(Tensor::zeros([4, 5, 5], &device)),
                ..none()
            },
        ),
    ]
}

#[test]
fn linear_attention_rejects_every_mask() {
    let device = Default::default();
    let config = stack(2, linear(), false);
    let stack = config.init::<Flex>(&device);
    let block = &stack.blocks[0];
    let x = || random([1, 5, D]);
    for (mask, given) in masks() {
        let context = || AttentionContext {
            mask: given.clone(),
            ..AttentionContext::default()
        };
        let refusals = [
            block.attention.forward(x(), context(), None).err(),
            block.attention.weights(x(), None, given.clone()).err(),
            block.forward(x(), context()).err(),
            block.attention_weights(x(), None, given.clone()).err(),
            stack.forward(x(), given.clone(), None).err(),
            stack.attention_weights(x(), given.clone()).err(),
        ];
        assert_eq!(refusals, [Some(ContextError::LinearMask { mask }); 6]);
    }
    assert!(stack.forward(x(), AttentionMask::default(), None).is_ok());
    let error = ContextError::LinearMask { mask: "padding" }.to_string();
    assert!(
        error.starts_with("linear attention and delta nets support no padding:"),
        "{error}"
    );
}

#[test]
fn softmax_attention_rejects_only_documents_with_cache() {
    let config = stack(1, AttentionConfig::new(D, 4), false);
    let stack = config.init::<Flex>(&Default::default());
    for (name, mask) in masks() {
        let whole = stack.forward(random([1, 5, D]), mask.clone(), None);
        assert!(whole.is_ok(), "{name}");
        let mut cache = config.cache(1, 5, &Default::default());
        let cached = stack.forward(random([1, 5, D]), mask, Some(&mut cache));
        let expected = (name == "documents").then_some(ContextError::CachedDocuments);
        assert_eq!(cached.err(), expected, "{name}");
    }
}

#[test]
fn memory_requires_cross_attention_and_vice_versa() {
    let attention = AttentionConfig::new(D, 4);
    let [with, without]: [Stack<Flex>; 2] =
        [true, false].map(|crosses| stack(2, attention, crosses).init(&Default::default()));
    let (x, encoded) = (random([1, 5, D]), random([1, 7, D]));
    let memory = with.project_memory(encoded.clone(), None).unwrap();
    let context = StackContext {
        memory: Some(&memory),
        ..StackContext::default()
    };
    let refused = without.project_memory(encoded, None).err();
    assert_eq!(refused, Some(ContextError::NoCrossAttention));
    let refused = without.forward(x.clone(), context, None).err();
    assert_eq!(refused, Some(ContextError::NoCrossAttention));
    let refused = with.forward(x.clone(), StackContext::default(), None).err();
    assert_eq!(refused, Some(ContextError::NoMemory));
    let refused = with.blocks[0].forward(x, AttentionContext::default()).err();
    assert_eq!(refused, Some(ContextError::NoMemory));
}

#[test]
fn additions_require_their_inputs() {
    let values = AttentionConfig {
        values: Some(ValueEmbeddingConfig {
            vocab_size: 7,
            gate_inputs: 3,
        }),
        ..AttentionConfig::new(D, 4)
    };
    let with_values = StackConfig {
        value_layers: vec![1],
        ..stack(2, values, false)
    };
    let with_values = with_values.init::<Flex>(&Default::default());
    let x = random([1, 5, D]);
    let ids = Tensor::<Flex, 2, Int>::zeros([1, 5], &Default::default());
    let refused = with_values.forward(x.clone(), StackContext::default(), None);
    assert_eq!(refused.err(), Some(ContextError::NoTokens));
    let context = StackContext {
        ids: Some(ids),
        ..StackContext::default()
    };
    assert!(with_values.forward(x.clone(), context, None).is_ok());
    let mut mixes = stack(1, AttentionConfig::new(D, 4), false);
    mixes.block.mix = Some(ResidualMix::default());
    let mixes = mixes.init::<Flex>(&Default::default());
    let alone = mixes.blocks[0].forward(x.clone(), AttentionContext::default());
    assert_eq!(alone.err(), Some(ContextError::NoEmbeddings));
    assert!(mixes.forward(x, StackContext::default(), None).is_ok());
}

#[test]
fn memory_and_cache_of_another_depth_are_rejected() {
    let [two, three] = [2, 3].map(|n_layers| stack(n_layers, AttentionConfig::new(D, 4), true));
    let stack = two.init::<Flex>(&Default::default());
    let (x, encoded) = (random([1, 5, D]), random([1, 7, D]));
    let memories = [&stack, &three.init(&Default::default())]
        .map(|stack| stack.project_memory(encoded.clone(), None).unwrap());
    let [own, other] = memories.each_ref().map(|memory| StackContext {
        memory: Some(memory),
        ..StackContext::default()
    });
    let expected = ContextError::MemoryLayers {
        projected: 3,
        blocks: 2,
    };
    assert_eq!(stack.forward(x.clone(), other, None).err(), Some(expected));
    let mut cache = three.cache(1, 5, &Default::default());
    let expected = ContextError::CachedLayers {
        cached: 3,
        blocks: 2,
    };
    assert_eq!(
        stack.forward(x, own, Some(&mut cache)).err(),
        Some(expected)
    );
}
