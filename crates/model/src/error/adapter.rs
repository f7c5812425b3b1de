//! Errors of adapters.

use std::path::PathBuf;

use super::WeightsError;

/// An adapter that cannot be built, read or written.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// A setting is out of range.
    #[error("adapter.{field} = {value}: {rule}")]
    Setting {
        /// The setting.
        field: String,
        /// Its value.
        value: String,
        /// The rule that it violates.
        rule: &'static str,
    },
    /// A target matches no linear layer.
    #[error("the adapter's target `{target}` matches no linear layer of the model; its layers are {}", known.join(", "))]
    NoTarget {
        /// The target.
        target: String,
        /// The ends of the layers' names.
        known: Vec<String>,
    },
    /// A name in `modules_to_save` matches no module.
    #[error("the adapter's `modules_to_save` names `{module}`, which matches no module of the model; its modules are {}", known.join(", "))]
    NoModule {
        /// The name.
        module: String,
        /// The ends of the modules' names.
        known: Vec<String>,
    },
    /// A parameter of the base model cannot be trained with the adapter.
    #[error("`{name}` cannot be trained with the adapter: {rule}")]
    NotTrainable {
        /// Published name of the parameter.
        name: String,
        /// The violated rule.
        rule: &'static str,
    },
    /// The model has adapters already.
    #[error("the model has an adapter already: merge it first")]
    Adapted,
    /// The model has no adapters.
    #[error("the model has no adapter")]
    None,
    /// The adapter belongs to a model of another configuration.
    #[error("the adapter is for a model of another configuration")]
    OtherModel,
    /// The adapter also trained whole modules or biases, which requests of other adapters do not share.
    #[error("the adapter has modules or biases of its base: its requests share no batch")]
    WholeParameters,
    /// Several layers of the decoder are one layer in the published form, whose factor A they would share.
    #[error(
        "the adapters of `{name}` cannot be written for PEFT: they have a factor A for each of its parts"
    )]
    SharedModule {
        /// Published name of the layer.
        name: String,
    },
    /// A field of `adapter_config.json` is not supported.
    #[error("adapter_config.json: `{field}` = {value} is not supported{reason}")]
    Unsupported {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// A colon and the effect of the value; empty if the name of the field says it.
        reason: String,
    },
    /// The adapter was initialized from the base weights, which the initialization changed.
    #[error(
        "adapter_config.json: `init_lora_weights` = {value} changes the weights of the base model, so the adapter does not fit the original ones"
    )]
    ChangedBase {
        /// The value of `init_lora_weights`.
        value: String,
    },
    /// The rank of a layer differs between the settings and the tensors.
    #[error(
        "adapter_config.json: `{field}` gives `{module}` the rank {expected}, but its tensors have {found}"
    )]
    Rank {
        /// The setting of the rank.
        field: &'static str,
        /// Published name of the layer.
        module: String,
        /// Rank in the settings.
        expected: usize,
        /// Rank of the tensors.
        found: usize,
    },
    /// The file has tensors of a layer that the settings leave out, so PEFT does not use them.
    #[error(
        "adapter_config.json: `{field}` = {value} leaves out `{module}`, of which the adapter has tensors"
    )]
    LeftOut {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// Published name of the layer.
        module: String,
    },
    /// A tensor belongs to a part of the model that adapters do not update.
    #[error("the adapter's tensor `{name}` is for `{module}`: {rule}")]
    OtherPart {
        /// The tensor.
        name: String,
        /// Published name of the part of the model.
        module: String,
        /// The violated rule.
        rule: &'static str,
    },
    /// One of the two tensors of an update is missing.
    #[error("the adapter's tensor `{name}` is missing, but the other part of its update is there")]
    Part {
        /// The missing tensor.
        name: String,
    },
    /// A tensor belongs to no layer of the model.
    #[error(
        "the adapter's tensor `{name}` belongs to nothing in the model: the adapter is for another model"
    )]
    UnknownTensor {
        /// The tensor.
        name: String,
    },
    /// A file cannot be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}
