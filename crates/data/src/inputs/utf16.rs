//! Conversion of UTF-16 text to UTF-8 while it is read.

use std::io::{self, Read};

use emberlm_system::file_kind::ByteOrder;

/// Bytes per read.
const BUFFER_BYTES: usize = 64 << 10;

/// Reads UTF-16 text as UTF-8, without its byte order mark.
pub(super) struct Utf16Reader<R> {
    inner: R,
    order: ByteOrder,
    /// Bytes that were read but not converted yet: less than a character.
    rest: Vec<u8>,
    /// Converted text, of which the first `given` bytes have been returned.
    text: String,
    given: usize,
    /// The number of bytes converted so far.
    converted: u64,
    at_end: bool,
}

impl<R: Read> Utf16Reader<R> {
    /// A reader of the whole text, which begins with its byte order mark.
    pub(super) fn new(inner: R, order: ByteOrder) -> Self {
        Self {
            inner,
            order,
            rest: Vec::new(),
            text: String::new(),
            given: 0,
            converted: 0,
            at_end: false,
        }
    }

    /// Reads and converts more text, unless the file has ended.
    fn fill(&mut self) -> io::Result<()> {
        self.text.clear();
        self.given = 0;
        let before = self.rest.len();
        let mut more = (&mut self.inner).take(BUFFER_BYTES as u64);
        more.read_to_end(&mut self.rest)?;
        self.at_end = self.rest.len() == before;
        let unit = |bytes: &[u8; 2]| match self.order {
            ByteOrder::Little => u16::from_le_bytes(*bytes),
            ByteOrder::Big => u16::from_be_bytes(*bytes),
        };
        let (units, odd) = self.rest.as_chunks::<2>();
        let mut units: Vec<u16> = units.iter().map(unit).collect();
        let begins_pair = |unit: &mut u16| (0xD800..0xDC00).contains(unit);
        // The second unit of the pair was not read yet.
        let waits = !self.at_end && units.pop_if(begins_pair).is_some();
        let is_cut = self.at_end && !odd.is_empty();
        for decoded in char::decode_utf16(units) {
            let Ok(character) = decoded else {
                return Err(self.invalid());
            };
            if self.converted > 0 || character != '\u{feff}' {
                self.text.push(character);
            }
            self.converted += 2 * character.len_utf16() as u64;
        }
        if is_cut {
            return Err(self.invalid());
        }
        let kept = odd.len() + if waits { 2 } else { 0 };
        self.rest.drain(..self.rest.len() - kept);
        Ok(())
    }

    fn invalid(&self) -> io::Error {
        let message = format!("it is not valid UTF-16 at offset {}", self.converted);
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

impl<R: Read> Read for Utf16Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() && !self.at_end {
            self.fill()?;
        }
        let rest = &self.text.as_bytes()[self.given..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], order: ByteOrder) -> Result<String, String> {
        let mut text = String::new();
        let read = Utf16Reader::new(bytes, order).read_to_string(&mut text);
        read.map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn text_of_any_length_is_converted() {
        for pairs in [0, 1, BUFFER_BYTES / 4 - 1, BUFFER_BYTES] {
            // Surrogate pairs lie across the ends of reads.
            let text = format!("a\n漢{}b\u{feff}", "🔥".repeat(pairs));
            let units = || ['\u{feff}'].into_iter().chain(text.chars());
            let units: Vec<u16> = units().collect::<String>().encode_utf16().collect();
            let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            assert_eq!(read(&little, ByteOrder::Little).as_ref(), Ok(&text));
            assert_eq!(read(&big, ByteOrder::Big).as_ref(), Ok(&text));
        }
    }

    #[test]
    fn broken_text_is_an_error_with_its_offset() {
        for (bytes, offset) in [
            (&[0xFF, 0xFE, b'a', 0, b'b'][..], 4),
            (&[0xFF, 0xFE, 0x3D, 0xD8], 2),
            (&[0xFF, 0xFE, b'a', 0, 0x3D, 0xD8, b'a', 0], 4),
        ] {
            let expected = format!("it is not valid UTF-16 at offset {offset}");
            assert_eq!(read(bytes, ByteOrder::Little), Err(expected));
        }
    }
}
