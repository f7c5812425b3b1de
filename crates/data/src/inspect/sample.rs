//! A uniform sample of a stream's documents.

use emberlm_system::random::split_mix;

use super::documents::Document;

/// Keeps the documents with the lowest hashed indices. The result depends only on the seed and the number of
/// documents.
pub(super) struct Sample {
    most: usize,
    seed: u64,
    /// Hash, index and document, sorted by hash.
    kept: Vec<(u64, u64, Document)>,
}

impl Sample {
    /// A sample of at most `most` documents.
    pub(super) fn new(most: usize, seed: u64) -> Self {
        let kept = Vec::new();
        Self { most, seed, kept }
    }

    /// Considers the document with this index for the sample.
    pub(super) fn consider(&mut self, number: u64, document: &Document) {
        let rank = split_mix(split_mix(self.seed) ^ number);
        let at = self.kept.partition_point(|(other, ..)| *other < rank);
        if at < self.most {
            self.kept.insert(at, (rank, number, document.clone()));
            self.kept.truncate(self.most);
        }
    }

    /// The sampled documents with their indices, in order.
    pub(super) fn finish(self) -> Vec<(u64, Document)> {
        let kept = self.kept.into_iter();
        let mut kept: Vec<_> = kept
            .map(|(_, number, document)| (number, document))
            .collect();
        kept.sort_by_key(|(number, _)| *number);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(most: usize, seed: u64, documents: u64) -> Vec<u64> {
        let mut sample = Sample::new(most, seed);
        for number in 0..documents {
            let document = Document {
                start: number,
                tokens: 1,
                hash: 0,
            };
            sample.consider(number, &document);
        }
        sample.finish().iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn sample_depends_on_the_seed() {
        let (a, b) = (sampled(5, 1, 1000), sampled(5, 2, 1000));
        assert_eq!(a.len(), 5);
        assert!(a.is_sorted() && a != b);
        assert_eq!(a, sampled(5, 1, 1000));
        assert_eq!(sampled(5, 1, 3), [0, 1, 2]);
        assert!(sampled(0, 1, 3).is_empty());
    }

    #[test]
    fn sample_is_uniform() {
        let mut counts = [0; 10];
        for seed in 0..5_000 {
            sampled(2, seed, 10)
                .iter()
                .for_each(|&n| counts[n as usize] += 1);
        }
        // Expected 1,000 each, with a standard deviation of 28.
        assert!(
            counts.iter().all(|count| (860..1140).contains(count)),
            "{counts:?}"
        );
    }
}
