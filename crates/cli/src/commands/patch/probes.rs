//! Probes that copy a point's tensors, and that replace a part of them.

use std::fmt;
use std::ops::Range;

use burn::tensor::{Bool, Device, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::nn::probe::{Point, Probe, Site};

use super::experiment::{By, Replacement};

/// A tensor of one text.
#[derive(Clone, Debug)]
pub enum Seen<B: Backend> {
    /// `[1, seq, width]`.
    Rows(Tensor<B, 3>),
    /// `[1, heads, seq, width]`.
    Heads(Tensor<B, 4>),
}

impl<B: Backend> Seen<B> {
    /// The number of places; `None` without heads.
    pub fn places(&self, by: By) -> Option<usize> {
        match (by, self) {
            (By::Layer, _) => Some(1),
            (By::Position, Self::Rows(x)) => Some(x.dims()[1]),
            (By::Position, Self::Heads(x)) => Some(x.dims()[2]),
            (By::Head, Self::Heads(x)) => Some(x.dims()[1]),
            (By::Head, Self::Rows(_)) => None,
        }
    }

    /// The values that replace others: the tensor itself, zeros, or its mean over the positions.
    pub fn replaced(self, with: Option<Replacement>) -> Self {
        match (with, self) {
            (None, seen) => seen,
            (Some(Replacement::Zero), Self::Rows(x)) => Self::Rows(x.zeros_like()),
            (Some(Replacement::Zero), Self::Heads(x)) => Self::Heads(x.zeros_like()),
            (Some(Replacement::Mean), Self::Rows(x)) => {
                let shape = x.dims();
                Self::Rows(x.mean_dim(1).expand(shape))
            }
            (Some(Replacement::Mean), Self::Heads(x)) => {
                let shape = x.dims();
                Self::Heads(x.mean_dim(2).expand(shape))
            }
        }
    }
}

/// Copies the tensors of a point in every block.
#[derive(Debug)]
pub struct Capture<B: Backend> {
    point: Option<Point>,
    /// The block and the tensor.
    pub seen: Vec<(usize, Seen<B>)>,
}

impl<B: Backend> Capture<B> {
    /// Copies nothing.
    pub fn none() -> Self {
        Self {
            point: None,
            seen: Vec::new(),
        }
    }

    pub fn of(point: Point) -> Self {
        Self {
            point: Some(point),
            seen: Vec::new(),
        }
    }

    fn see(&mut self, site: Site, seen: impl FnOnce() -> Seen<B>) {
        if let Site::Block { layer, point } = site
            && self.point == Some(point)
        {
            self.seen.push((layer, seen()));
        }
    }
}

impl<B: Backend> Probe<B> for Capture<B> {
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.see(site, || Seen::Rows(x.clone()));
        x
    }

    fn heads(&mut self, site: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.see(site, || Seen::Heads(x.clone()));
        x
    }
}

/// Replaces a point's tensor in one block, in sequence `i` of the batch at the `i`-th of `places`.
pub struct Replace<'a, B: Backend> {
    pub layer: usize,
    pub point: Point,
    pub by: By,
    pub places: Range<usize>,
    pub source: &'a Seen<B>,
}

impl<B: Backend> fmt::Debug for Replace<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.layer, self.point.name(), self.places)
    }
}

impl<B: Backend> Replace<'_, B> {
    fn is_here(&self, site: Site) -> bool {
        let (layer, point) = (self.layer, self.point);
        site == Site::Block { layer, point }
    }

    /// True at each sequence's place, `[batch, count]`; true everywhere if the whole tensor is one place.
    fn mask(&self, count: usize, device: &Device<B>) -> Tensor<B, 2, Bool> {
        let is_place = |place: usize| {
            (0..count).map(move |at| match self.by {
                By::Layer => true,
                By::Position | By::Head => at == place,
            })
        };
        let mask: Vec<bool> = self.places.clone().flat_map(is_place).collect();
        Tensor::from_data(TensorData::new(mask, [self.places.len(), count]), device)
    }
}

impl<B: Backend> Probe<B> for Replace<'_, B> {
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let Seen::Rows(source) = self.source else {
            return x;
        };
        if !self.is_here(site) {
            return x;
        }
        let shape = x.dims();
        let [batch, seq, _] = shape;
        let mask = self.mask(seq, &x.device()).reshape([batch, seq, 1]);
        x.mask_where(mask.expand(shape), source.clone().expand(shape))
    }

    fn heads(&mut self, site: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let Seen::Heads(source) = self.source else {
            return x;
        };
        if !self.is_here(site) {
            return x;
        }
        let shape = x.dims();
        let [batch, heads, seq, _] = shape;
        let mask = match self.by {
            By::Head | By::Layer => self.mask(heads, &x.device()).reshape([batch, heads, 1, 1]),
            By::Position => self.mask(seq, &x.device()).reshape([batch, 1, seq, 1]),
        };
        x.mask_where(mask.expand(shape), source.clone().expand(shape))
    }
}
