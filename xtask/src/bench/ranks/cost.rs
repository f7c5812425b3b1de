//! The cost of an exchange of gradients.
//!
//! ```text
//! seconds = α · 2 (N − 1) · buckets  +  β · 2 (N − 1) / N · bytes  +  γ · bytes
//!           latency of messages          bytes sent by a rank         copies and sums in memory
//! ```

/// A measured exchange.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    pub ranks: usize,
    /// The bytes of all gradients.
    pub bytes: f64,
    pub seconds: f64,
    /// The seconds of the transport.
    pub transfer: f64,
}

/// The parameters of the cost model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// The bytes that are exchanged at once.
    pub bucket: f64,
    /// Seconds per message: α.
    pub latency: f64,
    /// Seconds per sent byte: β.
    pub per_byte: f64,
    /// Seconds per byte of the gradients for copies and sums on the host: γ.
    pub on_host: f64,
}

impl CostModel {
    /// Fits the model by least squares of the relative errors. Parameters are not negative.
    ///
    /// With one number of ranks and whole buckets, messages and bytes are proportional, and α cannot be distinguished from
    /// β. All of the transfer is then attributed to the bytes.
    pub fn fit(bucket: f64, measured: &[Exchange]) -> Self {
        let on_host = measured
            .iter()
            .map(|it| (it.seconds - it.transfer) / it.bytes);
        let on_host = on_host.sum::<f64>() / measured.len() as f64;
        // The relative errors are a · α + b · β − 1.
        let terms = |it: &Exchange| {
            let a = messages(it.ranks, it.bytes, bucket) / it.transfer;
            (a, sent(it.ranks, it.bytes) / it.transfer)
        };
        let sum = |of: fn((f64, f64)) -> f64| -> f64 { measured.iter().map(terms).map(of).sum() };
        let (aa, ab, bb) = (
            sum(|(a, _)| a * a),
            sum(|(a, b)| a * b),
            sum(|(_, b)| b * b),
        );
        let (a, b) = (sum(|(a, _)| a), sum(|(_, b)| b));
        let determinant = aa * bb - ab * ab;
        let both = (
            (a * bb - b * ab) / determinant,
            (b * aa - a * ab) / determinant,
        );
        let (latency, per_byte) = match both {
            _ if determinant <= 1e-9 * aa * bb => (0.0, b / bb),
            (latency, per_byte) if latency >= 0.0 && per_byte >= 0.0 => both,
            (latency, _) if latency < 0.0 => (0.0, b / bb),
            _ => (a / aa, 0.0),
        };
        Self {
            bucket,
            latency,
            per_byte,
            on_host,
        }
    }

    /// The predicted seconds of an exchange of `bytes` between `ranks`.
    pub fn seconds(&self, ranks: usize, bytes: f64) -> f64 {
        self.latency * messages(ranks, bytes, self.bucket)
            + self.per_byte * sent(ranks, bytes)
            + self.on_host * bytes
    }

    /// The model with another network.
    pub fn on(self, network: &Network) -> Self {
        Self {
            latency: network.latency,
            per_byte: 1.0 / (network.bytes_per_second * Network::EFFICIENCY),
            ..self
        }
    }
}

/// The messages that a rank sends: one to each other rank in both halves of the exchange of a bucket.
fn messages(ranks: usize, bytes: f64, bucket: f64) -> f64 {
    2.0 * (ranks - 1) as f64 * (bytes / bucket).ceil()
}

/// The bytes that a rank sends.
pub fn sent(ranks: usize, bytes: f64) -> f64 {
    2.0 * (ranks - 1) as f64 / ranks as f64 * bytes
}

/// A network between hosts of one rank each.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    pub name: &'static str,
    /// Seconds per message.
    pub latency: f64,
    /// The bandwidth of a link in each direction.
    pub bytes_per_second: f64,
}

impl Network {
    /// The assumed share of the bandwidth that large messages reach.
    pub const EFFICIENCY: f64 = 0.9;

    /// The networks of the predictions. Latencies are assumptions: typical values of MPI between two hosts.
    pub const ALL: [Self; 3] = [
        Self {
            name: "10 GbE",
            latency: 30e-6,
            bytes_per_second: 1.25e9,
        },
        Self {
            name: "100 GbE",
            latency: 10e-6,
            bytes_per_second: 12.5e9,
        },
        Self {
            name: "InfiniBand NDR 400",
            latency: 2e-6,
            bytes_per_second: 50e9,
        },
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} {b}");
    }

    #[test]
    fn the_parameters_of_exact_measurements_are_found() {
        let truth = CostModel {
            bucket: 16.0 * MIB,
            latency: 20e-6,
            per_byte: 2e-10,
            on_host: 5e-10,
        };
        let exchange = |(ranks, mib): (usize, f64)| {
            let bytes = mib * MIB;
            let seconds = truth.seconds(ranks, bytes);
            Exchange {
                ranks,
                bytes,
                seconds,
                transfer: seconds - truth.on_host * bytes,
            }
        };
        let measured = [(2, 1.0), (2, 16.0), (2, 100.0), (4, 7.0)].map(exchange);
        let found = CostModel::fit(truth.bucket, &measured);
        close(found.latency, truth.latency);
        close(found.per_byte, truth.per_byte);
        close(found.on_host, truth.on_host);
    }

    #[test]
    fn no_parameter_is_negative() {
        let exchange = |(mib, seconds): (f64, f64)| Exchange {
            ranks: 2,
            bytes: mib * MIB,
            seconds,
            transfer: seconds,
        };
        // Large exchanges are slower per byte than small ones.
        let measured = [(1.0, 1e-4), (16.0, 1e-2), (256.0, 0.5)].map(exchange);
        let found = CostModel::fit(16.0 * MIB, &measured);
        assert_eq!((found.latency, found.on_host), (0.0, 0.0));
        assert!(found.per_byte > 0.0);
    }

    #[test]
    fn whole_buckets_are_attributed_to_the_bytes() {
        let exchange = |mib: f64| Exchange {
            ranks: 2,
            bytes: mib * MIB,
            seconds: mib * 2e-3,
            transfer: mib * 1e-3,
        };
        let found = CostModel::fit(16.0 * MIB, &[16.0, 64.0, 256.0].map(exchange));
        assert_eq!(found.latency, 0.0);
        close(found.seconds(2, 128.0 * MIB), 0.256);
    }

    #[test]
    fn a_rank_sends_almost_twice_the_gradients() {
        assert_eq!(sent(1, 100.0), 0.0);
        assert_eq!(sent(2, 100.0), 100.0);
        assert_eq!(sent(4, 100.0), 150.0);
        // Two messages to each of three ranks for each of two buckets.
        assert_eq!(messages(4, 20.0, 16.0), 12.0);
    }
}
