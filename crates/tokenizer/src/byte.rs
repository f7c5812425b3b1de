//! One token per byte. Ids 0 to 255 are the byte values; 256 marks the end of a text.

/// The number of ids.
pub(crate) const VOCAB_SIZE: usize = 257;

/// The end-of-text id.
pub(crate) const END_OF_TEXT: u32 = 256;

/// Returns the UTF-8 bytes of `text` as ids.
pub(crate) fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Appends the byte of `id`; the end-of-text id appends nothing. Returns false if there is no such id.
pub(crate) fn push_bytes(id: u32, out: &mut Vec<u8>) -> bool {
    match u8::try_from(id) {
        Ok(byte) => out.push(byte),
        Err(_) if id == END_OF_TEXT => {}
        Err(_) => return false,
    }
    true
}
