//! The probability that a sequence's next draft token is accepted.

use super::draft::{LONGEST_MATCH, Origin};

/// Weight of the prior estimate, in draft tokens.
const PRIOR_WEIGHT: f64 = 2.0;
/// Factor of a sequence's older observations for each verified draft.
const DECAY: f64 = 0.9;
/// Factor of a sequence's older observations for each pass without a draft, so that a sequence whose text begins to repeat has drafts again.
const REST_DECAY: f64 = 0.99;
/// [`DECAY`] of the observations of all sequences.
const OVERALL_DECAY: f64 = 0.99;
/// [`REST_DECAY`] of the observations of all sequences, for each pass.
const OVERALL_REST_DECAY: f64 = 0.999;
/// The probability for a token of a draft model without observations.
const DRAFT_MODEL_PRIOR: f64 = 0.7;

/// Verified draft tokens, newer ones with more weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Acceptance {
    verified: f64,
    accepted: f64,
}

/// The verified draft tokens of all sequences, by origin: the prior estimates of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OverallAcceptance {
    draft_model: Acceptance,
    matches: [Acceptance; LONGEST_MATCH],
}

impl Acceptance {
    /// The probability that a draft token is accepted if those before it are, from `prior` without observations.
    pub fn estimate(&self, prior: f64) -> f64 {
        (self.accepted + prior * PRIOR_WEIGHT) / (self.verified + PRIOR_WEIGHT)
    }

    /// Records a draft of which the first `accepted` tokens were accepted. Tokens after the first rejected one count as not
    /// verified.
    pub fn record(&mut self, draft: usize, accepted: usize) {
        self.record_with(draft, accepted, DECAY);
    }

    /// Records a pass without a draft.
    pub fn rest(&mut self) {
        self.scale(REST_DECAY);
    }

    fn record_with(&mut self, draft: usize, accepted: usize, decay: f64) {
        self.scale(decay);
        self.verified += draft.min(accepted + 1) as f64;
        self.accepted += accepted as f64;
    }

    fn scale(&mut self, factor: f64) {
        self.verified *= factor;
        self.accepted *= factor;
    }
}

impl OverallAcceptance {
    /// The probability that the first token of such a draft is accepted. Without observations, longer matches are continued more often.
    pub fn estimate(&self, origin: Origin) -> f64 {
        match origin {
            Origin::DraftModel => self.draft_model.estimate(DRAFT_MODEL_PRIOR),
            Origin::Match(len) => {
                let prior = len as f64 / (len + 2) as f64;
                let observed = self.matches.get(len.saturating_sub(1));
                observed.map_or(prior, |observed| observed.estimate(prior))
            }
        }
    }

    /// Records a draft as [`Acceptance::record`] does.
    pub fn record(&mut self, origin: Origin, draft: usize, accepted: usize) {
        let observed = match origin {
            Origin::DraftModel => Some(&mut self.draft_model),
            Origin::Match(len) => self.matches.get_mut(len.saturating_sub(1)),
        };
        if let Some(observed) = observed {
            observed.record_with(draft, accepted, OVERALL_DECAY);
        }
    }

    /// Records a pass: origins without drafts are tried again after thousands of passes.
    pub fn rest(&mut self) {
        let all = self.matches.iter_mut().chain([&mut self.draft_model]);
        all.for_each(|observed| observed.scale(OVERALL_REST_DECAY));
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

    #[test]
    fn the_matches_of_other_sequences_count_by_their_length() {
        let mut overall = OverallAcceptance::default();
        let short = overall.estimate(Origin::Match(2));
        let long = overall.estimate(Origin::Match(LONGEST_MATCH));
        assert!(short < long);
        for _ in 0..100 {
            overall.record(Origin::Match(2), 4, 0);
        }
        assert!(overall.estimate(Origin::Match(2)) < 0.05);
        assert_eq!(overall.estimate(Origin::Match(LONGEST_MATCH)), long);
        for _ in 0..10_000 {
            overall.rest();
        }
        assert!((overall.estimate(Origin::Match(2)) - short).abs() < 0.05);
    }
}
