//! Kernel selection. A benchmark picks the fastest kernel for each [`Key`] and the choice is cached. Software
//! devices use the first kernel that supports the shapes.

use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::ir::features::Plane;
use burn_cubecl::cubecl::tune::{LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, CubeTuneId};
use cubek::matmul::launch::Strategy;

use super::kernels::{Kernel, KernelClass, all, launch, launch_cubek};
use super::key::Key;

#[derive(Clone)]
struct Product<R: CubeRuntime> {
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    output: CubeTensor<R>,
    /// True in a benchmark, where only the time matters.
    is_trial: bool,
}

impl<R: CubeRuntime> Product<R> {
    /// Multiplies with `kernel`. Outside of benchmarks it falls back to the naive kernel if `kernel` does not
    /// support the shapes, since the choice was made for other shapes with the same key.
    fn multiply_with(self, kernel: &Kernel) -> Result<(), String> {
        let Self { a, b, output, .. } = self.clone();
        let result = launch(&kernel.method, a, b, output);
        match result {
            Err(_) if !self.is_trial => self.multiply_naive(),
            result => result.map_err(|error| format!("{error:?}")),
        }
    }

    fn multiply_naive(self) -> Result<(), String> {
        let Self { a, b, output, .. } = self;
        let result = launch_cubek(&Strategy::Naive, a, b, output);
        result.map_err(|error| format!("{error:?}"))
    }
}

/// Writes `a b` to `output` with the selected kernel.
pub(super) fn multiply<R: CubeRuntime>(a: CubeTensor<R>, b: CubeTensor<R>, output: CubeTensor<R>) {
    static TUNER: LocalTuner<Key, CubeTuneId> = local_tuner!();
    let client = a.client.clone();
    if is_software_device(&client) && multiply_with_first(&a, &b, &output) {
        return;
    }
    let device = CubeTuneId::new(&client, &a.device);
    let product = Product {
        a,
        b,
        output,
        is_trial: false,
    };
    TUNER.execute(&device, &client, TUNER.init(kernels::<R>), product);
}

/// Returns true for a CPU that emulates a GPU. CubeCL reports no plane operations for these; hardware devices
/// have had them since Vulkan 1.1.
fn is_software_device<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    !client.properties().features.plane.contains(Plane::Ops)
}

/// Writes `a b` to `output` with the first kernel of the highest priority that supports the shapes. Returns false
/// if there is none. On software devices a benchmark costs more than it saves: Mesa needs two seconds to compile
/// some of the kernels.
fn multiply_with_first<R: CubeRuntime>(
    a: &CubeTensor<R>,
    b: &CubeTensor<R>,
    output: &CubeTensor<R>,
) -> bool {
    let key = Key::between(a, b, output);
    let mut candidates: Vec<Kernel> = all()
        .into_iter()
        .filter(|kernel| kernel.class.priority(&key) >= 0 && kernel.priority(&key) >= 0)
        .collect();
    candidates.sort_by_key(|kernel| std::cmp::Reverse(kernel.class.priority(&key)));
    let mut methods = candidates.into_iter().map(|kernel| kernel.method);
    methods.any(|method| launch(&method, a.clone(), b.clone(), output.clone()).is_ok())
}

fn kernels<R: CubeRuntime>() -> TunableSet<Key, Product<R>, ()> {
    let trial = |_: &Key, product: &Product<R>| Product {
        output: product.output.copy(),
        is_trial: true,
        ..product.clone()
    };
    let key = |of: &Product<R>| Key::between(&of.a, &of.b, &of.output);
    let group =
        |name, class: KernelClass| TuneGroup::<Key>::new(name, move |key| class.priority(key));
    let few_rows = group("few rows", KernelClass::FewRows);
    let vector = group("vector", KernelClass::Vector);
    let cores = group("cores", KernelClass::Cores);
    let tensor_cores = group("tensor cores", KernelClass::TensorCores);
    let last = TuneGroup::<Key>::new("last", |_| 0);

    // The tuner falls back to the first entry.
    let naive = Tunable::new("naive", |product: Product<R>| product.multiply_naive());
    let set = TunableSet::new(key, trial).with(naive.group(&last, |_| 1));
    all().into_iter().fold(set, |set, kernel| {
        let group = match kernel.class {
            KernelClass::FewRows => &few_rows,
            KernelClass::Vector => &vector,
            KernelClass::Cores => &cores,
            KernelClass::TensorCores => &tensor_cores,
        };
        let kernel = std::sync::Arc::new(kernel);
        let tried = kernel.clone();
        let tunable = Tunable::new(&kernel.method.to_string(), move |product: Product<R>| {
            product.multiply_with(&tried)
        });
        set.with(tunable.group(group, move |key| kernel.priority(key)))
    })
}
