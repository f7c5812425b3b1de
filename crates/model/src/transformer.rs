//! Whole transformers: decoders, encoders and encoder–decoders.
//!
//! | module | contents |
//! |---|---|
//! | [`checked`] | the validated configuration |
//! | [`model`] | embeddings, one or two stacks of blocks, and the head |
//! | [`input`] | what a model reads |
//! | [`encoder`] | states of texts, and heads for tokens or classes |
//! | [`encoder_decoder`] | sources and targets: T5 |
//! | `cache` | the cache of keys and values |
//! | [`ragged`] | one pass over the next tokens of several sequences |
//! | `token_scores` | losses of individual tokens |
//! | [`training`] | gradients |
//! | [`count`] | parameters, operations and memory of a configuration |
//! | [`parameters`] | list of parameters with their roles |
//! | `probed` | passes with a probe |
//! | `calibration` | statistics of the inputs of linear layers |
//! | `weight_format` | packed weights for inference |
//! | `reconfigure` | changes of settings that keep the weights |
//! | `originals` | the values that an adapter's base model had before training |

pub(crate) mod cache;
pub(crate) mod calibration;
pub mod checked;
pub mod count;
pub mod encoder;
pub mod encoder_decoder;
pub mod input;
pub mod model;
pub(crate) mod originals;
pub mod parameters;
mod probed;
pub mod ragged;
pub(crate) mod reconfigure;
pub(crate) mod token_scores;
pub mod training;
pub(crate) mod weight_format;
