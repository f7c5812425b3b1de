//! Renders templates in another process: the requests and replies.
//!
//! [`RemoteRenderer`] sends requests, [`RenderService`] answers them. The program provides the transport and
//! the limits of the other process. A template's source is sent once per process; later requests identify it by
//! its hash.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::jinja::JinjaTemplate;
use super::renderer::{OpenTemplate, RenderError, RenderJob, Renderer, TemplateText, Texts};

/// The number of compiled templates that a [`RenderService`] caches.
const MAX_TEMPLATES: usize = 8;

/// A request to the rendering process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenderRequest<'a> {
    /// The hash of the template's source and time.
    hash: [u64; 4],
    /// The template, if the process may not have it.
    template: Option<Cow<'a, TemplateText>>,
    /// The jobs. Without any, the template is only parsed.
    jobs: Cow<'a, [RenderJob]>,
}

/// The reply of the rendering process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RenderReply {
    /// The template must be sent again.
    UnknownTemplate,
    /// The template cannot be used.
    Refused(RenderError),
    /// The texts of each job, up to the first failure.
    Texts(Vec<Vec<Result<SharedText, RenderError>>>),
}

/// A text that is compressed as the prefix that it shares with the first text of its job, and the rest. Most
/// texts of a job are prefixes of the first one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedText {
    /// The length in bytes of the prefix that is shared with the first text.
    shared: usize,
    rest: String,
}

impl SharedText {
    fn new(first: Option<&str>, text: String) -> Self {
        let first = first.unwrap_or_default();
        let pairs = first.bytes().zip(text.bytes());
        let shared = text.floor_char_boundary(pairs.take_while(|(a, b)| a == b).count());
        Self {
            shared,
            rest: match shared {
                0 => text,
                _ => text[shared..].to_owned(),
            },
        }
    }

    fn text(self, first: Option<&str>) -> Result<String, RenderError> {
        if self.shared == 0 {
            return Ok(self.rest);
        }
        let shared = first.and_then(|first| first.get(..self.shared));
        let shared = shared.ok_or_else(|| RenderError::Unavailable {
            reason: "the process that renders templates sent half a text".to_owned(),
        })?;
        Ok([shared, &self.rest].concat())
    }
}

/// Compresses the texts of a job.
fn compress(texts: Texts) -> Vec<Result<SharedText, RenderError>> {
    let mut texts = texts.into_iter();
    let Some(first) = texts.next() else {
        return Vec::new();
    };
    let rest: Vec<_> = texts
        .map(|text| Ok(SharedText::new(first.as_deref().ok(), text?)))
        .collect();
    let first = first.map(|first| SharedText::new(None, first));
    [first].into_iter().chain(rest).collect()
}

/// Restores the texts of a job.
fn restore(texts: Vec<Result<SharedText, RenderError>>) -> Texts {
    let mut whole = Texts::with_capacity(texts.len());
    for text in texts {
        let first = whole.first().and_then(|first| first.as_deref().ok());
        let text = text.and_then(|text| text.text(first));
        whole.push(text);
    }
    whole
}

/// Answers render requests and caches the most recently compiled templates.
#[derive(Debug, Default)]
pub struct RenderService {
    templates: VecDeque<([u64; 4], JinjaTemplate)>,
}

impl RenderService {
    /// Answers a request.
    pub fn answer(&mut self, request: &RenderRequest<'_>) -> RenderReply {
        if !self.templates.iter().any(|(hash, _)| *hash == request.hash) {
            let Some(template) = &request.template else {
                return RenderReply::UnknownTemplate;
            };
            match JinjaTemplate::new(template) {
                Ok(template) => self.templates.push_front((request.hash, template)),
                Err(error) => return RenderReply::Refused(error),
            }
            self.templates.truncate(MAX_TEMPLATES);
        }
        let template = self
            .templates
            .iter()
            .find(|(hash, _)| *hash == request.hash);
        template.map_or(RenderReply::UnknownTemplate, |(_, template)| {
            let jobs = request.jobs.iter();
            RenderReply::Texts(jobs.map(|job| compress(template.render_job(job))).collect())
        })
    }
}

/// A function that sends a request to another process and returns its reply.
pub type SendRequest = dyn Fn(&RenderRequest<'_>) -> Result<RenderReply, RenderError> + Send + Sync;

/// A renderer in another process.
pub struct RemoteRenderer {
    send: Arc<SendRequest>,
}

impl RemoteRenderer {
    /// Creates a renderer. `send` passes requests to a process with a [`RenderService`].
    pub fn new(send: Arc<SendRequest>) -> Self {
        Self { send }
    }
}

impl Renderer for RemoteRenderer {
    fn open(&self, template: &TemplateText) -> Result<Box<dyn OpenTemplate>, RenderError> {
        let opened = RemoteTemplate {
            hash: hash(template),
            template: template.clone(),
            send: Arc::clone(&self.send),
        };
        opened.ask(&[], true)?;
        Ok(Box::new(opened))
    }
}

struct RemoteTemplate {
    hash: [u64; 4],
    template: TemplateText,
    send: Arc<SendRequest>,
}

impl RemoteTemplate {
    fn ask(&self, jobs: &[RenderJob], with_template: bool) -> Result<Vec<Texts>, RenderError> {
        let request = RenderRequest {
            hash: self.hash,
            template: with_template.then_some(Cow::Borrowed(&self.template)),
            jobs: Cow::Borrowed(jobs),
        };
        match (self.send)(&request)? {
            RenderReply::Texts(texts) => Ok(texts.into_iter().map(restore).collect()),
            RenderReply::Refused(error) => Err(error),
            RenderReply::UnknownTemplate if !with_template => self.ask(jobs, true),
            RenderReply::UnknownTemplate => Err(RenderError::Unavailable {
                reason: "the process that renders templates does not keep it".to_owned(),
            }),
        }
    }
}

impl OpenTemplate for RemoteTemplate {
    fn render(&self, jobs: &[RenderJob]) -> Result<Vec<Texts>, RenderError> {
        self.ask(jobs, false)
    }
}

fn hash(template: &TemplateText) -> [u64; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&template.now.to_le_bytes());
    hasher.update(&[template.dialect as u8]);
    hasher.update(template.source.as_bytes());
    let hash = *hasher.finalize().as_bytes();
    let (words, _) = hash.as_chunks::<8>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)))
}

impl fmt::Debug for RemoteRenderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRenderer").finish_non_exhaustive()
    }
}

impl fmt::Debug for RemoteTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTemplate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::renderer::Dialect;

    #[test]
    fn texts_round_trip() {
        let failed = || {
            Err(RenderError::Template {
                line: Some(1),
                reason: "no".to_owned(),
            })
        };
        let text = |text: &str| Ok(text.to_owned());
        for texts in [
            vec![],
            vec![failed()],
            vec![text("")],
            vec![
                text("aé漢b"),
                text("aé"),
                text("aè"),
                text("漢"),
                text(""),
                text("aé漢bc"),
                failed(),
            ],
        ] {
            assert_eq!(restore(compress(texts.clone())), texts);
        }
    }

    #[test]
    fn a_template_is_sent_once() {
        use std::sync::Mutex;

        let service = Mutex::new(RenderService::default());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&sent);
        let renderer = RemoteRenderer::new(Arc::new(move |request: &RenderRequest<'_>| {
            log.lock().unwrap().push(request.template.is_some());
            let json = serde_json::to_string(request).unwrap();
            let reply = service
                .lock()
                .unwrap()
                .answer(&serde_json::from_str(&json).unwrap());
            Ok(serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap())
        }));
        let text = TemplateText {
            source: "{{ a }}".into(),
            now: 0,
            dialect: Dialect::Chat,
        };
        let job = RenderJob {
            variables: [("a".to_owned(), minijinja::Value::from(1.5))].into(),
            texts: vec![super::super::renderer::TextRequest {
                messages: 0,
                add_generation_prompt: false,
                marks: None,
            }],
            ..RenderJob::default()
        };
        let template = renderer.open(&text).unwrap();
        for _ in 0..2 {
            let texts = template.render(std::slice::from_ref(&job)).unwrap();
            assert_eq!(texts, [vec![Ok("1.5".to_owned())]]);
        }
        assert_eq!(*sent.lock().unwrap(), [true, false, false]);
        let broken = TemplateText {
            source: "{{".into(),
            now: 0,
            dialect: Dialect::Chat,
        };
        assert!(matches!(
            renderer.open(&broken),
            Err(RenderError::Template { line: Some(1), .. })
        ));
    }
}
