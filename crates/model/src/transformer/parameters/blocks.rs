//! The parameters of the components of a block.

use emberlm_kernels::Backend;

use super::{ParameterLister, ParameterRole};
use crate::nn::latent::LatentProjections;
use crate::nn::low_rank::LowRank;
use crate::nn::{
    Attention, Block, CrossAttention, CrossSublayer, DeltaNet, FeedForward, FeedForwardLayer,
    Linear, LinearWeight, Mixture,
};

impl<B: Backend> Block<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        if let Some(mix) = &self.mix {
            list.module("mix", |list| {
                list.add("stream", ParameterRole::Vector, &mix.stream);
                list.add("embedding", ParameterRole::Vector, &mix.embedding);
            });
        }
        list.norm("norm1", self.norm1.as_ref());
        list.module("attention", |list| self.attention.list(list));
        list.norm("norm1_after", self.norm1_after.as_ref());
        if let Some(cross) = &self.cross {
            list.module("cross", |list| cross.list(list));
        }
        list.norm("norm2", self.norm2.as_ref());
        list.module("feed_forward", |list| self.feed_forward.list(list));
        list.norm("norm2_after", self.norm2_after.as_ref());
    }
}

impl<B: Backend> Attention<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        let qkv = ParameterRole::FusedMatrix {
            widths: self.qkv_widths().to_vec(),
        };
        list.module("qkv", |list| self.qkv.list(list, qkv));
        list.module("out", |list| self.out.list(list, ParameterRole::Matrix));
        if let Some(gate) = &self.gate {
            list.module("gate", |list| gate.list(list, ParameterRole::Matrix));
        }
        if let Some(delta) = &self.delta {
            list.module("delta", |list| delta.list(list));
        }
        if let Some(latent) = &self.latent {
            list.module("latent", |list| latent.list(list));
        }
        list.norm("q_norm", self.q_norm.as_ref());
        list.norm("k_norm", self.k_norm.as_ref());
        if let Some(sinks) = &self.sinks {
            list.add("sinks", ParameterRole::Vector, sinks);
        }
        if let Some(values) = &self.values {
            list.module("values", |list| {
                list.table("table", &ParameterRole::Embedding, &values.table);
                list.add("gate", ParameterRole::Router, &values.gate);
            });
        }
    }
}

impl<B: Backend> LatentProjections<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        list.norm("q_norm", self.q_norm.as_ref());
        if let Some(q_up) = &self.q_up {
            list.module("q_up", |list| q_up.list(list, ParameterRole::Matrix));
        }
        list.norm("norm", Some(&self.norm));
        list.module("up", |list| self.up.list(list, ParameterRole::Router));
    }
}

impl<B: Backend> DeltaNet<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        list.add("convolution", ParameterRole::Router, &self.convolution);
        list.module("rates", |list| self.rates.list(list, ParameterRole::Router));
        list.add("decay", ParameterRole::Vector, &self.decay);
        list.add("step_bias", ParameterRole::Vector, &self.step_bias);
        list.norm("norm", Some(&self.norm));
    }
}

impl<B: Backend> CrossSublayer<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        list.norm("norm", self.norm.as_ref());
        list.module("attention", |list| self.attention.list(list));
        list.norm("norm_after", self.norm_after.as_ref());
    }
}

impl<B: Backend> CrossAttention<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        let kv = ParameterRole::FusedMatrix {
            widths: self.kv_widths().to_vec(),
        };
        list.module("q", |list| self.q.list(list, ParameterRole::Matrix));
        list.module("kv", |list| self.kv.list(list, kv));
        list.module("out", |list| self.out.list(list, ParameterRole::Matrix));
        list.norm("q_norm", self.q_norm.as_ref());
        list.norm("k_norm", self.k_norm.as_ref());
    }
}

impl<B: Backend> FeedForwardLayer<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        match self {
            Self::Dense(layer) => layer.list(list),
            Self::Experts(mixture) => mixture.list(list),
        }
    }
}

impl<B: Backend> Mixture<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        let role = ParameterRole::Router;
        list.module("router", |list| self.router.list(list, role.clone()));
        for (number, expert) in self.experts.iter().enumerate() {
            list.module(format!("experts.{number}"), |list| expert.list(list));
        }
        if let Some(shared) = &self.shared {
            if let Some(gate) = &shared.gate {
                list.module("shared.gate", |list| gate.list(list, role));
            }
            list.module("shared.expert", |list| shared.expert.list(list));
        }
        if let Some(bias) = &self.choice_bias {
            list.add("choice_bias", ParameterRole::Vector, bias);
        }
    }
}

impl<B: Backend> FeedForward<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        let layers = [
            ("gate", self.gate.as_ref()),
            ("up", Some(&self.up)),
            ("down", Some(&self.down)),
        ];
        for (name, linear) in layers {
            if let Some(linear) = linear {
                list.module(name, |list| linear.list(list, ParameterRole::Matrix));
            }
        }
    }
}

impl<B: Backend> Linear<B> {
    pub(super) fn list(&self, list: &mut ParameterLister, role: ParameterRole) {
        match &self.weight {
            LinearWeight::Float(weight) => list.add("weight", role, weight),
            LinearWeight::Packed(_) => {}
        }
        if let Some(bias) = &self.bias {
            list.add("bias", ParameterRole::Vector, bias);
        }
        if let Some(adapter) = &self.adapter {
            for (number, part) in adapter.parts.iter().enumerate() {
                list.module(format!("adapter.{number}"), |list| part.list(list));
            }
        }
    }
}

impl<B: Backend> LowRank<B> {
    pub(super) fn list(&self, list: &mut ParameterLister) {
        list.add("a", ParameterRole::Adapter, &self.a);
        list.add("b", ParameterRole::Adapter, &self.b);
        if let Some(magnitude) = &self.magnitude {
            list.add("magnitude", ParameterRole::Vector, magnitude);
        }
    }
}
