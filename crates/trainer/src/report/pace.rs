//! The throughput of a run.

use std::time::Instant;

use burn::tensor::Device;
use emberlm_kernels::{Backend, DeviceMemory, Precision};

use crate::{memory, peak};

/// Training time before the machine's matrix product is measured, so that a run of seconds does not pay for it.
const MEASURE_AFTER: f64 = 10.0;

/// The most measurements of the matrix product.
const MEASUREMENTS: usize = 3;

/// Counts tokens since the last line of the log and since the process began.
#[derive(Debug)]
pub(crate) struct Pace {
    /// A step and its time: at first the last step before the process began, then the step of the first line of the
    /// log, because the first steps take longer.
    since: (usize, Instant),
    lines: usize,
    tokens: usize,
    seconds: f64,
    /// Seconds in all steps of this process.
    trained: f64,
    /// Floating-point operations of a token, forward and backward.
    flops_per_token: f64,
    /// The precision of matrix products.
    precision: Precision,
    /// Floating-point operations per second of the matrix product, once measured.
    peak: Option<f64>,
    /// Measurements that are left for a product that was slower than the run, because the machine was busy.
    measurements: usize,
}

/// The pace at a line of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) tokens_per_second: f64,
    /// The model's operations per second as a fraction of the measured matrix product's.
    pub(crate) utilization: Option<f64>,
    pub(crate) memory_mib: Option<u64>,
    /// Memory of the device.
    pub(crate) device: Option<DeviceMemory>,
    pub(crate) seconds_left: f64,
}

impl Pace {
    pub(crate) fn new(from: usize, flops_per_token: usize, precision: Precision) -> Self {
        Self {
            since: (from, Instant::now()),
            lines: 0,
            tokens: 0,
            seconds: 0.0,
            trained: 0.0,
            flops_per_token: flops_per_token as f64,
            precision,
            peak: None,
            measurements: MEASUREMENTS,
        }
    }

    /// Records the beginning of the first step.
    pub(crate) fn begin(&mut self) {
        self.since.1 = Instant::now();
    }

    /// Adds completed steps: one, or, if the device works asynchronously, all since the last synchronization.
    pub(crate) fn add(&mut self, tokens: usize, seconds: f64) {
        self.tokens += tokens;
        self.seconds += seconds;
        self.trained += seconds;
    }

    /// The pace since the last line, for a run that has made `step` of `steps`.
    pub(crate) fn line<B: Backend>(
        &mut self,
        step: usize,
        steps: usize,
        device: &Device<B>,
    ) -> Measured {
        let tokens_per_second = self.tokens as f64 / self.seconds.max(f64::EPSILON);
        (self.tokens, self.seconds) = (0, 0.0);
        let flops = tokens_per_second * self.flops_per_token;
        let is_due = self.trained > MEASURE_AFTER && self.peak.is_none_or(|peak| flops > peak);
        if is_due && self.measurements > 0 {
            self.measurements -= 1;
            let measured = peak::matrix_product::<B>(self.precision, device);
            self.peak = Some(self.peak.map_or(measured, |peak| peak.max(measured)));
        }
        // Includes evaluations and samples.
        let (from, begun) = self.since;
        let per_step = begun.elapsed().as_secs_f64() / (step - from).max(1) as f64;
        if self.lines == 0 {
            self.since = (step, Instant::now());
        }
        self.lines += 1;
        Measured {
            tokens_per_second,
            utilization: self.peak.map(|peak| flops / peak),
            memory_mib: memory::resident().map(|bytes| bytes >> 20),
            device: B::memory(device),
            seconds_left: (steps - step) as f64 * per_step,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use burn_flex::Flex;

    use super::*;

    #[test]
    fn utilization_is_the_share_of_the_measured_product() {
        let mut pace = Pace::new(0, 1000, Precision::F32);
        // The product was measured while the machine was busy.
        (pace.peak, pace.measurements) = (Some(500_000.0), 0);
        let mut utilization = |tokens| {
            pace.add(tokens, 1.0);
            let line = pace.line::<Flex>(1, 10, &Default::default());
            line.utilization.unwrap()
        };
        assert_eq!(utilization(250), 0.5);
        assert_eq!(utilization(1000), 2.0);
        assert_eq!(utilization(250), 0.5);
    }

    #[test]
    fn the_first_step_does_not_count_toward_throughput() {
        let mut pace = Pace::new(0, 1000, Precision::F32);
        pace.since.1 -= Duration::from_secs(3600);
        pace.begin();
        let mut left = |step| {
            pace.add(1, 1.0);
            let line = pace.line::<Flex>(step, 100, &Default::default());
            line.seconds_left
        };
        std::thread::sleep(Duration::from_millis(300));
        let first = left(1);
        assert!((29.0..1000.0).contains(&first), "{first}");
        assert!(left(2) < first / 3.0);
    }
}
