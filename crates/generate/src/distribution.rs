//! The distribution that tokens are sampled from.

/// A probability distribution over the tokens that may be drawn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// Token ids and probabilities, sorted by id. Not empty; the probabilities add up to 1.
    tokens: Vec<(u32, f64)>,
}

impl Distribution {
    /// The distribution with a single token.
    pub fn certain(id: u32) -> Self {
        Self {
            tokens: vec![(id, 1.0)],
        }
    }

    /// Normalizes `weights`, given in any order. Returns only `fallback` if they sum to 0.
    pub fn of_weights(mut weights: Vec<(u32, f64)>, fallback: u32) -> Self {
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        if total <= 0.0 {
            return Self::certain(fallback);
        }
        weights.sort_unstable_by_key(|&(id, _)| id);
        for (_, weight) in &mut weights {
            *weight /= total;
        }
        Self { tokens: weights }
    }

    /// The probability of a token; 0 if it cannot be drawn.
    pub fn of(&self, id: u32) -> f64 {
        let place = self.tokens.binary_search_by_key(&id, |&(id, _)| id);
        place.map_or(0.0, |place| self.tokens[place].1)
    }

    /// Draws a token by inverse transform sampling: `uniform` is uniformly distributed in [0, 1).
    pub fn draw(&self, uniform: f64) -> u32 {
        let mut left = uniform;
        let mut last = 0;
        for &(id, probability) in &self.tokens {
            left -= probability;
            if probability > 0.0 {
                last = id;
            }
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// The residual distribution of speculative sampling, after a token drawn from `draft` was rejected:
    /// `max(0, p - q)`, normalized. Returns `self` if the residual is 0, because then both distributions are
    /// equal.
    pub fn without(&self, draft: &Self) -> Self {
        let rest = |&(id, p): &(u32, f64)| (id, (p - draft.of(id)).max(0.0));
        let rest: Vec<_> = self.tokens.iter().map(rest).collect();
        match rest.iter().any(|&(_, weight)| weight > 0.0) {
            true => Self::of_weights(rest, 0),
            false => self.clone(),
        }
    }
}
