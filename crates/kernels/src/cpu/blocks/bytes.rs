//! Operations on 32 bytes. They loop over local arrays, which the compiler vectorizes wherever they are inlined; loops
//! over memory depend on its analysis of aliases.

/// Bytes per operation.
const LEN: usize = 32;

/// `f` of each of the first 32 bytes.
#[inline(always)]
pub(super) fn map(bytes: &[u8], f: impl Fn(u8) -> u8) -> [u8; LEN] {
    let mut all = [0; LEN];
    all.copy_from_slice(&bytes[..LEN]);
    for byte in &mut all {
        *byte = f(*byte);
    }
    all
}

/// The bits of either.
#[inline(always)]
pub(super) fn or(bytes: &[u8], other: [u8; LEN]) -> [u8; LEN] {
    let mut all = [0; LEN];
    all.copy_from_slice(&bytes[..LEN]);
    for (byte, other) in all.iter_mut().zip(other) {
        *byte |= other;
    }
    all
}
