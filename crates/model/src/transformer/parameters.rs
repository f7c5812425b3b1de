//! List of a model's parameters with the path, role and trainability of each.
//!
//! A path identifies a parameter in weight files, optimizer states and the random streams of the initialization. Each
//! part of a split table is a separate parameter ([`crate::weights::part_of`]). Packed weights are not parameters.

mod blocks;

use std::collections::HashMap;

use burn::module::{Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_kernels::Backend;

use crate::nn::token_table::TokenTable;
use crate::nn::{AddedPositions, Embeddings, LmHead, Norm, Stack};
use crate::params::{part_path, whole_path};
use crate::transformer::encoder::{EncoderHead, MaskedLmHead, SequenceClassifier, TokenClassifier};
use crate::transformer::model::Transformer;

/// Role of a parameter in the model, which determines how it is trained.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ParameterRole {
    /// The weight of a linear layer, `[in, out]`.
    Matrix,
    /// The weights of several linear layers side by side, `[in, Σ widths]`.
    FusedMatrix {
        /// Outputs of each layer.
        widths: Vec<usize>,
    },
    /// A table with one row per token, position, segment or distance.
    Embedding,
    /// The weight of an untied head, `[vocab_size, d_model]`, or of a classifier's last layer, `[d_model, labels]`.
    Head,
    /// The weight of a mixture's router, of a gate of a shared expert or of value embeddings, of a delta net's convolutions and
    /// rates, or of latent attention's projection to keys and values, which is never packed.
    Router,
    /// A gain or a bias.
    Vector,
    /// A factor of a low-rank adapter.
    Adapter,
}

impl ParameterRole {
    /// Infers the role of a parameter that no model lists from its number of dimensions.
    pub fn of_dimensions(dimensions: usize) -> Self {
        match dimensions {
            0 | 1 => Self::Vector,
            _ => Self::Matrix,
        }
    }

    /// Outputs of each layer of a fused matrix; `None` for other roles.
    pub fn widths(&self) -> Option<&[usize]> {
        match self {
            Self::FusedMatrix { widths } => Some(widths),
            Self::Matrix
            | Self::Router
            | Self::Embedding
            | Self::Head
            | Self::Vector
            | Self::Adapter => None,
        }
    }
}

/// One parameter of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Identity, which updates preserve.
    pub id: ParamId,
    /// Path, such as `blocks.0.attention.qkv.weight`.
    pub path: String,
    /// Role in the model.
    pub role: ParameterRole,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// False if the parameter is frozen or the backend has no gradients.
    pub trainable: bool,
}

/// The parameters of a model in the order of its modules.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    list: Vec<Parameter>,
    by_id: HashMap<ParamId, usize>,
    /// Index of the parameter, or of the first part of a split table.
    by_whole_path: HashMap<String, usize>,
}

impl Parameters {
    /// Iterates over the parameters.
    pub fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.list.iter()
    }

    /// Returns the parameter with an identity.
    pub fn get(&self, id: ParamId) -> Option<&Parameter> {
        Some(&self.list[*self.by_id.get(&id)?])
    }

    /// Returns the role of the parameter at `path`, which may be the path of a part.
    pub fn role(&self, path: &str) -> Option<&ParameterRole> {
        let at = *self.by_whole_path.get(whole_path(path))?;
        Some(&self.list[at].role)
    }

    fn add(&mut self, parameter: Parameter) {
        let at = self.list.len();
        self.by_id.insert(parameter.id, at);
        let whole = whole_path(&parameter.path).to_owned();
        self.by_whole_path.entry(whole).or_insert(at);
        self.list.push(parameter);
    }
}

impl<B: Backend> Transformer<B> {
    /// Lists the parameters.
    pub fn parameters(&self) -> Parameters {
        listed(|list| self.list(list))
    }
}

fn listed(list: impl FnOnce(&mut ParameterLister)) -> Parameters {
    let mut lister = ParameterLister {
        path: Vec::new(),
        parameters: Parameters::default(),
    };
    list(&mut lister);
    lister.parameters
}

/// Collects parameters; modules add theirs below the current path.
struct ParameterLister {
    path: Vec<String>,
    parameters: Parameters,
}

impl ParameterLister {
    /// Adds the parameters of the module in field `name`.
    fn module(&mut self, name: impl Into<String>, list: impl FnOnce(&mut Self)) {
        self.path.push(name.into());
        list(self);
        self.path.pop();
    }

    /// Adds the parameter in field `name`.
    fn add<B: BurnBackend, const D: usize>(
        &mut self,
        name: &str,
        role: ParameterRole,
        param: &Param<Tensor<B, D>>,
    ) {
        let mut path = self.path.join(".");
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        self.parameters.add(Parameter {
            id: param.id,
            path,
            role,
            shape: param.lazy_shape().to_vec(),
            trainable: param.is_require_grad(),
        });
    }

    /// Adds the gain and bias of the norm in field `name`, if any.
    fn norm<B: BurnBackend>(&mut self, name: &str, norm: Option<&Norm<B>>) {
        let Some(norm) = norm else {
            return;
        };
        self.module(name, |list| {
            for (name, vector) in [("gain", &norm.gain), ("bias", &norm.bias)] {
                if let Some(vector) = vector {
                    list.add(name, ParameterRole::Vector, vector);
                }
            }
        });
    }

    /// Adds the table in field `name`, part by part if it is split.
    fn table<B: BurnBackend>(&mut self, name: &str, role: &ParameterRole, table: &TokenTable<B>) {
        match table {
            TokenTable::Whole(whole) => self.add(name, role.clone(), whole),
            TokenTable::Parts(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    self.add(&part_path(name, number), role.clone(), part);
                }
            }
            TokenTable::Packed(_) => {}
        }
    }
}

impl<B: Backend> Transformer<B> {
    fn list(&self, list: &mut ParameterLister) {
        self.embeddings.list(list);
        match &self.encoder {
            Some(encoder) => {
                list.module("encoder", |list| encoder.list(list));
                list.module("decoder", |list| self.stack.list(list));
            }
            None => self.stack.list(list),
        }
        self.lm_head.list(list);
        if let Some(head) = &self.head {
            list.module("head", |list| head.list(list));
        }
    }
}

impl<B: Backend> EncoderHead<B> {
    fn list(&self, list: &mut ParameterLister) {
        match self {
            Self::Pooler(dense) => {
                list.module("dense", |list| dense.list(list, ParameterRole::Matrix));
            }
            Self::MaskedLm(head) => head.list(list),
            Self::Sequence(classifier) => classifier.list(list),
            Self::Token(classifier) => classifier.list(list),
        }
    }
}

impl<B: Backend> MaskedLmHead<B> {
    fn list(&self, list: &mut ParameterLister) {
        list.module("dense", |list| self.dense.list(list, ParameterRole::Matrix));
        list.norm("norm", Some(&self.norm));
        if let Some(bias) = &self.bias {
            list.add("bias", ParameterRole::Vector, bias);
        }
    }
}

impl<B: Backend> SequenceClassifier<B> {
    fn list(&self, list: &mut ParameterLister) {
        list.module("dense", |list| self.dense.list(list, ParameterRole::Matrix));
        list.norm("norm", self.norm.as_ref());
        list.module("out", |list| self.out.list(list, ParameterRole::Head));
    }
}

impl<B: Backend> TokenClassifier<B> {
    fn list(&self, list: &mut ParameterLister) {
        if let Some(dense) = &self.dense {
            list.module("dense", |list| dense.list(list, ParameterRole::Matrix));
        }
        list.norm("norm", self.norm.as_ref());
        list.module("out", |list| self.out.list(list, ParameterRole::Head));
    }
}

impl<B: Backend> Embeddings<B> {
    fn list(&self, list: &mut ParameterLister) {
        list.table("tokens", &ParameterRole::Embedding, &self.tokens);
        list.module("positions", |list| self.positions.list(list));
        if let Some(segments) = &self.segments {
            list.add("segments", ParameterRole::Embedding, segments);
        }
        list.norm("norm_embedding", self.norm_embedding.as_ref());
    }
}

impl<B: Backend> Stack<B> {
    fn list(&self, list: &mut ParameterLister) {
        for (layer, block) in self.blocks.iter().enumerate() {
            list.module(format!("blocks.{layer}"), |list| block.list(list));
        }
        list.norm("norm_final", self.norm_final.as_ref());
        if let Some(relative) = &self.relative_bias {
            let weight = &relative.weight;
            list.module("relative_bias", |list| {
                list.add("weight", ParameterRole::Embedding, weight);
            });
        }
    }
}

impl<B: Backend> LmHead<B> {
    fn list(&self, list: &mut ParameterLister) {
        if let Some(head) = &self.head {
            list.table("head", &ParameterRole::Head, head);
        }
        if let Some(bias) = &self.head_bias {
            list.add("head_bias", ParameterRole::Vector, bias);
        }
    }
}

impl<B: Backend> AddedPositions<B> {
    fn list(&self, list: &mut ParameterLister) {
        if let Some(weight) = &self.weight {
            list.add("weight", ParameterRole::Embedding, weight);
        }
    }
}
