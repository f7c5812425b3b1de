//! Parameter groups.

use emberlm_model::ParameterRole;

use crate::config::{Group, Groups};

/// A group of parameters with separate settings; each parameter is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterGroup {
    /// The weights of the blocks' linear layers, and their adapters.
    Matrices,
    /// The tables of tokens and positions. A tied head is the token table.
    Embeddings,
    /// The matrix of an untied head.
    Head,
    /// Gains, biases and all other parameters with one dimension.
    Vectors,
}

impl ParameterGroup {
    /// The group of a parameter.
    pub fn of(role: &ParameterRole) -> Self {
        match role {
            ParameterRole::Matrix
            | ParameterRole::FusedMatrix { .. }
            | ParameterRole::Router
            | ParameterRole::Adapter => Self::Matrices,
            ParameterRole::Embedding => Self::Embeddings,
            ParameterRole::Head => Self::Head,
            ParameterRole::Vector => Self::Vectors,
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
