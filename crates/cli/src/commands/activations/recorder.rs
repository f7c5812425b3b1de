//! A probe that copies tensors to the host.

use std::fmt;

use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::nn::probe::{Point, Probe, Site};
use emberlm_model::weights::HostTensor;

/// Copies the wanted activations to the host.
pub struct Recorder<'a> {
    wanted: &'a dyn Fn(&Site) -> bool,
    /// The activations by name, in the order of the pass.
    pub tensors: Vec<(String, HostTensor)>,
}

impl<'a> Recorder<'a> {
    pub fn new(wanted: &'a dyn Fn(&Site) -> bool) -> Self {
        Self {
            wanted,
            tensors: Vec::new(),
        }
    }

    fn record<B: Backend, const D: usize>(&mut self, site: Site, x: Tensor<B, D>) {
        let tensor = HostTensor {
            shape: x.dims().to_vec(),
            values: x.into_data().iter::<f32>().collect(),
        };
        self.tensors.push((site.to_string(), tensor));
    }
}

impl fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tensors.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl<B: Backend> Probe<B> for Recorder<'_> {
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        if (self.wanted)(&site) {
            self.record(site, x.clone());
        }
        x
    }

    fn heads(&mut self, site: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        if (self.wanted)(&site) {
            let is_pattern = matches!(
                site,
                Site::Block {
                    point: Point::Pattern | Point::CrossPattern,
                    ..
                }
            );
            // As TransformerLens stores heads: [batch, seq, heads, head_dim].
            let stored = match is_pattern {
                true => x.clone(),
                false => x.clone().swap_dims(1, 2),
            };
            self.record(site, stored);
        }
        x
    }
}
