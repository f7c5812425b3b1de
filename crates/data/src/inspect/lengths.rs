//! Document lengths.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// The number of documents of each length. There are few distinct lengths: `n` tokens allow at most about `√(2n)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    counts: BTreeMap<u64, u64>,
}

/// The documents with lengths between two powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The shortest length.
    pub from: u64,
    /// The longest length.
    pub to: u64,
    /// The number of documents.
    pub documents: u64,
}

impl Lengths {
    pub(super) fn add(&mut self, tokens: u64) {
        *self.counts.entry(tokens).or_default() += 1;
    }

    /// The shortest length, or 0 without documents.
    pub fn min(&self) -> u64 {
        self.counts.keys().next().copied().unwrap_or(0)
    }

    /// The longest length, or 0 without documents.
    pub fn max(&self) -> u64 {
        self.counts.keys().next_back().copied().unwrap_or(0)
    }

    /// The mean length.
    pub fn mean(&self) -> f64 {
        let tokens: u64 = self
            .counts
            .iter()
            .map(|(tokens, count)| tokens * count)
            .sum();
        tokens as f64 / self.documents().max(1) as f64
    }

    /// The median length. For an even number of documents, the mean of the two middle lengths.
    pub fn median(&self) -> f64 {
        let documents = self.documents();
        let [low, high] =
            [documents.saturating_sub(1) / 2, documents / 2].map(|rank| self.at(rank));
        (low + high) as f64 / 2.0
    }

    /// Documents by length, in bins of 0, 1, 2 to 3, 4 to 7 and so on, from the first bin that is not empty to the
    /// last.
    pub fn histogram(&self) -> Vec<Bin> {
        let number = |tokens: u64| u64::BITS - tokens.leading_zeros();
        let bin = |number: u32| match number {
            0 => (0, 0),
            _ => (1 << (number - 1), u64::MAX >> (u64::BITS - number)),
        };
        if self.counts.is_empty() {
            return Vec::new();
        }
        let bins = (number(self.min())..=number(self.max())).map(bin);
        bins.map(|(from, to)| Bin {
            from,
            to,
            documents: self.counts.range(from..=to).map(|(_, count)| count).sum(),
        })
        .collect()
    }

    fn documents(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The length at index `rank` in ascending order.
    fn at(&self, rank: u64) -> u64 {
        let mut seen = 0;
        for (tokens, count) in &self.counts {
            seen += count;
            if rank < seen {
                return *tokens;
            }
        }
        self.max()
    }
}

impl Serialize for Lengths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Lengths", 5)?;
        fields.serialize_field("min", &self.min())?;
        fields.serialize_field("median", &self.median())?;
        fields.serialize_field("mean", &self.mean())?;
        fields.serialize_field("max", &self.max())?;
        fields.serialize_field("histogram", &self.histogram())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(of: &[u64]) -> Lengths {
        let mut lengths = Lengths::default();
        of.iter().for_each(|&tokens| lengths.add(tokens));
        lengths
    }

    #[test]
    fn statistics_match_a_sorted_list() {
        let odd = lengths(&[9, 1, 4]);
        assert_eq!((odd.min(), odd.median(), odd.max()), (1, 4.0, 9));
        let even = lengths(&[8, 2, 2, 5]);
        assert_eq!((even.median(), even.mean()), (3.5, 4.25));
        let none = lengths(&[]);
        assert_eq!(
            (none.min(), none.median(), none.mean(), none.max()),
            (0, 0.0, 0.0, 0)
        );
    }

    #[test]
    fn histogram_bins_end_before_powers_of_two() {
        let bins = lengths(&[0, 1, 2, 3, 4, 15, u64::MAX]).histogram();
        let first: Vec<_> = bins[..5]
            .iter()
            .map(|b| (b.from, b.to, b.documents))
            .collect();
        assert_eq!(
            first,
            [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 1), (8, 15, 1)]
        );
        assert_eq!(bins.len(), 65);
        assert_eq!(
            (bins[64].from, bins[64].to, bins[64].documents),
            (1 << 63, u64::MAX, 1)
        );
        assert_eq!(lengths(&[]).histogram(), []);
    }
}
