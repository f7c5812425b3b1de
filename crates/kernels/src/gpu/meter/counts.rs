//! The counters of the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl_runtime::id::KernelId;
use serde::Serialize;

/// The work that a GPU was given.
///
/// Bytes are those of the tensors that a kernel binds, each counted once for each launch, as if it was read or written as a
/// whole. A buffer that a kernel may write counts as written. A kernel that reads a part of a tensor, or reads it again from
/// memory, moves less or more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Kernel launches.
    pub launches: u64,
    /// The times that the host waited for the device: reads of values, and explicit synchronizations.
    pub synchronizations: u64,
    /// Copies from the host.
    pub uploads: u64,
    /// Bytes that kernels read.
    pub bytes_read: u64,
    /// Bytes that kernels wrote.
    pub bytes_written: u64,
    /// Matrix products by shape and type, the one with the most operations first.
    pub products: Vec<ProductCosts>,
    /// Kernels by name, the one with the most launches first.
    pub kernels: Vec<KernelCosts>,
}

/// The launches of a kernel. Variants of a kernel that differ in types or sizes have the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelCosts {
    /// The kernel's name in its source.
    pub name: String,
    /// Its launches.
    pub launches: u64,
    /// Bytes read by all of them.
    pub bytes_read: u64,
    /// Bytes written by all of them.
    pub bytes_written: u64,
}

/// Matrix products `[matrices, m, k] × [matrices, k, n]` of the same shape and type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ProductCosts {
    /// Independent products.
    pub matrices: usize,
    /// Rows of the left operand.
    pub m: usize,
    /// Columns of the right operand.
    pub n: usize,
    /// The common dimension.
    pub k: usize,
    /// The element type of the operands.
    pub operands: &'static str,
    /// The element type of the result.
    pub result: &'static str,
    /// The number of occurrences.
    pub count: u64,
}

impl ProductCosts {
    /// The floating-point operations of all occurrences.
    pub fn flops(&self) -> u64 {
        2 * (self.matrices * self.m * self.n * self.k) as u64 * self.count
    }
}

/// The buffers of a compiled kernel: true for one that it may write.
type Writes = Vec<bool>;

#[derive(Default)]
struct Meter {
    /// The counters between start and stop.
    running: Option<Running>,
    writes: HashMap<KernelId, Writes>,
}

#[derive(Default)]
struct Running {
    costs: Costs,
    kernels: BTreeMap<&'static str, KernelCosts>,
    products: BTreeMap<ProductCosts, u64>,
}

static METER: Mutex<Option<Meter>> = Mutex::new(None);

/// True between start and stop. Products of other runs do not take the lock.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

fn meter() -> MutexGuard<'static, Option<Meter>> {
    // The counters are numbers: no panic leaves them in a state that cannot be used.
    METER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` and returns what it cost. `settle` waits for the device, which must be one of a metered runtime; it is called
/// before, and after to complete the work, and is not counted. One measurement at a time: calls from other threads are
/// counted as well.
pub fn measure<T>(settle: impl Fn(), work: impl FnOnce() -> T) -> (T, Costs) {
    settle();
    meter().get_or_insert_default().running = Some(Running::default());
    IS_RUNNING.store(true, Ordering::Relaxed);
    let result = work();
    let waited = with_running(|running| running.costs.synchronizations);
    settle();
    IS_RUNNING.store(false, Ordering::Relaxed);
    let running = meter().as_mut().and_then(|meter| meter.running.take());
    let Running {
        mut costs,
        kernels,
        products,
    } = running.unwrap_or_default();
    costs.synchronizations = waited.unwrap_or_default();
    costs.kernels = kernels.into_values().collect();
    costs
        .kernels
        .sort_by_key(|kernel| std::cmp::Reverse(kernel.launches));
    let products = products
        .into_iter()
        .map(|(product, count)| ProductCosts { count, ..product });
    costs.products = products.collect();
    costs
        .products
        .sort_by_key(|product| std::cmp::Reverse(product.flops()));
    (result, costs)
}

fn with_running<T>(f: impl FnOnce(&mut Running) -> T) -> Option<T> {
    meter().as_mut()?.running.as_mut().map(f)
}

/// Remembers which buffers the kernel with this identifier writes.
pub(super) fn record_compilation(id: KernelId, writes: Writes) {
    meter().get_or_insert_default().writes.insert(id, writes);
}

/// Counts a launch of the kernel with this identifier and name over buffers of `sizes` bytes.
pub(super) fn record_launch(id: &KernelId, name: &'static str, sizes: &[u64]) {
    let mut meter = meter();
    let Some(Meter {
        running: Some(running),
        writes,
    }) = meter.as_mut()
    else {
        return;
    };
    // The last buffer of a kernel that a cache on disk has compiled before is taken for its output.
    let written = |at: usize| match writes.get(id) {
        Some(writes) => writes.get(at).copied().unwrap_or(false),
        None => at + 1 == sizes.len(),
    };
    let sum = |is_written: bool| -> u64 {
        let sizes = sizes.iter().enumerate();
        sizes
            .filter(|&(at, _)| written(at) == is_written)
            .map(|(_, size)| size)
            .sum()
    };
    let (read, write) = (sum(false), sum(true));
    let kernel = running.kernels.entry(name).or_insert_with(|| KernelCosts {
        name: short(name),
        ..KernelCosts::default()
    });
    kernel.launches += 1;
    kernel.bytes_read += read;
    kernel.bytes_written += write;
    running.costs.launches += 1;
    running.costs.bytes_read += read;
    running.costs.bytes_written += write;
}

/// The name of a kernel's type without its path and parameters.
fn short(name: &str) -> String {
    let name = name.split('<').next().unwrap_or(name);
    let mut parts = name.rsplit("::");
    parts.next().unwrap_or(name).to_owned()
}

/// Counts one wait of the host for the device.
pub(super) fn record_synchronization() {
    with_running(|running| running.costs.synchronizations += 1);
}

/// Counts copies from the host.
pub(super) fn record_uploads(count: usize) {
    with_running(|running| running.costs.uploads += count as u64);
}

/// Counts a product, of which `output` is the result.
pub fn record_product<R: CubeRuntime>(a: &CubeTensor<R>, output: &CubeTensor<R>) {
    if !IS_RUNNING.load(Ordering::Relaxed) {
        return;
    }
    with_running(|running| {
        let shape = output.meta.shape();
        let dims = shape.num_dims();
        let rows = dims.saturating_sub(2);
        let product = ProductCosts {
            matrices: (0..rows).map(|dim| shape[dim]).product(),
            m: shape[rows],
            n: shape[dims - 1],
            k: a.meta.shape()[dims - 1],
            operands: a.dtype.name(),
            result: output.dtype.name(),
            count: 0,
        };
        *running.products.entry(product).or_default() += 1;
    });
}
