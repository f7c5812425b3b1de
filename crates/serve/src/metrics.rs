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
    pub fn new(models: &[Arc<ServedModel>]) -> Self {
        let mut registry = Registry::with_prefix("emberlm");
        let requests = Family::default();
        registry.register("requests", "Requests that were answered", requests.clone());
        let mut times = |name: &str, help: &str| {
            let times = Times::new_with_constructor(|| Histogram::new(SECONDS));
            registry.register(name, help, times.clone());
            times
        };
        let queue = times(
            "queue_seconds",
            "From a request's arrival to its first slot",
        );
        let first_token = times(
            "first_token_seconds",
            "From a request's arrival to its first token",
        );
        let token = times("token_seconds", "From a token to the next one");
        let request = times("request_seconds", "From a request's arrival to its end");
        registry.register_collector(Box::new(Engines(models.to_vec())));
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

/// Histogram buckets, from a millisecond to a minute.
const SECONDS: [f64; 15] = [
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

/// The name, help text and value of a metric.
type CountMetric<T> = (&'static str, &'static str, fn(&Counts) -> T);

/// Metrics that are read from the engines at each scrape.
struct Engines(Vec<Arc<ServedModel>>);

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|model| &model.name))
            .finish()
    }
}

impl Collector for Engines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts: Vec<_> = self
            .0
            .iter()
            .map(|model| ([("model", model.name.clone())], model.worker.counts()))
            .collect();
        let gauges: [CountMetric<usize>; 4] = [
            ("running_sequences", "Answers that are being made", |c| {
                c.running
            }),
            (
                "paused_sequences",
                "Answers that wait for their clients to read",
                |c| c.paused,
            ),
            ("waiting_requests", "Requests that wait for slots", |c| {
                c.waiting
            }),
            ("free_slots", "Slots that no answer has", |c| c.free_slots),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, counts) in &counts {
                let gauge = ConstGauge::new(value(counts) as i64);
                gauge.encode(family.encode_family(labels)?)?;
            }
        }
        let counters: [CountMetric<u64>; 4] = [
            ("prompt_tokens", "Tokens of prompts that were read", |c| {
                c.prefilled_tokens
            }),
            ("generated_tokens", "Tokens that were made", |c| {
                c.made_tokens
            }),
            (
                "reused_tokens",
                "Tokens of prompts that a cache held",
                |c| c.reused_tokens,
            ),
            ("passes", "Passes over the weights", |c| c.passes),
        ];
        for (name, help, value) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, counts) in &counts {
                let counter = ConstCounter::new(value(counts));
                counter.encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}
