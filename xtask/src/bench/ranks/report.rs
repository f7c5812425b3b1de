//! The tables of `bench ranks`.

use serde_json::{Value, json};

use super::cost::{CostModel, Exchange, Network, sent};
use crate::bench::report::{
    Column::{Number, Text},
    Report, Table,
};

const MIB: f64 = 1_048_576.0;
/// The greatest relative error of a prediction.
const TOLERANCE: f64 = 0.2;
/// The step time of a fast device, for predictions.
const FAST_STEP: f64 = 0.1;
/// The numbers of ranks of the predictions.
const RANKS: [usize; 5] = [8, 32, 128, 512, 1024];

/// Step times of a workload, in seconds.
#[derive(Debug)]
pub struct Scaling {
    pub preset: &'static str,
    pub batch: usize,
    pub seq: usize,
    pub parameters: u64,
    /// One process on all cores.
    pub one: f64,
    /// A rank on each core.
    pub ranks: f64,
    /// A rank on each core, over a link.
    pub linked: f64,
    /// A process on each core that does not exchange.
    pub apart: f64,
}

impl Scaling {
    /// The bytes of the gradients, all parameters being trained.
    fn bytes(&self) -> f64 {
        4.0 * self.parameters as f64
    }

    /// The throughput of ranks relative to one process.
    fn efficiency(&self) -> f64 {
        self.one / self.ranks
    }

    fn tokens_per_second(&self, seconds: f64) -> f64 {
        (self.batch * self.seq) as f64 / seconds
    }
}

/// Exchanges over a transport.
#[derive(Debug)]
pub struct Exchanges {
    pub name: &'static str,
    pub model: CostModel,
    /// The exchanges that the model is fitted to.
    pub fitted: Vec<Exchange>,
    /// Those that it predicts.
    pub predicted: Vec<Exchange>,
}

/// All measurements. The training runs exchanged over the first of the transports.
#[derive(Debug)]
pub struct RanksReport {
    pub ranks: usize,
    /// The bandwidth of the simulated link, in GB/s.
    pub link: f64,
    pub scaling: Vec<Scaling>,
    pub exchanges: Vec<Exchanges>,
}

/// A prediction beside its measurement.
struct Prediction {
    what: String,
    predicted: f64,
    measured: f64,
}

impl Prediction {
    fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

impl RanksReport {
    fn predictions(&self) -> Vec<Prediction> {
        let mut found = Vec::new();
        for Exchanges {
            name,
            model,
            predicted,
            ..
        } in &self.exchanges
        {
            found.extend(predicted.iter().map(|it| Prediction {
                what: format!("exchange of {} MiB, {name}", it.bytes / MIB),
                predicted: model.seconds(it.ranks, it.bytes),
                measured: it.seconds,
            }));
        }
        let Some(transport) = self.exchanges.first() else {
            return found;
        };
        found.extend(self.scaling.iter().map(|it| Prediction {
            what: format!("step of `{}`, {} × {}", it.preset, it.batch, it.seq),
            predicted: it.apart + transport.model.seconds(self.ranks, it.bytes()),
            measured: it.ranks,
        }));
        found
    }

    fn scaling_table(&self) -> Table {
        let mut table = Table::new([
            Text("model"),
            Number("one process, tokens/s"),
            Number("2 ranks, tokens/s"),
            Number("2 ranks / one process"),
            Number("without exchange, tokens/s"),
        ]);
        for it in &self.scaling {
            table.row([
                format!("`{}`, {} × {}", it.preset, it.batch, it.seq),
                format!("{:.0}", it.tokens_per_second(it.one)),
                format!("{:.0}", it.tokens_per_second(it.ranks)),
                format!("{:.2}", it.efficiency()),
                format!("{:.0}", it.tokens_per_second(it.apart)),
            ]);
        }
        table
    }

    /// The time of the step's bytes on the simulated link, in seconds.
    fn on_link(&self, of: &Scaling) -> f64 {
        sent(self.ranks, of.bytes()) / (self.link * 1e9)
    }

    /// The share of the time on the link during which ranks compute.
    fn hidden(&self, of: &Scaling) -> f64 {
        1.0 - (of.linked - of.ranks) / self.on_link(of)
    }

    fn link_table(&self) -> Table {
        let mut table = Table::new([
            Text("model"),
            Number("step in shared memory, s"),
            Number("step over the link, s"),
            Number("its bytes on the link, s"),
            Number("of which during computation"),
        ]);
        for it in &self.scaling {
            table.row([
                format!("`{}`, {} × {}", it.preset, it.batch, it.seq),
                format!("{:.2}", it.ranks),
                format!("{:.2}", it.linked),
                format!("{:.2}", self.on_link(it)),
                format!("{:.0}%", 100.0 * self.hidden(it)),
            ]);
        }
        table
    }

    fn exchange_table(&self) -> Table {
        let mut table = Table::new([
            Text("gradients"),
            Number("sent by a rank"),
            Number("shared memory, ms"),
            Number("TCP loopback, ms"),
        ]);
        let sizes = |exchanges: &Exchanges| -> Vec<Exchange> {
            let all = exchanges.fitted.iter().chain(&exchanges.predicted);
            let mut all: Vec<_> = all.copied().collect();
            all.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));
            all
        };
        let all: Vec<Vec<Exchange>> = self.exchanges.iter().map(sizes).collect();
        for (at, exchange) in all.first().into_iter().flatten().enumerate() {
            let times = all.iter().filter_map(|of| of.get(at));
            let times = times.map(|it| format!("{:.2}", it.seconds * 1e3));
            let bytes = [exchange.bytes, sent(exchange.ranks, exchange.bytes)];
            let bytes = bytes.map(|bytes| format!("{:.0} MiB", bytes / MIB));
            table.row(bytes.into_iter().chain(times));
        }
        table
    }

    fn model_table(&self) -> Table {
        let mut table = Table::new([
            Text("transport"),
            Number("α, µs per message"),
            Number("1 / β, GB/s"),
            Number("1 / γ, GB/s"),
        ]);
        for it in &self.exchanges {
            table.row([
                it.name.to_owned(),
                format!("{:.1}", it.model.latency * 1e6),
                format!("{:.2}", 1e-9 / it.model.per_byte),
                format!("{:.2}", 1e-9 / it.model.on_host),
            ]);
        }
        table
    }

    fn prediction_table(&self) -> Table {
        let mut table = Table::new([
            Text("not fitted"),
            Number("predicted, ms"),
            Number("measured, ms"),
            Number("error"),
        ]);
        for it in self.predictions() {
            table.row([
                it.what.clone(),
                format!("{:.2}", it.predicted * 1e3),
                format!("{:.2}", it.measured * 1e3),
                format!("{:+.0}%", it.error() * 100.0),
            ]);
        }
        table
    }

    /// The predicted share of a step that is not exchange, by model, device and network.
    fn network_table(&self) -> Table {
        let mut columns = vec![
            Text("model"),
            Text("network"),
            Number("step without exchange"),
        ];
        columns.extend(RANKS.map(|ranks| {
            Number(match ranks {
                8 => "8 ranks",
                32 => "32",
                128 => "128",
                512 => "512",
                _ => "1,024",
            })
        }));
        let mut table = Table::new(columns);
        let Some(transport) = self.exchanges.first() else {
            return table;
        };
        for it in &self.scaling {
            for compute in [it.apart, FAST_STEP] {
                for network in &Network::ALL {
                    let model = transport.model.on(network);
                    let shares = RANKS.map(|ranks| {
                        let exchange = model.seconds(ranks, it.bytes());
                        format!("{:.0}%", 100.0 * compute / (compute + exchange))
                    });
                    let first = [
                        format!("`{}`", it.preset),
                        network.name.to_owned(),
                        format!("{compute:.2} s"),
                    ];
                    table.row(first.into_iter().chain(shares));
                }
            }
        }
        table
    }
}

impl Report for RanksReport {
    fn to_json(&self) -> Value {
        let scaling = self.scaling.iter().map(|it| {
            json!({
                "preset": it.preset,
                "batch": it.batch,
                "seq": it.seq,
                "parameters": it.parameters,
                "one": it.one,
                "ranks": it.ranks,
                "linked": it.linked,
                "apart": it.apart,
                "efficiency": it.efficiency(),
            })
        });
        let exchanges = self.exchanges.iter().map(|it| {
            let all = it.fitted.iter().chain(&it.predicted);
            let all = all.map(
                |it| json!({"bytes": it.bytes, "seconds": it.seconds, "transfer": it.transfer}),
            );
            json!({
                "transport": it.name,
                "latency": it.model.latency,
                "per_byte": it.model.per_byte,
                "on_host": it.model.on_host,
                "exchanges": all.collect::<Vec<_>>(),
            })
        });
        let predictions = self.predictions().into_iter().map(|it| {
            json!({
                "what": it.what,
                "predicted": it.predicted,
                "measured": it.measured,
                "error": it.error(),
            })
        });
        json!({
            "ranks": self.ranks,
            "scaling": scaling.collect::<Vec<_>>(),
            "exchanges": exchanges.collect::<Vec<_>>(),
            "predictions": predictions.collect::<Vec<_>>(),
        })
    }

    fn to_text(&self) -> String {
        let errors = self.predictions().into_iter().map(|it| it.error().abs());
        let worst = errors.fold(0.0, f64::max);
        let verdict = match worst <= TOLERANCE {
            true => "within",
            false => "NOT within",
        };
        let networks = Network::ALL.map(|it| {
            let (latency, gb) = (it.latency * 1e6, it.bytes_per_second * 1e-9);
            format!("{}: {latency:.0} µs and {gb} GB/s", it.name)
        });
        format!(
            "## Two ranks on two cores\n\n{}\n## A link of {} GB/s\n\n{}\n## The exchange\n\n{}\n## The cost model\n\n{}\n{}\n\
            All predictions are {verdict} {:.0}% of the measurement; the greatest error is {:.0}%.\n\n\
            ## Predicted share of a step that is not exchange\n\n{}\n\
            Assumptions: {}; {:.0}% of the bandwidth; full bisection bandwidth; one rank per host; a rank computes the same \
            batch on any number of ranks; copies and sums as fast as here; no overlap of exchange and computation; no \
            stragglers. A step of {FAST_STEP:.2} s stands for a fast device.\n",
            self.scaling_table().to_markdown(),
            self.link,
            self.link_table().to_markdown(),
            self.exchange_table().to_markdown(),
            self.model_table().to_markdown(),
            self.prediction_table().to_markdown(),
            TOLERANCE * 100.0,
            worst * 100.0,
            self.network_table().to_markdown(),
            networks.join(", "),
            Network::EFFICIENCY * 100.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_compared_with_measurements() {
        let model = CostModel {
            bucket: 16.0 * MIB,
            latency: 0.0,
            per_byte: 1e-9,
            on_host: 1e-9,
        };
        let exchange = |seconds| Exchange {
            ranks: 2,
            bytes: 1e6,
            seconds,
            transfer: seconds / 2.0,
        };
        let report = RanksReport {
            ranks: 2,
            link: 1.25,
            scaling: vec![Scaling {
                preset: "pocket",
                batch: 12,
                seq: 256,
                parameters: 50_000_000,
                one: 3.0,
                ranks: 3.2,
                linked: 3.24,
                apart: 2.8,
            }],
            exchanges: vec![Exchanges {
                name: "shared memory",
                model,
                fitted: vec![exchange(2e-3)],
                predicted: vec![exchange(2.5e-3)],
            }],
        };
        let found = report.predictions();
        // 1 MB sent and 1 MB copied; then 200 MB of both, beside 2.8 s.
        assert!((found[0].predicted - 2e-3).abs() < 1e-12);
        assert!((found[1].predicted - 3.2).abs() < 1e-12);
        let text = report.to_text();
        assert!(
            text.contains("| `pocket`, 12 × 256 | 1024 | 960 | 0.94 | 1097 |"),
            "{text}"
        );
        // 200 MB take 0.16 s on the link, and the step 0.04 s more.
        assert!(
            text.contains("| `pocket`, 12 × 256 | 3.20 | 3.24 | 0.16 | 75% |"),
            "{text}"
        );
        assert!(text.contains("All predictions are within 20%"), "{text}");
        assert!(text.contains("InfiniBand NDR 400"), "{text}");
    }
}
