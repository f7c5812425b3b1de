//! The distribution that a token is drawn from.

/// The probabilities of the tokens that may be drawn; all others have none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// By id, which rises; the probabilities add up to 1. At least one.
    tokens: Vec<(u32, f64)>,
}

impl Distribution {
    /// One token and no other.
    pub fn certain(id: u32) -> Self {
        Self {
            tokens: vec![(id, 1.0)],
        }
    }

    /// Probabilities but for a common factor, of tokens in any order; only `fallback` if they sum to 0.
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

    /// A token's probability.
    pub fn of(&self, id: u32) -> f64 {
        let place = self.tokens.binary_search_by_key(&id, |&(id, _)| id);
        place.map_or(0.0, |place| self.tokens[place].1)
    }

    /// The token that a number drawn evenly from 0 to 1 stands for.
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

    /// The residual distribution after a token drawn from `guess` was rejected: `max(0, p - q)`, normalized to 1. Itself if
    /// the residual is 0, which means that the two are equal.
    pub fn without(&self, guess: &Self) -> Self {
        let rest = |&(id, p): &(u32, f64)| (id, (p - guess.of(id)).max(0.0));
        let rest: Vec<_> = self.tokens.iter().map(rest).collect();
        match rest.iter().any(|&(_, weight)| weight > 0.0) {
            true => Self::of_weights(rest, 0),
            false => self.clone(),
        }
    }
}
