//! The text of a request to an engine, decoded while it is generated.

use emberlm_generate::{Engine, EventKind, Finish, GenerateError, Request, RequestId};
use emberlm_kernels::Backend;
use emberlm_tokenizer::{StopStrings, TextStream, Tokenizer};

use crate::Error;

/// The reason that a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEnd {
    /// A stop token, a stop string, or a constraint that allows no further token.
    Stop,
    /// The limit on the number of tokens.
    Length,
}

/// An iterator over the parts of a text, each of complete characters. The work for a part is done when it is requested.
/// Dropping the iterator cancels the request.
pub struct TextGeneration<'a, B: Backend> {
    engine: &'a mut Engine<B>,
    request: RequestId,
    /// `None` once the remaining text was returned.
    stream: Option<TextStream>,
    tokens: usize,
    /// Tokens that the engine had reused before this request.
    reused_before: u64,
    end: Option<TextEnd>,
}

impl<'a, B: Backend> TextGeneration<'a, B> {
    /// Submits `request` to an idle engine. The text ends before the first of `stops`.
    ///
    /// # Errors
    /// Those of [`Engine::submit`].
    pub fn start(
        engine: &'a mut Engine<B>,
        tokenizer: &Tokenizer,
        stops: StopStrings,
        request: Request,
    ) -> Result<Self, GenerateError> {
        // The text of an encoder–decoder does not continue its source.
        let before = match engine.model().decoder() {
            Some(_) => &request.prompt[..],
            None => &[],
        };
        let stream = TextStream::after(tokenizer, before, stops);
        let reused_before = engine.counts().reused_tokens;
        Ok(Self {
            request: engine.submit(request)?,
            engine,
            stream: Some(stream),
            tokens: 0,
            reused_before,
            end: None,
        })
    }

    /// Runs one pass of the engine, which reads a part of the prompt or generates a token, and returns the text that it
    /// completes, which may be empty. Returns `None` after the end.
    ///
    /// # Errors
    /// No token can be chosen. The text has ended then.
    pub fn step(&mut self) -> Result<Option<String>, GenerateError> {
        if self.end.is_some() {
            return Ok(self.stream.take().map(|stream| stream.finish().visible));
        }
        let mut events = Vec::new();
        let is_busy = self.engine.step(&mut |event| events.push(event.kind));
        if !is_busy && events.is_empty() {
            self.end = Some(TextEnd::Stop);
        }
        let mut text = String::new();
        for event in events {
            match event {
                EventKind::Token(chosen) => text += &self.push(chosen.id),
                EventKind::Finished(ended) if self.end.is_none() => {
                    self.end = Some(match ended.finish {
                        Finish::Length => TextEnd::Length,
                        _ => TextEnd::Stop,
                    });
                }
                EventKind::Failed(error) => {
                    self.end = Some(TextEnd::Stop);
                    self.stream = None;
                    return Err(error);
                }
                EventKind::Started | EventKind::Embedded(_) | EventKind::Finished(_) => {}
            }
        }
        Ok(Some(text))
    }

    /// Decodes a token. Ends the text at a stop string.
    fn push(&mut self, id: u32) -> String {
        let Some(stream) = self.stream.as_mut().filter(|_| self.end.is_none()) else {
            return String::new();
        };
        self.tokens += 1;
        let delta = stream.push(id);
        if delta.stop.is_some() {
            self.end = Some(TextEnd::Stop);
            self.engine.cancel(self.request);
        }
        delta.visible
    }

    /// The reason that the text ended. `None` while it continues.
    pub fn end(&self) -> Option<TextEnd> {
        self.end
    }

    /// The number of generated tokens, without the one that ended the text.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The number of tokens of the prompt that were not computed, since the engine's cache had them.
    pub fn reused(&self) -> u64 {
        self.engine.counts().reused_tokens - self.reused_before
    }

    /// Ends the text here, and returns the characters that were held back as a possible beginning of a stop string.
    pub fn finish(mut self) -> String {
        let stream = self.stream.take();
        stream.map_or_else(String::new, |stream| stream.finish().visible)
    }
}

impl<B: Backend> Iterator for TextGeneration<'_, B> {
    type Item = Result<String, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(Some(text)) if text.is_empty() => {}
                Ok(text) => return text.map(Ok),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

impl<B: Backend> Drop for TextGeneration<'_, B> {
    fn drop(&mut self) {
        self.engine.cancel(self.request);
    }
}
