//! Metrics for Prometheus: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use emberlm_generate::Counts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::model::ServedModel;
use crate::served_models::ServedModels;

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// The name without the prefix `emberlm_`, and without the suffix `_total` of counters.
    name: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    help: &'static str,
}

impl MetricInfo {
    const fn new(kind: MetricType, name: &'static str, help: &'static str) -> Self {
        let labels = &["model"];
        Self {
            name,
            kind,
            labels,
            help,
        }
    }

    /// The name as Prometheus shows it.
    pub fn full_name(&self) -> String {
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            _ => "",
        };
        format!("{PREFIX}_{}{suffix}", self.name)
    }

    /// The type: counter, gauge or histogram.
    pub fn kind(&self) -> &str {
        self.kind.as_str()
    }

    /// The names of the labels.
    pub fn labels(&self) -> &'static [&'static str] {
        self.labels
    }

    /// The description.
    pub fn help(&self) -> &'static str {
        self.help
    }
}

const PREFIX: &str = "emberlm";

const REQUESTS: MetricInfo = MetricInfo {
    labels: &["endpoint", "status"],
    ..MetricInfo::new(MetricType::Counter, "requests", "Answered requests")
};
const RUNNING: MetricInfo = MetricInfo::new(
    MetricType::Gauge,
    "running_sequences",
    "Answers being generated",
);
const PAUSED: MetricInfo = MetricInfo::new(
    MetricType::Gauge,
    "paused_sequences",
    "Answers paused until their clients read",
);
const WAITING: MetricInfo = MetricInfo::new(
    MetricType::Gauge,
    "waiting_requests",
    "Requests waiting for slots",
);
const FREE: MetricInfo = MetricInfo::new(MetricType::Gauge, "free_slots", "Unused slots");
const PROMPT_TOKENS: MetricInfo =
    MetricInfo::new(MetricType::Counter, "prompt_tokens", "Prompt tokens read");
const GENERATED_TOKENS: MetricInfo =
    MetricInfo::new(MetricType::Counter, "generated_tokens", "Tokens generated");
const REUSED_TOKENS: MetricInfo = MetricInfo::new(
    MetricType::Counter,
    "reused_tokens",
    "Prompt tokens taken from a cache",
);
const PASSES: MetricInfo =
    MetricInfo::new(MetricType::Counter, "passes", "Passes over the weights");
const DRAFTED_TOKENS: MetricInfo = MetricInfo::new(
    MetricType::Counter,
    "drafted_tokens",
    "Draft tokens verified",
);
const ACCEPTED_TOKENS: MetricInfo = MetricInfo::new(
    MetricType::Counter,
    "accepted_draft_tokens",
    "Draft tokens accepted",
);
const QUEUE: MetricInfo = MetricInfo::new(
    MetricType::Histogram,
    "queue_seconds",
    "From a request's arrival to its first slot",
);
const FIRST_TOKEN: MetricInfo = MetricInfo::new(
    MetricType::Histogram,
    "first_token_seconds",
    "From a request's arrival to its first token",
);
const TOKEN: MetricInfo = MetricInfo::new(
    MetricType::Histogram,
    "token_seconds",
    "From one token to the next",
);
const REQUEST: MetricInfo = MetricInfo::new(
    MetricType::Histogram,
    "request_seconds",
    "From a request's arrival to its end",
);

/// All metrics of a server.
pub const ALL: [MetricInfo; 15] = [
    REQUESTS,
    RUNNING,
    PAUSED,
    WAITING,
    FREE,
    PROMPT_TOKENS,
    GENERATED_TOKENS,
    REUSED_TOKENS,
    PASSES,
    DRAFTED_TOKENS,
    ACCEPTED_TOKENS,
    QUEUE,
    FIRST_TOKEN,
    TOKEN,
    REQUEST,
];

/// The metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    queue: Times,
    first_token: Times,
    token: Times,
    request: Times,
}

/// Durations in seconds, by model.
type Times = Family<ModelLabel, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    endpoint: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabel {
    model: String,
}

/// Measures the durations of one request.
#[derive(Debug)]
pub(crate) struct RequestTimer {
    begun: Instant,
    /// `None` after the request has left the queue.
    queue: Option<Histogram>,
    first_token: Histogram,
    token: Histogram,
    request: Histogram,
    any: bool,
}

impl Metrics {
    pub fn new(models: Arc<ServedModels>) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let requests = Family::default();
        registry.register(REQUESTS.name, REQUESTS.help, requests.clone());
        let mut times = |metric: MetricInfo| {
            let times = Times::new_with_constructor(|| Histogram::new(SECONDS));
            registry.register(metric.name, metric.help, times.clone());
            times
        };
        let queue = times(QUEUE);
        let first_token = times(FIRST_TOKEN);
        let token = times(TOKEN);
        let request = times(REQUEST);
        registry.register_collector(Box::new(Engines(models)));
        Self {
            registry,
            requests,
            queue,
            first_token,
            token,
            request,
        }
    }

    /// Counts a response.
    pub fn answered(&self, endpoint: &str, status: u16) {
        let endpoint = endpoint.to_owned();
        let answered = RequestLabels { endpoint, status };
        self.requests.get_or_create(&answered).inc();
    }

    /// Starts timing a request.
    pub fn timer(&self, model: &str) -> RequestTimer {
        let label = ModelLabel {
            model: model.to_owned(),
        };
        let histogram = |times: &Times| times.get_or_create(&label).clone();
        RequestTimer {
            begun: Instant::now(),
            queue: Some(histogram(&self.queue)),
            first_token: histogram(&self.first_token),
            token: histogram(&self.token),
            request: histogram(&self.request),
            any: false,
        }
    }

    /// All metrics in the text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

/// The upper bounds of the histograms' buckets, in seconds.
pub const SECONDS: [f64; 15] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

impl RequestTimer {
    /// Records that a sample received a slot.
    pub fn started(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.observe(self.begun.elapsed().as_secs_f64());
        }
    }

    /// Records a token. `last` is the time of the sample's previous token.
    pub fn token(&mut self, last: &mut Option<Instant>) {
        let now = Instant::now();
        if let Some(last) = last {
            self.token.observe(now.duration_since(*last).as_secs_f64());
        } else if !self.any {
            self.any = true;
            self.first_token
                .observe(now.duration_since(self.begun).as_secs_f64());
        }
        *last = Some(now);
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        self.request.observe(self.begun.elapsed().as_secs_f64());
    }
}

/// A metric and its value in an engine's counts.
type CountMetric<T> = (MetricInfo, fn(&Counts) -> T);

/// The first model of each engine: adapters share the engine of their base model.
fn engines(models: &[Arc<ServedModel>]) -> Vec<Arc<ServedModel>> {
    let mut first: Vec<Arc<ServedModel>> = Vec::new();
    for model in models {
        let known = first
            .iter()
            .any(|other| other.worker.shares_engine(&model.worker));
        if !known {
            first.push(Arc::clone(model));
        }
    }
    first
}

/// Metrics that are read from the engines at each scrape.
struct Engines(Arc<ServedModels>);

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engines").finish_non_exhaustive()
    }
}

impl Collector for Engines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts: Vec<_> = engines(&self.0.models())
            .iter()
            .map(|model| ([("model", model.name.clone())], model.worker.counts()))
            .collect();
        let gauges: [CountMetric<usize>; 4] = [
            (RUNNING, |c| c.running),
            (PAUSED, |c| c.paused),
            (WAITING, |c| c.waiting),
            (FREE, |c| c.free_slots),
        ];
        for (metric, value) in gauges {
            let MetricInfo {
                name, help, kind, ..
            } = metric;
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, counts) in &counts {
                let gauge = ConstGauge::new(value(counts) as i64);
                gauge.encode(family.encode_family(labels)?)?;
            }
        }
        let counters: [CountMetric<u64>; 6] = [
            (PROMPT_TOKENS, |c| c.prefilled_tokens),
            (GENERATED_TOKENS, |c| c.made_tokens),
            (REUSED_TOKENS, |c| c.reused_tokens),
            (PASSES, |c| c.passes),
            (DRAFTED_TOKENS, |c| c.drafted_tokens),
            (ACCEPTED_TOKENS, |c| c.accepted_tokens),
        ];
        for (metric, value) in counters {
            let MetricInfo {
                name, help, kind, ..
            } = metric;
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, counts) in &counts {
                let counter = ConstCounter::new(value(counts));
                counter.encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}
