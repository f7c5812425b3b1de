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
    let (mut scales, mut minimums) = ([0; 8], [0; 8]);
    for j in 0..4 {
        let [scale, minimum, low] = [bytes[j], bytes[j + 4], bytes[j + 8]];
        scales[j] = scale & 63;
        minimums[j] = minimum & 63;
        scales[j + 4] = low & 15 | scale >> 6 << 4;
        minimums[j + 4] = low >> 4 | minimum >> 6 << 4;
    }
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
