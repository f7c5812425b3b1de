//! A sequence of tokens that a model reads into a cache. All ways to generate read their tokens here.

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{
    EncodedSource, InputError, KvCache, RequestedOutput, SequenceChunk, Transformer,
};

use crate::check::check_prompt;
use crate::error::LogitsError;

/// The maximum number of tokens of a prompt that are read at a time, which bounds the memory of a pass.
pub const PROMPT_CHUNK: usize = 512;

/// The tokens of a sequence, and the cache that a model reads them into.
#[derive(Debug)]
pub(crate) struct Sequence<B: Backend> {
    pub cache: KvCache<B>,
    /// The context: the cached tokens, then the unread ones.
    pub tokens: Vec<u32>,
    /// The source, if the sequence is the target of an encoder–decoder.
    pub source: Option<EncodedSource<B>>,
}

impl<B: Backend> Sequence<B> {
    /// A sequence without tokens.
    pub fn new(cache: KvCache<B>) -> Self {
        Self {
            cache,
            tokens: Vec::new(),
            source: None,
        }
    }

    /// A decoder's continuation of `prompt` by at most `new` tokens. A prompt that is longer than the context is truncated
    /// to its newest tokens. With an encoder–decoder, the target of the source `prompt`, which the encoder reads at once.
    ///
    /// # Errors
    /// The prompt is empty, or has ids outside the vocabulary.
    pub fn begin(model: &Transformer<B>, prompt: &[u32], new: usize) -> Result<Self, InputError> {
        let config = model.config();
        check_prompt(config.vocab_size(), prompt)?;
        if let Some(start) = config.start_token() {
            return Ok(Self {
                cache: model.cache(1, new.max(1)),
                tokens: vec![start],
                source: Some(encode(model, prompt)),
            });
        }
        let context = config.seq_len();
        let capacity = prompt.len().saturating_add(new).min(context);
        let truncated = prompt.len().saturating_sub(context);
        Ok(Self {
            tokens: prompt[truncated..].to_vec(),
            ..Self::new(model.cache(1, capacity))
        })
    }

    /// The number of tokens that are not in the cache.
    pub fn unread(&self) -> usize {
        self.tokens.len().saturating_sub(self.cache.len())
    }

    /// The number of tokens that still fit into the context.
    pub fn room(&self) -> usize {
        self.cache.capacity().saturating_sub(self.tokens.len())
    }

    /// Makes room for `more` tokens: if they do not fit after the current ones (the last of which is not yet in the
    /// cache), the window slides: the newest half of the context is kept, to be read again. Returns true if it did.
    pub fn make_room(&mut self, more: usize) -> bool {
        let capacity = self.cache.capacity();
        let slides = self.tokens.len() + more > capacity + 1;
        if slides {
            let kept = (capacity / 2).max(1);
            self.tokens.drain(..self.tokens.len().saturating_sub(kept));
            self.cache.clear();
        }
        slides
    }

    /// The next `len` unread tokens, for a pass that reads them.
    pub fn chunk(&mut self, len: usize, output: RequestedOutput) -> SequenceChunk<'_, B> {
        let read = self.cache.len();
        SequenceChunk {
            tokens: &self.tokens[read..read + len],
            cache: &mut self.cache,
            output,
            source: self.source.as_ref(),
            adapter: None,
        }
    }

    /// Reads the unread tokens. Returns the logits of the last one or of all, `[rows, vocab_size]`.
    pub fn read(
        &mut self,
        model: &Transformer<B>,
        output: RequestedOutput,
    ) -> Result<TensorData, LogitsError> {
        let logits = self.pass(model, self.unread(), output);
        logits.ok_or(LogitsError::Empty)
    }

    /// Reads the unread tokens except the last one, whose logits are needed.
    pub fn read_all_but_last(&mut self, model: &Transformer<B>) {
        let len = self.unread().saturating_sub(1);
        if len > 0 {
            self.pass(model, len, RequestedOutput::None);
        }
    }

    fn pass(
        &mut self,
        model: &Transformer<B>,
        len: usize,
        output: RequestedOutput,
    ) -> Option<TensorData> {
        let most = match output {
            RequestedOutput::None | RequestedOutput::Last => PROMPT_CHUNK,
            RequestedOutput::All | RequestedOutput::HiddenSum => len,
        };
        let mut left = len;
        while left > most {
            let chunk = self.chunk(most, RequestedOutput::None);
            B::run(|| model.ragged(&mut [chunk]));
            left -= most;
        }
        let chunk = self.chunk(left, output);
        B::run(|| model.ragged(&mut [chunk]).logits.map(Tensor::into_data))
    }

    /// Copies another sequence whose cache is not longer than the capacity here.
    pub fn copy_from(&mut self, other: &Self) {
        self.cache.copy_from(&other.cache, other.cache.len());
        self.tokens.clone_from(&other.tokens);
        self.source.clone_from(&other.source);
    }

    /// Truncates to the first `len` tokens.
    pub fn keep(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.cache.truncate(len);
    }
}

/// Runs an encoder–decoder's encoder over a source.
pub(crate) fn encode<B: Backend>(model: &Transformer<B>, source: &[u32]) -> EncodedSource<B> {
    let ids: Vec<i64> = source.iter().map(|&id| i64::from(id)).collect();
    let ids = TensorData::new(ids, [1, source.len()]);
    B::run(|| {
        let ids = Tensor::<B, 2, Int>::from_data(ids, &model.device());
        model.encode_source(ids, None)
    })
}
