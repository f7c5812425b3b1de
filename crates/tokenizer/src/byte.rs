//! One token per byte: ids 0 to 255 are the bytes, 256 ends a text.

/// Ids in all.
pub(crate) const VOCAB_SIZE: usize = 257;

/// The id that ends a text.
pub(crate) const END_OF_TEXT: u32 = 256;

/// The ids of `text`'s UTF-8 bytes.
pub(crate) fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Appends the byte of `id`; the end of a text adds none. False where there is no such id.
pub(crate) fn push_bytes(id: u32, out: &mut Vec<u8>) -> bool {
    match u8::try_from(id) {
        Ok(byte) => out.push(byte),
        Err(_) if id == END_OF_TEXT => {}
        Err(_) => return false,
    }
    true
}
