//! The probability that a sequence's next draft token is accepted.

/// Weight of the prior estimate, in draft tokens.
const PRIOR_WEIGHT: f64 = 2.0;
/// Factor of older observations for each verified draft.
const DECAY: f64 = 0.9;
/// Factor of older observations for each pass without a draft, so that a sequence whose text begins to repeat has drafts again.
const REST_DECAY: f64 = 0.99;

/// The draft tokens of a sequence that were verified, newer ones with more weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Acceptance {
    verified: f64,
    accepted: f64,
}

impl Acceptance {
    /// The probability that a draft token is accepted if those before it are, from `prior` without observations.
    pub fn estimate(&self, prior: f64) -> f64 {
        (self.accepted + prior * PRIOR_WEIGHT) / (self.verified + PRIOR_WEIGHT)
    }

    /// Records a draft of which the first `accepted` tokens were accepted. Tokens after the first rejected one count as not
    /// verified.
    pub fn record(&mut self, draft: usize, accepted: usize) {
        let verified = draft.min(accepted + 1);
        self.verified = self.verified * DECAY + verified as f64;
        self.accepted = self.accepted * DECAY + accepted as f64;
    }

    /// Records a pass without a draft.
    pub fn rest(&mut self) {
        self.verified *= REST_DECAY;
        self.accepted *= REST_DECAY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_replace_the_prior() {
        let mut acceptance = Acceptance::default();
        assert_eq!(acceptance.estimate(0.5), 0.5);
        for _ in 0..20 {
            acceptance.record(8, 8);
        }
        assert!(acceptance.estimate(0.5) > 0.95);
        for _ in 0..40 {
            acceptance.record(8, 0);
        }
        assert!(acceptance.estimate(0.5) < 0.2);
        for _ in 0..500 {
            acceptance.rest();
        }
        assert!((acceptance.estimate(0.5) - 0.5).abs() < 0.05);
    }
}
