//! Reproducible mutations of files.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Replacements of numbers: boundary values and other types.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "3",
    "1.5",
    "1e308",
    "1e-308",
    "1e999",
    "255",
    "65536",
    "16777216",
    "16777217",
    "1152921504606846976",
    "18446744073709551615",
    "null",
    "\"7\"",
];

/// Generates mutations from a seed.
#[derive(Debug)]
pub struct Mutator(ChaCha8Rng);

impl Mutator {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns one of the files with one to three changes. `files` must not be empty.
    pub fn mutate(&mut self, files: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.pick(files).to_vec();
        for _ in 0..[1, 1, 1, 2, 3][self.0.random_range(0..5)] {
            match self.0.random_range(0..9) {
                0 | 8 => self.flip(&mut bytes),
                1 => {
                    let end = self.position(&bytes);
                    bytes.truncate(end);
                }
                2 => {
                    let other = self.pick(files);
                    let (end, start) = (self.position(&bytes), self.position(other));
                    bytes.truncate(end);
                    bytes.extend_from_slice(&other[start..]);
                }
                3 => {
                    let (from, to) = self.range(&bytes);
                    bytes.drain(from..to);
                }
                4 => {
                    let (from, to) = self.range(&bytes);
                    let again = bytes[from..to].to_vec();
                    let position = self.position(&bytes);
                    bytes.splice(position..position, again);
                }
                _ => self.replace_number(&mut bytes),
            }
        }
        bytes
    }

    fn pick<'a>(&mut self, files: &[&'a [u8]]) -> &'a [u8] {
        files[self.0.random_range(0..files.len())]
    }

    fn position(&mut self, bytes: &[u8]) -> usize {
        self.0.random_range(0..=bytes.len())
    }

    /// Picks a short range.
    fn range(&mut self, bytes: &[u8]) -> (usize, usize) {
        let from = self.position(bytes);
        let to = bytes.len().min(from + self.0.random_range(0..40));
        (from, to)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let position = self.0.random_range(0..bytes.len());
            bytes[position] ^= 1 << (self.0.next_u32() % 8);
        }
    }

    /// Replaces a decimal number by another one.
    fn replace_number(&mut self, bytes: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..bytes.len())
            .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
            .collect();
        if starts.is_empty() {
            return;
        }
        let from = starts[self.0.random_range(0..starts.len())];
        let digits = bytes[from..].iter().take_while(|b| b.is_ascii_digit());
        let to = from + digits.count();
        let number = NUMBERS[self.0.random_range(0..NUMBERS.len())];
        bytes.splice(from..to, number.bytes());
    }
}
