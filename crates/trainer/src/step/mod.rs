//! One training step, from micro-batches to its outcome.
//!
//! | module | purpose |
//! |---|---|
//! | `engine` | the step |
//! | `gradients`, [`clip`] | gradients over all micro-batches and ranks, and their norm |
//! | [`ema`] | the moving average of the weights |
//! | `frozen` | the parameters that are not trained |
//! | `norms` | norms of gradients, updates and activations by layer |
//! | `devices` | the devices of all ranks, and the engine's options on them |

pub mod clip;
pub(crate) mod devices;
pub mod ema;
pub(crate) mod engine;
pub(crate) mod frozen;
pub(crate) mod gradients;
pub(crate) mod norms;
