//! The inputs' documents in waves, read ahead by a dedicated thread.
//!
//! A wave is what is worked on at a time. How the pieces fall into waves changes nothing of what is made of them; it
//! bounds the memory: there are at most four waves, one that is read, one that waits, one that is tokenized and one
//! that is written.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use emberlm_tokenizer::Tokenizer;

use crate::inputs::Piece;
use crate::{DataError, Input, InputOptions, LeftOut};

/// The least text of a wave, where the journal is not written more often.
const WAVE_BYTES: usize = 4 << 20;

/// The text that each further thread adds to a wave, so that all have enough to do.
const WAVE_BYTES_PER_THREAD: usize = 256 << 10;

const MOST_WAVE_BYTES: usize = 16 << 20;

/// The memory of a piece in addition to its text: a wave of very short documents is no larger than others.
const PIECE_BYTES: usize = 128;

/// The inputs and the options of their reading.
pub(super) struct Reading<'a> {
    /// The inputs, and their numbers: not all may be wanted.
    pub(super) inputs: Vec<(usize, &'a Input)>,
    /// The options of their reading.
    pub(super) options: &'a InputOptions,
    /// Decides where texts may be cut; without one, between any two characters.
    pub(super) tokenizer: Option<&'a Tokenizer>,
    /// The size of a wave.
    pub(super) wave_bytes: usize,
}

/// Some documents, in their order.
#[derive(Default)]
pub(super) struct Wave {
    /// The documents, or parts of long ones.
    pub(super) pieces: Vec<Located>,
    /// The number of bytes of the inputs' files that were read for it.
    pub(super) read: u64,
    /// The records that were no documents, of the inputs that end in it.
    pub(super) left_out: LeftOut,
    bytes: usize,
}

/// A piece and where it is from.
pub(super) struct Located {
    /// The number of its input.
    pub(super) input: usize,
    /// The piece.
    pub(super) piece: Piece,
}

/// The size of a wave for the present number of threads and a journal's interval.
pub(super) fn wave_bytes(journal_bytes: u64) -> usize {
    let wanted = WAVE_BYTES.max(rayon::current_num_threads() * WAVE_BYTES_PER_THREAD);
    let journal = usize::try_from(journal_bytes).unwrap_or(usize::MAX);
    wanted.min(MOST_WAVE_BYTES).min(journal).max(1)
}

/// Reads all of `reading`, and hands it to `take`, wave by wave. It ends at the first error of either.
pub(super) fn for_each_wave(
    reading: &Reading,
    mut take: impl FnMut(Wave) -> Result<(), DataError>,
) -> Result<(), DataError> {
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        scope.spawn(move || {
            if let Err(error) = read(reading, &send) {
                // Where nobody takes it there is an earlier one.
                let _ = send.send(Err(error));
            }
        });
        for wave in receive {
            take(wave?)?;
        }
        Ok(())
    })
}

/// Nobody takes waves any more.
struct Closed;

fn read(reading: &Reading, send: &SyncSender<Result<Wave, DataError>>) -> Result<(), DataError> {
    let mut wave = Wave::default();
    let mut give = |wave: &mut Wave| send.send(Ok(std::mem::take(wave))).map_err(|_| Closed);
    for &(number, input) in &reading.inputs {
        let result = read_input(number, input, reading, &mut wave, &mut give);
        match result {
            Ok(Ok(())) => {}
            Ok(Err(Closed)) => return Ok(()),
            Err(error) => {
                // What comes before the error is whole.
                let _ = give(&mut wave);
                return Err(error);
            }
        }
    }
    let _ = give(&mut wave);
    Ok(())
}

fn read_input(
    number: usize,
    input: &Input,
    reading: &Reading,
    wave: &mut Wave,
    give: &mut impl FnMut(&mut Wave) -> Result<(), Closed>,
) -> Result<Result<(), Closed>, DataError> {
    let mut documents = input.open(reading.options, reading.tokenizer)?;
    let (bytes, mut read) = (input.bytes, 0);
    while let Some(piece) = documents.next_piece()? {
        wave.bytes += piece.text.len() + PIECE_BYTES;
        wave.pieces.push(Located {
            input: number,
            piece,
        });
        if wave.bytes >= reading.wave_bytes {
            let now = documents.bytes_read().min(bytes);
            wave.read += now.saturating_sub(read);
            read = read.max(now);
            if give(wave).is_err() {
                return Ok(Err(Closed));
            }
        }
    }
    // A bar comes to its end, whatever a container has behind its documents.
    wave.read += bytes - read;
    wave.left_out.add(documents.left_out());
    Ok(Ok(()))
}
