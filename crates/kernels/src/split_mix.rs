//! SplitMix64's mixing function, from which seeds of dropout are derived.

/// One step of SplitMix64's counter and its finalizer (Steele et al. 2014): a permutation of the 64-bit numbers in which each
/// output bit depends on every input bit.
#[inline(always)]
pub const fn split_mix(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the published generator for the seed 0.
    #[test]
    fn outputs_are_those_of_the_published_generator() {
        let outputs = [0, 1].map(|step: u64| split_mix(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!(outputs, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
