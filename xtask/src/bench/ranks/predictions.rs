//! The cost model beside the measurements that it was not fitted to, and on other networks.

use emberlm_system::measure::{Comparison, Metric, Ratio, Record, Sample, Unit};

use super::{
    LINK, RANKS, Transport,
    cost::{CostModel, Network, sent},
};

/// The greatest relative error of a prediction.
const TOLERANCE: f64 = 0.2;
/// The step time of a fast device, for predictions.
const FAST_STEP: f64 = 0.1;
/// The numbers of ranks of the predictions.
const HOSTS: [usize; 5] = [8, 32, 128, 512, 1024];

/// Step times of a workload on ranks, in seconds.
#[derive(Debug, Clone)]
pub struct Step {
    pub name: String,
    /// The bytes of the gradients, all parameters being trained.
    pub bytes: f64,
    /// A rank on each core.
    pub ranks: f64,
    /// A rank on each core, over a link.
    pub linked: f64,
    /// A process on each core that does not exchange.
    pub apart: f64,
}

/// Adds the link's overlap, the predictions and their errors to the record. The steps exchanged over the first of the
/// transports.
pub fn add(record: &mut Record, transports: &[Transport], steps: &[Step]) {
    for transport in transports {
        let CostModel {
            latency,
            per_byte,
            on_host,
            ..
        } = transport.model;
        record.notes.push(format!(
            "{}: α {:.1} µs per message, 1 / β {:.2} GB/s, 1 / γ {:.2} GB/s",
            transport.name,
            latency * 1e6,
            1e-9 / per_byte,
            1e-9 / on_host
        ));
    }
    for step in steps {
        // The time of the step's bytes on the simulated link.
        let on_link = sent(RANKS, step.bytes) / (LINK * 1e9);
        let hidden = 100.0 * (1.0 - (step.linked - step.ranks) / on_link);
        record.notes.push(format!(
            "{}: {on_link:.2} s on a link of {LINK} GB/s, of which {hidden:.0}% during computation",
            step.name
        ));
    }
    let Some(first) = transports.first() else {
        return;
    };
    let compared = predictions(transports, first, steps);
    let errors = compared.iter().filter_map(|made| {
        let ratio = made.ratio_of(made.programs.last()?, "s")?;
        Some((ratio - 1.0).abs())
    });
    let worst = errors.fold(0.0, f64::max);
    let verdict = match worst <= TOLERANCE {
        true => "within",
        false => "NOT within",
    };
    record.notes.push(format!(
        "all predictions are {verdict} {:.0}% of the measurement; the greatest error is {:.0}%",
        100.0 * TOLERANCE,
        100.0 * worst
    ));
    record.comparisons.extend(compared);
    record.comparisons.extend(networks(first, steps));
    record.notes.push(assumptions());
}

fn predictions(transports: &[Transport], first: &Transport, steps: &[Step]) -> Vec<Comparison> {
    let compared = |workload: String, predicted: f64, measured: f64| {
        let mut made = Comparison::new(workload, Ratio::FirstToOther);
        for (name, seconds) in [("predicted", predicted), ("measured", measured)] {
            let values = vec![(Metric::new("", Unit::Seconds), seconds)];
            let version = None;
            made.add(name, Sample { version, values });
        }
        made
    };
    let exchanges = transports.iter().flat_map(|transport| {
        transport.predicted.iter().map(move |it| {
            let size = Unit::Bytes.shown(it.bytes);
            let workload = format!("exchange of {size}, {}", transport.name);
            let seconds = transport.model.seconds(it.ranks, it.bytes);
            compared(workload, seconds, it.seconds)
        })
    });
    let steps = steps.iter().map(|it| {
        let seconds = it.apart + first.model.seconds(RANKS, it.bytes);
        compared(format!("step of {}", it.name), seconds, it.ranks)
    });
    exchanges.chain(steps).collect()
}

/// The predicted share of a step that is not exchange, by model, device and network.
fn networks(transport: &Transport, steps: &[Step]) -> Vec<Comparison> {
    let mut all = Vec::new();
    for step in steps {
        for compute in [step.apart, FAST_STEP] {
            let workload = format!("{}, {compute:.2} s without exchange", step.name);
            let mut made = Comparison::new(workload, Ratio::OtherToFirst);
            for network in &Network::ALL {
                let model = transport.model.on(network);
                let share = |ranks| {
                    let exchange = model.seconds(ranks, step.bytes);
                    let share = 100.0 * compute / (compute + exchange);
                    (Metric::new(format!("{ranks} ranks"), Unit::Percent), share)
                };
                let values = HOSTS.map(share).into();
                let version = None;
                made.add(network.name, Sample { version, values });
            }
            all.push(made);
        }
    }
    all
}

fn assumptions() -> String {
    let networks = Network::ALL.map(|it| {
        let (latency, gb) = (it.latency * 1e6, it.bytes_per_second * 1e-9);
        format!("{}: {latency:.0} µs and {gb} GB/s", it.name)
    });
    format!(
        "Assumptions of the shares: {}; {:.0}% of the bandwidth; full bisection bandwidth; one rank per host; a rank \
         computes the same batch on any number of ranks; copies and sums as fast as here; no overlap of exchange and \
         computation; no stragglers. A step of {FAST_STEP:.2} s stands for a fast device.",
        networks.join(", "),
        Network::EFFICIENCY * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::{super::cost::Exchange, *};

    #[test]
    fn predictions_are_compared_with_measurements() {
        let transport = Transport {
            name: "shared memory",
            model: CostModel {
                bucket: 16.0 * f64::from(1 << 20),
                latency: 0.0,
                per_byte: 1e-9,
                on_host: 1e-9,
            },
            predicted: vec![Exchange {
                ranks: 2,
                bytes: 1e6,
                seconds: 2.5e-3,
                transfer: 1e-3,
            }],
        };
        let step = Step {
            name: "pocket".to_owned(),
            bytes: 200e6,
            ranks: 3.2,
            linked: 3.24,
            apart: 2.8,
        };
        let mut record = Record::new("bench ranks", "abc");
        add(&mut record, &[transport], &[step]);
        // 1 MB sent and 1 MB copied; then 200 MB of both, beside 2.8 s.
        let predicted = |at: usize| record.comparisons[at].programs[0].figures[0].values[0];
        assert!((predicted(0) - 2e-3).abs() < 1e-12);
        assert!((predicted(1) - 3.2).abs() < 1e-12);
        let text = record.to_markdown();
        // 200 MB take 0.16 s on the link, and the step 0.04 s more.
        let overlap = "pocket: 0.16 s on a link of 1.25 GB/s, of which 75% during computation";
        assert!(text.contains(overlap), "{text}");
        assert!(text.contains("all predictions are within 20%"), "{text}");
        assert!(text.contains("| InfiniBand NDR 400 |"), "{text}");
    }
}
