//! Reproducible random numbers with SplitMix64 (Steele, Lea and Flood 2014).

/// The increment of the generator's state: 2^64 divided by the golden ratio, an odd number.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the generator's output for the state `number`: a permutation of the 64-bit integers in which each
/// output bit depends on every input bit.
#[inline(always)]
pub const fn split_mix(number: u64) -> u64 {
    let x = number.wrapping_add(INCREMENT);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A random number generator.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Creates a generator with the state `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates one of the independent streams of a seed.
    pub const fn stream(seed: u64, index: u64) -> Self {
        Self::new(split_mix(split_mix(seed) ^ index))
    }

    /// Returns the next number.
    pub const fn next_u64(&mut self) -> u64 {
        let output = split_mix(self.state);
        self.state = self.state.wrapping_add(INCREMENT);
        output
    }

    /// Returns a uniformly distributed number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Rejection removes the bias of the multiplication (Lemire 2019).
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a random index of a list of `len` elements, or 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_match_the_reference_implementation() {
        // The reference implementation's first numbers for the seeds 0 and 1234567.
        let first = |seed| {
            let mut random = SplitMix64::new(seed);
            [(); 3].map(|()| random.next_u64())
        };
        assert_eq!(
            first(0)[..2],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]
        );
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first(1_234_567), expected);
    }

    #[test]
    fn streams_are_reproducible_and_distinct() {
        let first = |seed, stream| SplitMix64::stream(seed, stream).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }

    #[test]
    fn numbers_cover_their_range() {
        let mut random = SplitMix64::new(7);
        let mut counts = [0; 8];
        for _ in 0..8000 {
            counts[random.below(8) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
        assert_eq!(random.below(0), 0);
    }
}
