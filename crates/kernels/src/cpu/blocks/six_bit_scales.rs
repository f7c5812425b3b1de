//! The layout of eight 6-bit scales and eight 6-bit minimums in 12 bytes.
//!
//! | byte | low bits | high bits |
//! |---|---|---|
//! | `j` | 6 bits of scale `j` | upper 2 bits of scale `j + 4` |
//! | `j + 4` | 6 bits of minimum `j` | upper 2 bits of minimum `j + 4` |
//! | `j + 8` | lower 4 bits of scale `j + 4` | lower 4 bits of minimum `j + 4` |
//!
//! with `j` from 0 to 3.

/// Returns the scales and minimums.
#[inline(always)]
pub(super) fn get(bytes: &[u8]) -> ([u8; 8], [u8; 8]) {
    // Four bytes at a time.
    const EACH: u32 = 0x0101_0101;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let [scale, minimum, low] = [word(0), word(4), word(8)];
    let both = |first: u32, second: u32| {
        let word = u64::from(first) | u64::from(second) << 32;
        word.to_le_bytes()
    };
    let upper = |word: u32| word >> 2 & (EACH * 48);
    let scales = both(scale & (EACH * 63), low & (EACH * 15) | upper(scale));
    let minimums = both(
        minimum & (EACH * 63),
        low >> 4 & (EACH * 15) | upper(minimum),
    );
    (scales, minimums)
}

/// Writes the scales and minimums, each below 64.
pub(super) fn put(scales: &[u8], minimums: &[u8], bytes: &mut [u8]) {
    for j in 0..4 {
        bytes[j] = scales[j] | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = minimums[j] | minimums[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | (minimums[j + 4] & 15) << 4;
    }
}
