//! Tests the parameter list and low-rank adapters: models with the components of every preset list the parameters that
//! Burn finds, with their roles; adapters match their equation, and only they are trained.

use crate::decoder::gradients::one_at_a_time;
use burn::backend::Autodiff;
use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{
    Adapter, LinearWeight, LowRank, LowRankConfig, PackedFormat, ParameterRole, Transformer,
    TransformerConfig, families,
};

type Training = Autodiff<Flex>;

/// A preset's components at small sizes.
fn small(name: &str) -> TransformerConfig {
    let config = families::preset(name).unwrap().config;
    TransformerConfig::try_from(config.tiny()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[derive(Default)]
struct Visited(Vec<(ParamId, String, Vec<usize>, bool)>);

impl ParamVisitor<Training> for Visited {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<Training, D>) {
        let shape = value.shape().to_vec();
        self.0
            .push((id, path.to_owned(), shape, value.is_require_grad()));
    }
}

/// Compares the listed parameters with Burn's and returns them.
fn listed(name: &str, decoder: &Transformer<Training>) -> Vec<(String, ParameterRole, bool)> {
    let mut visited = Visited::default();
    visit_params(decoder, &mut visited);
    let parameters = decoder.parameters();
    let found: Vec<_> = parameters
        .iter()
        .map(|p| (p.id, p.path.clone(), p.shape.clone(), p.trainable))
        .collect();
    assert_eq!(found, visited.0, "{name}");
    for parameter in parameters.iter() {
        assert_eq!(parameters.get(parameter.id), Some(parameter));
        assert_eq!(parameters.role(&parameter.path), Some(&parameter.role));
    }
    let listed = parameters.iter();
    listed
        .map(|p| (p.path.clone(), p.role.clone(), p.trainable))
        .collect()
}

#[test]
fn lists_every_parameter_of_every_preset() {
    for preset in families::presets() {
        let config = small(preset.name);
        let device = Default::default();
        let whole = config.init::<Training>(1, &device);
        let row = 4 * (config.d_model() as u64 + 1);
        let largest = Some(row * (config.vocab_size() as u64).div_ceil(3));
        let parts = config.init_within::<Training>(1, &device, largest);
        for decoder in [&whole, &parts] {
            for (path, role, trainable) in listed(preset.name, decoder) {
                assert_ne!(trainable, path.ends_with("choice_bias"), "{path}");
                let vectors = [
                    ".gain",
                    ".bias",
                    ".sinks",
                    "head_bias",
                    "mix.stream",
                    "mix.embedding",
                    "delta.decay",
                    "delta.step_bias",
                    "choice_bias",
                ];
                let vector = vectors.iter().any(|end| path.ends_with(end));
                let expected = match path.split('.').next().unwrap() {
                    _ if vector => ParameterRole::Vector,
                    "tokens" | "positions" => ParameterRole::Embedding,
                    _ if path.contains("values.table") => ParameterRole::Embedding,
                    "head" => ParameterRole::Head,
                    _ if path.ends_with("attention.qkv.weight") => ParameterRole::FusedMatrix {
                        widths: widths(&config, &path),
                    },
                    _ if path.ends_with("router.weight")
                        || path.ends_with("shared.gate.weight")
                        || path.ends_with("values.gate")
                        || path.ends_with("delta.rates.weight")
                        || path.ends_with("latent.up.weight")
                        || path.ends_with("delta.convolution") =>
                    {
                        ParameterRole::Router
                    }
                    _ => ParameterRole::Matrix,
                };
                assert_eq!(role, expected, "{}: {path}", preset.name);
            }
        }
    }
}

/// The widths of queries, keys and values in block `N` of the path `blocks.N.…`.
fn widths(config: &TransformerConfig, path: &str) -> Vec<usize> {
    let layer: usize = path.split('.').nth(1).unwrap().parse().unwrap();
    let nets = config.delta_nets();
    let nets = nets.filter(|nets| nets.layers(config.n_layers()).contains(&layer));
    match nets {
        Some(nets) => {
            let keys = nets.key_heads.unwrap() * nets.key_dim.unwrap();
            let values = nets.value_heads.unwrap() * nets.value_dim.unwrap();
            vec![keys, keys, values]
        }
        None if config.latent_attention().is_some() => {
            let latent = config.latent_attention().unwrap();
            let all = config.heads() * config.head_dim();
            let row = latent.rank + latent.rope_dim.unwrap();
            vec![latent.query_rank.unwrap_or(all), row]
        }
        None => [config.heads(), config.kv_heads(), config.kv_heads()]
            .map(|heads| heads * config.head_dim())
            .to_vec(),
    }
}

#[test]
fn packed_weights_are_not_parameters() {
    let decoder = small("llama").init::<Training>(1, &Default::default());
    let packed = decoder.packed(PackedFormat::Int8).unwrap();
    for (path, role, _) in listed("llama", &packed) {
        let is_table = role == ParameterRole::Embedding;
        assert!(is_table || role == ParameterRole::Vector, "{path}");
    }
}

fn numbers<const D: usize>(seed: usize, shape: [usize; D]) -> TensorData {
    let count = shape.iter().product();
    let number = |i: usize| ((i * 37 + seed * 11) % 29) as f32 / 29.0 - 0.4;
    TensorData::new((0..count).map(number).collect::<Vec<f32>>(), shape)
}

fn host<const D: usize>(tensor: Tensor<Training, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn assert_close(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 1e-4, "{name}: {a}, not {b}");
    }
}

/// An adapter without dropout that consists of one update.
fn of_one(update: &LowRank<Training>) -> Adapter<Training> {
    Adapter::new(vec![update.clone()], 0.0)
}

/// Checks `residual + x (W + scale · A B) + b` and its gradients with respect to x, A and B. The frozen W and b have no
/// gradients. W is in f32 or packed.
#[test]
fn adapter_adds_low_rank_product() {
    let _guard = one_at_a_time();
    let device = Default::default();
    for packed in [false, true] {
        let decoder = small("gpt2").init::<Training>(1, &device);
        let decoder = match packed {
            true => decoder.packed(PackedFormat::Int8).unwrap(),
            false => decoder,
        };
        let linear = decoder.stack.blocks[0]
            .feed_forward
            .dense()
            .unwrap()
            .up
            .clone();
        let [fan_in, out] = linear.shape();
        let weight = linear.weight.val().inner();
        let bias = linear.bias.as_ref().unwrap().val().inner();
        let config = LowRankConfig {
            outputs: 0..out,
            rank: 3,
            scale: 2.0,
            magnitude: false,
        };
        let mut adapter = config.init::<Training>(&linear.weight, 7, &device);
        assert_eq!(adapter.scale(), 2.0);
        let x = Tensor::<Training, 3>::from_data(numbers(1, [2, 5, fan_in]), &device);
        let residual = Tensor::<Training, 3>::from_data(numbers(2, [2, 5, out]), &device);
        let plain = host(linear.forward(x.clone(), Some(residual.clone())));
        let adapted = linear.clone().with_adapter(of_one(&adapter));
        let unchanged = host(adapted.forward(x.clone(), Some(residual.clone())));
        assert_eq!(unchanged, plain, "B is zeros at first");

        let b = Tensor::from_data(numbers(3, [3, out]), &device).require_grad();
        adapter.b = adapter.b.map(|_| b);
        let linear = linear.with_adapter(of_one(&adapter));
        let grad = Tensor::<Training, 3>::from_data(numbers(4, [2, 5, out]), &device);

        let x_found = x.clone().require_grad();
        let found = linear.forward(x_found.clone(), Some(residual.clone()));
        let found_grads = (found.clone() * grad.clone()).sum().backward();

        let tracked =
            |tensor: Tensor<Flex, 2>| Tensor::<Training, 2>::from_inner(tensor).require_grad();
        let x = x.require_grad();
        let a = tracked(adapter.a.val().inner());
        let b = tracked(adapter.b.val().inner());
        let whole = Tensor::from_inner(weight) + a.clone().matmul(b.clone()) * 2.0;
        let expected = x.clone().matmul(whole.unsqueeze())
            + Tensor::<Training, 1>::from_inner(bias).unsqueeze::<3>()
            + residual;
        let grads = (expected.clone() * grad).sum().backward();
        assert_close("output", &host(found), &host(expected));
        let grad_of = |x: Option<Tensor<Flex, 2>>| -> Vec<f32> {
            x.unwrap().into_data().iter::<f32>().collect()
        };
        let found_adapter = &linear.adapter.as_ref().unwrap().parts[0];
        let found_a = found_adapter.a.val().grad(&found_grads);
        assert_close("A", &grad_of(found_a), &grad_of(a.grad(&grads)));
        let found_b = found_adapter.b.val().grad(&found_grads);
        assert_close("B", &grad_of(found_b), &grad_of(b.grad(&grads)));
        let by_x = |x: &Tensor<Training, 3>, grads| -> Vec<f32> {
            x.grad(grads).unwrap().into_data().iter::<f32>().collect()
        };
        assert_close("x", &by_x(&x_found, &found_grads), &by_x(&x, &grads));
        if let LinearWeight::Float(weight) = &linear.weight {
            assert!(weight.val().grad(&found_grads).is_none(), "W is frozen");
        }
        let bias = linear.bias.as_ref().unwrap().val();
        assert!(bias.grad(&found_grads).is_none(), "b is frozen");
    }
}

#[test]
fn only_adapters_of_frozen_model_are_trained() {
    let device = Default::default();
    let mut decoder = small("llama").init::<Training>(1, &device).no_grad();
    let linear = decoder.stack.blocks[0].attention.qkv.clone();
    let config = LowRankConfig {
        outputs: 0..linear.shape()[1],
        rank: 2,
        scale: 1.0,
        magnitude: false,
    };
    let adapter = config.init::<Training>(&linear.weight, 3, &device);
    decoder.stack.blocks[0].attention.qkv = linear.with_adapter(of_one(&adapter));
    let trained: Vec<_> = listed("llama", &decoder)
        .into_iter()
        .filter(|(_, _, trainable)| *trainable)
        .map(|(path, role, _)| {
            assert_eq!(role, ParameterRole::Adapter);
            path
        })
        .collect();
    let path = "blocks.0.attention.qkv.adapter.0";
    assert_eq!(trained, [format!("{path}.a"), format!("{path}.b")]);
}
