//! Probes that copy tensors to the host, and that count their bytes.

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
            // As TransformerLens stores heads: [batch, seq, heads, head_dim].
            let stored = match is_pattern(&site) {
                true => x.clone(),
                false => x.clone().swap_dims(1, 2),
            };
            self.record(site, stored);
        }
        x
    }
}

/// Counts the bytes of the wanted activations of `seq` tokens in a pass over one token.
pub struct SizeProbe<'a> {
    wanted: &'a dyn Fn(&Site) -> bool,
    seq: usize,
    pub bytes: u64,
}

impl<'a> SizeProbe<'a> {
    pub fn new(wanted: &'a dyn Fn(&Site) -> bool, seq: usize) -> Self {
        Self {
            wanted,
            seq,
            bytes: 0,
        }
    }

    fn count(&mut self, site: &Site, elements: usize) {
        if (self.wanted)(site) {
            let copies = match is_pattern(site) {
                true => self.seq * self.seq,
                false => self.seq,
            };
            self.bytes += (elements * copies * size_of::<f32>()) as u64;
        }
    }
}

impl fmt::Debug for SizeProbe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SizeProbe")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Probe<B> for SizeProbe<'_> {
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.count(&site, x.shape().num_elements());
        x
    }

    fn heads(&mut self, site: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.count(&site, x.shape().num_elements());
        x
    }
}

/// True for attention patterns, `[batch, heads, seq, seq]`.
fn is_pattern(site: &Site) -> bool {
    matches!(
        site,
        Site::Block {
            point: Point::Pattern | Point::CrossPattern,
            ..
        }
    )
}
