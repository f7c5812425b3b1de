//! Models with delta nets, exported.

use std::path::Path;

use burn_flex::Flex;
use emberlm_gguf::{GgufFile, TensorType};
use emberlm_kernels::cpu::gptq::Gptq;
use emberlm_kernels::cpu::matrix::Matrix;
use emberlm_kernels::cpu::packed::pack_by_importance;
use emberlm_model::config::{DeltaNets, FullLayers, Position};
use emberlm_model::gguf::FileType;
use emberlm_model::gguf_export::{GgufOptions, export};
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::nn::LinearWeight;
use emberlm_model::{
    Family, InputImportance, InputProducts, ModelConfig, PackedFormat, Transformer, WeightFormat,
};

use super::{bytes, exported, floats, logits, options, refused, small};

/// A small model with delta nets, whose rows and heads are blocks of 32 elements.
fn delta_net(family: Family, change: impl FnOnce(&mut ModelConfig)) -> Transformer<Flex> {
    let config = small(family, |config| {
        config.vocab_size = Some(96);
        (config.d_model, config.feed_forward.width) = (64, Some(96));
        config.head_dim = Some(32);
        if let Position::Rotary { dims, .. } = &mut config.position {
            *dims = Some(8);
        }
        let nets = config.delta_nets.get_or_insert_default();
        (nets.key_heads, nets.value_heads) = (Some(2), Some(6));
        (nets.key_dim, nets.value_dim) = (Some(32), Some(32));
        nets.full_layers = FullLayers::Every { every: 2 };
        if let Some(experts) = &mut config.experts {
            (experts.count, experts.active) = (4, 2);
            (experts.width, experts.shared_width) = (Some(32), Some(32));
        }
        change(config);
    });
    config.init(5, &Default::default())
}

#[test]
fn delta_nets_are_quantized_except_for_convolutions_and_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    for (family, rates) in [
        (Family::Qwen3Next, &["ssm_ba"][..]),
        (Family::Qwen3_5Text, &["ssm_beta", "ssm_alpha"]),
    ] {
        let model = delta_net(family, |_| {});
        for (file_type, expected, packed) in [
            (FileType::F16, TensorType::F16, PackedFormat::F16),
            (FileType::Q8_0, TensorType::Q8_0, PackedFormat::Q8_0),
            (FileType::Q4_0, TensorType::Q4_0, PackedFormat::Q4_0),
        ] {
            let file = exported(&model, &path, file_type);
            let kind = |name: &str| file.tensor(&format!("blk.0.{name}")).unwrap().tensor_type;
            for name in ["attn_qkv", "attn_gate", "ssm_out"].iter().chain(rates) {
                assert_eq!(kind(&format!("{name}.weight")), expected, "{name}");
            }
            for name in [
                "ssm_conv1d.weight",
                "ssm_a",
                "ssm_dt.bias",
                "ssm_norm.weight",
            ] {
                assert_eq!(kind(name), TensorType::F32, "{name}");
            }
            let query = file.tensor("blk.1.attn_q.weight").unwrap();
            assert_eq!(query.tensor_type, expected);
            // Heads of inputs in another order are read block by block.
            assert_eq!(out_format(&path), Some(packed), "{family:?}");
        }
    }
}

#[test]
fn weights_whose_blocks_have_several_heads_stay_packed_only_in_the_order_of_the_decoder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    for (keys, expected) in [(2, None), (8, Some(PackedFormat::Q4K))] {
        let model = delta_net(Family::Qwen3_5Text, |config| {
            if let Some(nets) = &mut config.delta_nets {
                (nets.key_heads, nets.value_heads) = (Some(keys), Some(8));
            }
        });
        let file = exported(&model, &path, FileType::Q4KM);
        let interval = file.metadata().count("qwen35.full_attention_interval");
        assert_eq!(interval.unwrap(), Some(2));
        let out = file.tensor("blk.0.ssm_out.weight").unwrap();
        assert_eq!(out.tensor_type, TensorType::Q4K);
        assert_eq!(out_format(&path), expected);
    }
}

/// The format in which a delta net's projection back is held, with logits like those of unpacked weights.
fn out_format(path: &Path) -> Option<PackedFormat> {
    let opened = HuggingFaceModel::open(path).unwrap();
    let format = opened.inference_format().unwrap();
    let [held, unpacked] = [format, WeightFormat::F32].map(|format| {
        let decoder = opened.decoder_in(format, &Default::default());
        let decoder: Transformer<Flex> = decoder.unwrap();
        decoder
    });
    let [found, expected] = [&held, &unpacked].map(|decoder| {
        let values = logits(decoder).into_iter().map(f32::from_bits);
        values.collect::<Vec<f32>>()
    });
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let mut differences = found.iter().zip(&expected).map(|(a, b)| a - b);
    let error = norm(&mut differences) / norm(&mut expected.iter().copied());
    // The inputs of quantized layers are rounded to 8 bits.
    let is_exact = format.layers() == Some(PackedFormat::F16);
    assert!(
        error < if is_exact { 1e-10 } else { 1e-3 },
        "{format:?}: {error}"
    );
    match &held.stack.blocks[0].attention.out.weight {
        LinearWeight::Packed(rows) => Some(rows.parts()[0].format()),
        LinearWeight::Float(_) => None,
    }
}

/// The heads of values are in tiles of one head per key, which the importance of the inputs must follow.
#[test]
fn importance_follows_the_order_of_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let model = delta_net(Family::Qwen3_5Text, |_| {});
    let sequences = [vec![7, 3, 9, 11], vec![1, 7]];
    let importance = InputImportance::over(&model, sequences.clone());
    let products = InputProducts::over(&model, sequences);
    let name = "blk.0.ssm_out.weight";
    let whole = floats(&bytes(&exported(&model, &path, FileType::F32), name));
    let (keys, each, size) = (2, 3, 32);
    let columns = keys * each * size;
    let order: Vec<usize> = (0..columns)
        .map(|column| {
            let (head, within) = (column / size, column % size);
            (head % keys * each + head / keys) * size + within
        })
        .collect();
    let w = Matrix::row_major(&whole, whole.len() / columns, columns);
    let layer = "blocks.0.attention.out";
    let own = importance.of_layer(layer).unwrap();
    let own: Vec<f32> = order.iter().map(|&input| own[input]).collect();
    let mut expected = pack_by_importance(PackedFormat::Q4_0, w, Some(&own));
    let options = GgufOptions {
        importance: Some(&importance),
        ..options(FileType::Q4_0)
    };
    export(&model, &path, &options).unwrap();
    let found = bytes(&GgufFile::open(&path).unwrap(), name);
    assert!(found == expected.bytes());
    let own = products.of_layer(layer).unwrap();
    let mut pairs = Vec::new();
    for row in &order {
        pairs.extend(order.iter().map(|column| own[row * columns + column]));
    }
    Gptq::new(&pairs).unwrap().choose(w, &mut expected);
    let options = GgufOptions {
        products: Some(&products),
        ..options
    };
    export(&model, &path, &options).unwrap();
    let found = bytes(&GgufFile::open(&path).unwrap(), name);
    assert!(found == expected.bytes());
}

#[test]
fn delta_nets_that_llama_cpp_does_not_have_are_refused_by_the_setting() {
    let of = |family, change: &dyn Fn(&mut ModelConfig)| {
        refused(delta_net(family, change).config().clone())
    };
    let nets = |config: &mut ModelConfig, change: &dyn Fn(&mut DeltaNets)| {
        config.delta_nets.iter_mut().for_each(change);
    };
    let error = of(Family::Qwen3_5Text, &|config| {
        nets(config, &|nets| nets.value_dim = Some(16));
    });
    assert!(
        error.contains("`qwen35.ssm.inner_size` = 96: must be ssm.time_step_rank (6) times"),
        "{error}"
    );
    let error = of(Family::Qwen3Next, &|config| {
        nets(config, &|nets| {
            nets.full_layers = FullLayers::Every { every: 1 }
        });
    });
    assert!(error.contains("cannot express model.delta_nets"), "{error}");
    let error = of(Family::Qwen3Next, &|config| config.delta_nets = None);
    assert!(
        error.contains("`qwen3next.ssm.conv_kernel` = missing: must be given"),
        "{error}"
    );
    let error = of(Family::Qwen3_5Text, &|config| config.bias.qkv = true);
    assert!(error.contains("cannot express model.bias"), "{error}");
}
