//! Reads the inputs ahead on a dedicated thread, in waves of chunks.
//!
//! A wave is the unit of work. The division into waves does not affect the dataset, but it bounds memory: at most
//! four waves exist, of which one is being read, one is waiting, one is being tokenized and one is being written.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use emberlm_tokenizer::Tokenizer;

use crate::inputs::DocumentChunk;
use crate::{DataError, Input, InputOptions, LeftOut};

/// The minimum size of a wave, unless the interval of the journal is smaller.
const WAVE_BYTES: usize = 4 << 20;

/// The size of a wave per thread, so that all threads have enough to do.
const WAVE_BYTES_PER_THREAD: usize = 256 << 10;

/// The maximum size of the waves that ranks exchange at once.
const ROUND_BYTES: usize = 256 << 20;

const MAX_WAVE_BYTES: usize = 16 << 20;

/// The memory overhead of a chunk, so that waves of very short documents do not take more memory than others.
const CHUNK_OVERHEAD_BYTES: usize = 128;

/// The inputs to read, with options.
pub(super) struct Reading<'a> {
    /// The inputs with their indices in the corpus. Some may be omitted.
    pub(super) inputs: Vec<(usize, &'a Input)>,
    /// Options for reading the inputs.
    pub(super) options: &'a InputOptions,
    /// Decides where texts may be cut. Without one, they are cut between any two characters.
    pub(super) tokenizer: Option<&'a Tokenizer>,
    /// The size of a wave in bytes.
    pub(super) wave_bytes: usize,
}

/// Consecutive chunks of documents.
#[derive(Default)]
pub(super) struct Wave {
    /// The chunks in order.
    pub(super) chunks: Vec<LocatedChunk>,
    /// The number of bytes of the input files that were read for the wave.
    pub(super) read: u64,
    /// The skipped records of the inputs that end in this wave.
    pub(super) left_out: LeftOut,
    bytes: usize,
}

/// A chunk with its input.
pub(super) struct LocatedChunk {
    /// The index of its input.
    pub(super) input: usize,
    /// The chunk.
    pub(super) chunk: DocumentChunk,
}

/// The size of a wave for the current number of threads and the interval of the journal. All of several ranks must have
/// the same waves, so theirs does not depend on their threads.
pub(super) fn wave_bytes(journal_bytes: u64, ranks: usize) -> usize {
    let wanted = match ranks {
        1 => WAVE_BYTES.max(rayon::current_num_threads() * WAVE_BYTES_PER_THREAD),
        ranks => WAVE_BYTES.min(ROUND_BYTES / ranks),
    };
    let journal = usize::try_from(journal_bytes).unwrap_or(usize::MAX);
    wanted.min(MAX_WAVE_BYTES).min(journal).max(1)
}

/// Calls `take` with each wave of `reading`. Stops at the first error of reading or of `take`.
pub(super) fn for_each_wave(
    reading: &Reading,
    mut take: impl FnMut(Wave) -> Result<(), DataError>,
) -> Result<(), DataError> {
    thread::scope(|scope| {
        let (send, receive) = sync_channel(1);
        let reader = move || {
            if let Err(error) = read(reading, &send) {
                // Ignored if `take` has failed before: that error is returned.
                let _ = send.send(Err(error));
            }
        };
        let builder = thread::Builder::new().name("reader".to_owned());
        let first = reading
            .inputs
            .first()
            .map(|(_, input)| input.name.as_path());
        let refused = DataError::io("start a thread to read", first.unwrap_or(Path::new("")));
        builder.spawn_scoped(scope, reader).map_err(refused)?;
        for wave in receive {
            take(wave?)?;
        }
        Ok(())
    })
}

/// The receiver was dropped.
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
                // The chunks before the error are valid.
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
    while let Some(chunk) = documents.next_chunk()? {
        wave.bytes += chunk.text.len() + CHUNK_OVERHEAD_BYTES;
        wave.chunks.push(LocatedChunk {
            input: number,
            chunk,
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
    // Complete the progress, even if a container has data after its documents.
    wave.read += bytes - read;
    wave.left_out.add(documents.left_out());
    Ok(Ok(()))
}
