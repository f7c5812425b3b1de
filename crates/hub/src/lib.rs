//! Models of the Hugging Face Hub by name.
//!
//! `hf:ORG/NAME[@REVISION][/FILE.gguf]` names a model. Its files are searched in the cache that the Python package
//! `huggingface_hub` uses, and downloaded into it if they are missing. Either program finds what the other has
//! downloaded.
//!
//! | module | contents |
//! |---|---|
//! | [`name`] | model names and their rules |
//! | [`settings`] | folder of the cache, address, token and offline mode, from the environment |
//! | [`cache`] | the cache's layout: finding, listing and adding files |
//! | [`files`] | the files of a repository that make a model |
//! | [`hub`] | opening a model by name, and pulling the newest files |
//! | `client` | requests to the Hub, with retries |
//! | `download` | one file: resumed, checked by its hash, moved into the cache |
//!
//! ```
//! use emberlm_hub::ModelName;
//!
//! let name: ModelName = "hf:HuggingFaceTB/SmolLM2-135M-Instruct@main".parse()?;
//! assert_eq!(name.repository(), "HuggingFaceTB/SmolLM2-135M-Instruct");
//! # Ok::<(), emberlm_hub::HubError>(())
//! ```

pub mod cache;
mod client;
mod download;
mod error;
pub mod files;
pub mod hub;
pub mod name;
pub mod settings;

pub use cache::{Cache, CachedModel};
pub use error::HubError;
pub use hub::{Hub, Progress};
pub use name::ModelName;
pub use settings::Settings;
