//! Which group a parameter is in.

use emberlm_model::weights::whole_path;

use crate::config::{Group, Groups};

/// A group of parameters with settings of its own; each parameter is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterGroup {
    /// The blocks' maps.
    Matrices,
    /// The tables of tokens and positions; a tied head is the tokens' table.
    Embeddings,
    /// The head's own matrix.
    Head,
    /// Gains and biases: all of one dimension.
    Vectors,
}

impl ParameterGroup {
    /// The group of a parameter by its path in the decoder, or in a module that holds one as `decoder`, and by how many
    /// dimensions it has.
    pub fn of(path: &str, dimensions: usize) -> Self {
        if dimensions < 2 {
            return Self::Vectors;
        }
        let path = whole_path(path);
        match path.strip_prefix("decoder.").unwrap_or(path) {
            "tokens" | "positions.weight" => Self::Embeddings,
            "head" => Self::Head,
            _ => Self::Matrices,
        }
    }
}

impl Groups {
    /// A group's settings.
    pub fn of(&self, group: ParameterGroup) -> &Group {
        match group {
            ParameterGroup::Matrices => &self.matrices,
            ParameterGroup::Embeddings => &self.embeddings,
            ParameterGroup::Head => &self.head,
            ParameterGroup::Vectors => &self.vectors,
        }
    }
}
