//! Numbers by chance that a seed repeats: SplitMix64 (Steele, Lea and Flood 2014), enough to spread requests.

/// A stream of them.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// One of a seed's streams.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut chance = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        chance.next();
        chance
    }

    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..end`; 0 where that is empty.
    pub fn below(&mut self, end: usize) -> usize {
        let number = self.next();
        // The high half of a product spreads evenly enough.
        ((u128::from(number) * end as u128) >> 64) as usize
    }

    /// One of some, of which there must be one.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_and_is_unlike_the_others() {
        let first = |seed, stream| Chance::new(seed, stream).next();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }

    #[test]
    fn numbers_fill_their_range_and_stay_in_it() {
        let mut chance = Chance::new(7, 0);
        let mut counts = [0; 8];
        for _ in 0..8000 {
            counts[chance.below(8)] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
        assert_eq!(chance.below(0), 0);
    }

    #[test]
    fn the_published_sequence_comes_out() {
        // The reference implementation's first three numbers of the state 1234567.
        let mut chance = Chance(1_234_567);
        let found = [chance.next(), chance.next(), chance.next()];
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(found, expected);
    }
}
