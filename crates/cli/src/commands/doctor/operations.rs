//! The operations of the kernel trait, each tested at odd sizes.

mod attention;

use burn::tensor::Tensor;
use emberlm_kernels::{
    Activation, AdamWInputs, AdamWStep, AttentionOptions, HeadLossInputs, HeadLossOptions,
    LinearInputs, Normalization, PackedFormat, Precision, Reach, RotaryLayout, TrainingBackend,
    ops, reference,
};

use super::case::{Case, NamedValues, float, gradient_of, named_values, typed};

/// Maximum relative error `‖found - expected‖ / ‖expected‖` within f32 rounding.
const TOLERANCE: f64 = 1e-4;

/// An operation under test.
pub struct Operation<B: TrainingBackend> {
    pub name: String,
    /// Precision of its matrix products. The reference implementation always uses f32.
    pub precision: Precision,
    /// The maximum relative error.
    pub tolerance: f64,
    /// Runs the operation and returns its output and gradients.
    pub run: Run<B>,
}

type Run<B> = Box<dyn Fn(&Case<B>) -> Vec<NamedValues>>;

const TOKENS: [usize; 2] = [3, 7];
const WIDTH: usize = 40;

/// Maximum error of reduced-precision products, in units of the rounding error of their factors: two
/// roundings per product, up to three products in sequence, and loss logits up to 40.
const ROUNDINGS: f64 = 32.0;

/// All operations under test.
pub fn all<B: TrainingBackend>() -> Vec<Operation<B>> {
    let mut all: Vec<Operation<B>> = Vec::new();
    let mut add = |name: &str, run: Run<B>| {
        all.push(Operation {
            name: name.to_owned(),
            precision: Precision::F32,
            tolerance: TOLERANCE,
            run,
        });
    };
    for kind in Activation::ALL {
        add(
            &format!("activation {kind:?}"),
            Box::new(move |case| activation(case, kind)),
        );
    }
    for kind in [Activation::Silu, Activation::Gelu] {
        add(
            &format!("gated {kind:?}"),
            Box::new(move |case| gated(case, kind)),
        );
    }
    for kind in [
        Normalization::Layer { epsilon: 1e-5 },
        Normalization::Rms { epsilon: 1e-6 },
        Normalization::UnitRms { epsilon: 1e-6 },
    ] {
        add(
            &format!("normalize {kind:?}"),
            Box::new(move |case| normalize(case, kind)),
        );
    }
    add("linear", Box::new(|case| linear(case, Precision::F32)));
    add("linear int8", Box::new(linear_int8));
    add("unpack", Box::new(unpack));
    add("embedding", Box::new(embedding));
    add("embedding, in parts", Box::new(embedding_parts));
    add("sum of squares", Box::new(sum_of_squares));
    for layout in [RotaryLayout::HalfSplit, RotaryLayout::Interleaved] {
        add(
            &format!("rotary {layout:?}"),
            Box::new(move |case| rotary(case, layout)),
        );
    }
    for (name, kv_heads, window, documents) in [
        ("attention", 4, None, false),
        ("attention, grouped heads", 2, None, false),
        ("attention, window", 4, Some(5), false),
        ("attention, documents", 4, None, true),
    ] {
        add(
            name,
            Box::new(move |case| {
                let options = options(window, Precision::F32);
                attention::self_attention(case, kv_heads, options, documents)
            }),
        );
    }
    let capped = AttentionOptions {
        soft_cap: Some(2.0),
        ..options(Some(5), Precision::F32)
    };
    add(
        "attention, soft cap",
        Box::new(move |case| attention::self_attention(case, 2, capped, true)),
    );
    add(
        "attention, across, with bias",
        Box::new(attention::cross_attention),
    );
    add(
        "attention, in blocks",
        Box::new(attention::blocked_attention),
    );
    add(
        "self-attention of a fused map",
        Box::new(attention::fused_qkv_attention),
    );
    add("cache", Box::new(write_tokens));
    for (name, options) in [
        ("head with loss", HeadLossOptions::default()),
        (
            "head with loss, smoothed",
            HeadLossOptions {
                label_smoothing: 0.1,
                z_loss: 1e-2,
                ..HeadLossOptions::default()
            },
        ),
    ] {
        add(
            name,
            Box::new(move |case| head_loss(case, options, Precision::F32, false)),
        );
    }
    let options = HeadLossOptions {
        label_smoothing: 0.1,
        z_loss: 1e-2,
        soft_cap: 3.0,
    };
    add(
        "head with loss, in parts",
        Box::new(move |case| head_loss(case, options, Precision::F32, true)),
    );
    add("AdamW", Box::new(adamw));
    for (precision, unit) in [
        (Precision::Bf16, 2_f64.powi(-8)),
        (Precision::F16, 2_f64.powi(-11)),
    ] {
        all.extend(rounded(precision, ROUNDINGS * unit));
    }
    all
}

/// The operations with reduced-precision variants.
fn rounded<B: TrainingBackend>(precision: Precision, tolerance: f64) -> [Operation<B>; 3] {
    let runs: [(&str, Run<B>); 3] = [
        ("linear", Box::new(move |case| linear(case, precision))),
        (
            "attention",
            Box::new(move |case| {
                attention::self_attention(case, 2, options(None, precision), false)
            }),
        ),
        (
            "head with loss",
            Box::new(move |case| head_loss(case, HeadLossOptions::default(), precision, false)),
        ),
    ];
    runs.map(|(name, run)| Operation {
        name: format!("{name} in {}", precision.name()),
        precision,
        tolerance,
        run,
    })
}

fn activation<B: TrainingBackend>(case: &Case<B>, kind: Activation) -> Vec<NamedValues> {
    let x = case.tracked(1, [TOKENS[0], TOKENS[1], WIDTH]);
    let y = match case.composed {
        true => typed(reference::activation::<B>(kind, float(x.clone()))),
        false => ops::activation(kind, x.clone()),
    };
    case.differentiated::<3>(y, vec![("x", gradient_of(&x))])
}

fn gated<B: TrainingBackend>(case: &Case<B>, kind: Activation) -> Vec<NamedValues> {
    let [gate, up] = [1, 2].map(|seed| case.tracked(seed, [TOKENS[0], TOKENS[1], WIDTH]));
    let y = match case.composed {
        true => typed(reference::gated::<B>(
            kind,
            float(gate.clone()),
            float(up.clone()),
        )),
        false => ops::gated(kind, gate.clone(), up.clone()),
    };
    case.differentiated::<3>(
        y,
        vec![("gate", gradient_of(&gate)), ("up", gradient_of(&up))],
    )
}

fn normalize<B: TrainingBackend>(case: &Case<B>, kind: Normalization) -> Vec<NamedValues> {
    let x = case.tracked(1, [TOKENS[0], TOKENS[1], WIDTH]);
    let [gain, bias] = [2, 3].map(|seed| case.tracked(seed, [WIDTH]));
    let y = match case.composed {
        true => typed(reference::normalize::<B>(
            kind,
            float(x.clone()),
            Some(float(gain.clone())),
            Some(float(bias.clone())),
        )),
        false => ops::normalize(kind, x.clone(), Some(gain.clone()), Some(bias.clone())),
    };
    let inputs = vec![
        ("x", gradient_of(&x)),
        ("gain", gradient_of(&gain)),
        ("bias", gradient_of(&bias)),
    ];
    case.differentiated::<3>(y, inputs)
}

fn linear<B: TrainingBackend>(case: &Case<B>, precision: Precision) -> Vec<NamedValues> {
    let out = 33;
    let x = case.tracked(1, [TOKENS[0], TOKENS[1], WIDTH]);
    let weight = case.tracked(2, [WIDTH, out]);
    let bias = case.tracked(3, [out]);
    let residual = case.tracked(4, [TOKENS[0], TOKENS[1], out]);
    let y = match case.composed {
        true => {
            let inputs = LinearInputs {
                x: float(x.clone()),
                weight: float(weight.clone()),
                bias: Some(float(bias.clone())),
                residual: Some(float(residual.clone())),
            };
            typed(reference::linear::<B>(inputs, Precision::F32))
        }
        false => ops::linear(
            x.clone(),
            weight.clone(),
            Some(bias.clone()),
            Some(residual.clone()),
            precision,
        ),
    };
    let inputs = vec![
        ("x", gradient_of(&x)),
        ("weight", gradient_of(&weight)),
        ("bias", gradient_of(&bias)),
        ("residual", gradient_of(&residual)),
    ];
    case.differentiated::<3>(y, inputs)
}

/// Inference only, without gradients, of many rows and of a few, whose product a GPU takes from the packed weight.
fn linear_int8<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let all = case.constant(1, [TOKENS[0], TOKENS[1], WIDTH]).inner();
    let few = all.clone().narrow(0, 0, 1);
    let output = |(name, x)| {
        let weight = case.constant(2, [33, WIDTH]).inner();
        let y = match case.composed {
            true => {
                let weight = reference::pack::<B::InnerBackend>(float(weight), PackedFormat::Int8);
                typed(reference::linear_packed::<B::InnerBackend>(
                    float(x),
                    weight,
                    None,
                    None,
                    Precision::F32,
                ))
            }
            false => {
                let weight = ops::pack(weight, PackedFormat::Int8);
                ops::linear_packed(x, weight, None, None, Precision::F32)
            }
        };
        named_values::<B::InnerBackend, 3>(name, y)
    };
    [("output", all), ("few rows", few)].map(output).into()
}

/// Every format of packed weights.
fn unpack<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let weight = case.constant(1, [3, 512]).inner();
    let unpacked = |format: PackedFormat| {
        let weight = weight.clone();
        let floats = match case.composed {
            true => {
                let packed = reference::pack::<B::InnerBackend>(float(weight), format);
                typed(reference::unpack::<B::InnerBackend>(packed))
            }
            false => ops::unpack(ops::pack(weight, format)),
        };
        named_values::<B::InnerBackend, 2>(format.name(), floats)
    };
    PackedFormat::ALL.into_iter().map(unpacked).collect()
}

fn embedding_parts<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let table = case.tracked(1, [11, WIDTH]);
    let ids = case.integers(2, TOKENS, 11);
    let y = match case.composed {
        true => burn::tensor::module::embedding(table.clone(), ids),
        false => ops::embedding_parts(halves(&table), ids),
    };
    case.differentiated::<3>(y, vec![("table", gradient_of(&table))])
}

/// Splits a table into two parts of uneven size.
fn halves<B: TrainingBackend>(table: &Tensor<B, 2>) -> Vec<Tensor<B, 2>> {
    let rows = table.dims()[0];
    let first = rows / 2 + 1;
    let part = |start, rows| table.clone().narrow(0, start, rows);
    vec![part(0, first), part(first, rows - first)]
}

fn embedding<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let table = case.tracked(1, [11, WIDTH]);
    let ids = case.integers(2, TOKENS, 11);
    let y = match case.composed {
        true => burn::tensor::module::embedding(table.clone(), ids),
        false => ops::embedding(table.clone(), ids),
    };
    case.differentiated::<3>(y, vec![("table", gradient_of(&table))])
}

fn sum_of_squares<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let x = case.constant::<2>(1, [37, WIDTH]).inner();
    let sum = match case.composed {
        true => typed(reference::sum_of_squares::<B::InnerBackend>(float(x))),
        false => ops::sum_of_squares(x),
    };
    vec![named_values::<B::InnerBackend, 1>("output", sum)]
}

fn rotary<B: TrainingBackend>(case: &Case<B>, layout: RotaryLayout) -> Vec<NamedValues> {
    let x = case.tracked(1, [2, 3, 7, 10]);
    let [cos, sin] = [2, 3].map(|seed| case.constant(seed, [7, 4]));
    let y = match case.composed {
        true => typed(reference::rotary::<B>(
            layout,
            float(x.clone()),
            float(cos),
            float(sin),
        )),
        false => ops::rotary(layout, x.clone(), cos, sin),
    };
    case.differentiated::<4>(y, vec![("x", gradient_of(&x))])
}

/// Attention options for heads of size [`attention::HEAD_DIM`].
fn options(window: Option<usize>, precision: Precision) -> AttentionOptions {
    AttentionOptions {
        reach: window.map_or(Reach::Causal, |tokens| Reach::Window {
            tokens,
            global_tokens: 0,
        }),
        scale: 1.0 / (attention::HEAD_DIM as f64).sqrt(),
        soft_cap: None,
        dropout: 0.0,
        precision,
    }
}

fn write_tokens<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let held = case.constant(1, [2, 3, 9, 8]).inner();
    let new = case.constant(2, [2, 3, 4, 8]).inner();
    let written = match case.composed {
        true => typed(reference::write_tokens::<B::InnerBackend>(
            float(held),
            float(new),
            3,
        )),
        false => ops::write_tokens(held, new, 3),
    };
    vec![named_values::<B::InnerBackend, 4>("output", written)]
}

fn head_loss<B: TrainingBackend>(
    case: &Case<B>,
    options: HeadLossOptions,
    precision: Precision,
    weight_in_parts: bool,
) -> Vec<NamedValues> {
    let (tokens, vocab) = (29, 101);
    let hidden = case.tracked(1, [tokens, WIDTH]);
    let weight = case.tracked(2, [vocab, WIDTH]);
    // One target is below 0 and is ignored.
    let targets = case.integers(3, [tokens], vocab + 1) - 1;
    let loss = match case.composed {
        true => typed(reference::head_loss::<B>(
            HeadLossInputs {
                hidden: float(hidden.clone()),
                weights: vec![float(weight.clone())],
                targets: targets.into_primitive(),
                options,
                precision: Precision::F32,
            },
            reference::rows_per_block(vocab, reference::BLOCK_BYTES),
        )),
        false => {
            let weights = match weight_in_parts {
                true => halves(&weight),
                false => vec![weight.clone()],
            };
            ops::head_loss(hidden.clone(), weights, targets, options, precision)
        }
    };
    let inputs = vec![
        ("hidden", gradient_of(&hidden)),
        ("weight", gradient_of(&weight)),
    ];
    case.differentiated::<1>(loss, inputs)
}

fn adamw<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let of = |seed| case.constant::<2>(seed, [17, WIDTH]).inner();
    let inputs = AdamWInputs {
        parameter: float(of(1)),
        grad: float(of(2)),
        // The second moment is a mean of squares, so it must not be negative.
        moments: (float(of(3)), float(of(4) * of(4))),
        step: AdamWStep {
            rate: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            decay: 0.1,
            cautious: false,
            step: 3,
        },
    };
    let factor = Tensor::<B::InnerBackend, 1>::full([1], 0.5, &case.device);
    let (parameter, m, v) = match case.composed {
        true => reference::clipped_adamw::<B::InnerBackend>(inputs, Some(float(factor))),
        // As many as inputs.
        false => ops::adamw_all::<B::InnerBackend>(vec![inputs], Some(factor)).remove(0),
    };
    let [parameter, m, v] = [parameter, m, v].map(typed);
    vec![
        named_values::<B::InnerBackend, 2>("parameter", parameter),
        named_values::<B::InnerBackend, 2>("first moment", m),
        named_values::<B::InnerBackend, 2>("second moment", v),
    ]
}
