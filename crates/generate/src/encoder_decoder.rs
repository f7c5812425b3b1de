//! Generation with an encoder–decoder: one token after the other, or by beam search.

use burn::tensor::{Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{EncodedSource, KvCache, Transformer};

use crate::beam::{BeamModel, column, is_identity};
use crate::check::{check_ids, check_stop_ids};
use crate::chooser::{Chooser, Chosen};
use crate::error::GenerateError;
use crate::logits::floats;
use crate::plain::{Finish, GenerateOptions};

/// A source's target as an iterator over its tokens; the work for a token is done when it is asked for. After an error it
/// has ended.
#[derive(Debug)]
pub struct TargetGenerator<'a, B: Backend> {
    model: &'a Transformer<B>,
    source: EncodedSource<B>,
    chooser: Chooser,
    chosen: Chosen,
    stop_tokens: Vec<u32>,
    left: usize,
    cache: KvCache<B>,
    /// The token that the cache has not seen.
    newest: u32,
    finish: Option<Finish>,
    failed: bool,
}

impl<'a, B: Backend> TargetGenerator<'a, B> {
    /// Checks settings and source, and runs the encoder.
    ///
    /// # Errors
    /// A setting is out of its range, the source is empty, or an id is outside of the vocabulary.
    pub fn new(
        model: &'a Transformer<B>,
        source: &[u32],
        options: &GenerateOptions,
    ) -> Result<Self, GenerateError> {
        let config = model.config();
        let stream = options.sample as u64;
        let start = config.start_token().unwrap_or(0);
        // Penalties count the target only.
        let chooser = Chooser::new(&options.chooser, &[start], config.vocab_size(), stream)?;
        check_stop_ids(config.vocab_size(), &options.stop_tokens)?;
        Ok(Self {
            source: encoded(model, source)?,
            model,
            chooser,
            chosen: Chosen::default(),
            stop_tokens: options.stop_tokens.clone(),
            left: options.max_new_tokens,
            cache: model.cache(1, options.max_new_tokens.max(1)),
            newest: start,
            finish: None,
            failed: false,
        })
    }

    /// Why it ended; none before it has.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The newest token with its log-probability, where that was asked for; nothing yet before the first.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    fn step(&mut self) -> Result<u32, GenerateError> {
        let target = column(&[self.newest], &self.model.device());
        let (model, source, cache) = (self.model, &self.source, &mut self.cache);
        let logits = B::run_pass(1, || {
            model.next_target_logits(target, source, cache).into_data()
        });
        self.chosen = self.chooser.choose(&floats(&logits))?;
        Ok(self.chosen.id)
    }
}

impl<B: Backend> Iterator for TargetGenerator<'_, B> {
    type Item = Result<u32, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.finish.is_some() {
            return None;
        }
        if self.chooser.is_complete() {
            self.finish = Some(Finish::Complete);
            return None;
        }
        if self.left == 0 {
            self.finish = Some(Finish::Length);
            return None;
        }
        match self.step() {
            Ok(token) if self.stop_tokens.contains(&token) => {
                self.finish = Some(Finish::Stop(token));
                None
            }
            Ok(token) => {
                self.newest = token;
                self.left -= 1;
                Some(Ok(token))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// An encoder–decoder's targets of one source in a beam search.
#[derive(Debug)]
pub struct TargetBeams<'a, B: Backend> {
    model: &'a Transformer<B>,
    source: EncodedSource<B>,
    cache: KvCache<B>,
    count: usize,
}

impl<'a, B: Backend> TargetBeams<'a, B> {
    /// Runs the encoder, for targets of at most `max_new_tokens`.
    ///
    /// # Errors
    /// The source is empty, or an id is outside of the vocabulary.
    pub fn new(
        model: &'a Transformer<B>,
        source: &[u32],
        max_new_tokens: usize,
    ) -> Result<Self, GenerateError> {
        Ok(Self {
            source: encoded(model, source)?,
            model,
            cache: model.cache(1, max_new_tokens.max(1)),
            count: 1,
        })
    }

    fn next_logits(&mut self, tokens: &[u32]) -> Vec<f32> {
        let target = column(tokens, &self.model.device());
        let (model, source, cache) = (self.model, &self.source, &mut self.cache);
        let logits = B::run_pass(tokens.len(), || {
            model.next_target_logits(target, source, cache).into_data()
        });
        floats(&logits).into_owned()
    }
}

impl<B: Backend> BeamModel for TargetBeams<'_, B> {
    fn vocab_size(&self) -> usize {
        self.model.config().vocab_size()
    }

    fn begin(&mut self) -> Vec<f32> {
        self.next_logits(&[self.model.config().start_token().unwrap_or(0)])
    }

    fn extend(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<f32> {
        if !is_identity(parents, self.count) {
            self.cache.select(parents);
        }
        if parents.len() != self.count {
            // All have the same source.
            self.source = self.source.select(&vec![0; parents.len()]);
        }
        self.count = parents.len();
        self.next_logits(tokens)
    }
}

/// Runs the encoder over a source.
fn encoded<B: Backend>(
    model: &Transformer<B>,
    source: &[u32],
) -> Result<EncodedSource<B>, GenerateError> {
    check_ids(model.config().vocab_size(), source)?;
    let ids: Vec<i64> = source.iter().map(|&id| i64::from(id)).collect();
    let shape = [1, ids.len()];
    let ids = Tensor::from_data(TensorData::new(ids, shape), &model.device());
    Ok(model.encode_source(ids, None))
}
