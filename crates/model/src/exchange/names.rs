//! Names of activations in `config.json`.

use emberlm_kernels::Activation;

use super::fields::Fields;
use crate::error::HuggingFaceError;

/// Names of each activation; the first one is written. Some names are different implementations of the same function.
const NAMES: [(Activation, &[&str]); 5] = [
    (Activation::Gelu, &["gelu", "gelu_python"]),
    (
        Activation::GeluTanh,
        &[
            "gelu_new",
            "gelu_pytorch_tanh",
            "gelu_python_tanh",
            "gelu_fast",
            "gelu_accurate",
        ],
    ),
    (Activation::Relu, &["relu"]),
    (Activation::ReluSquared, &["relu2"]),
    (Activation::Silu, &["silu", "swish"]),
];

/// Reads an activation from a field.
pub(crate) fn activation(
    fields: &Fields<'_>,
    field: &str,
    default: Activation,
) -> Result<Activation, HuggingFaceError> {
    let Some(name) = fields.optional_text(field)? else {
        return Ok(default);
    };
    activation_named(name).ok_or_else(|| {
        let known: Vec<&str> = NAMES
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        fields.error(field, format!("must be one of {}", known.join(", ")))
    })
}

/// Returns the activation of a name.
pub(crate) fn activation_named(name: &str) -> Option<Activation> {
    let found = NAMES.iter().find(|(_, names)| names.contains(&name));
    found.map(|(activation, _)| *activation)
}

/// Returns the name that is written for an activation by types with the tanh approximation of PyTorch.
pub(crate) fn pytorch_activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::GeluTanh => "gelu_pytorch_tanh",
        other => activation_name(other),
    }
}

/// Returns the name that is written for an activation.
pub(crate) fn activation_name(activation: Activation) -> &'static str {
    let found = NAMES.iter().find(|(known, _)| *known == activation);
    found.map_or("", |(_, names)| names[0])
}
