//! Which kernel makes a product: the quickest for its kind of shapes, found by trying, and remembered.

use burn_cubecl::cubecl::tune::{LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, CubeTuneId};
use cubek::matmul::launch::Strategy;

use super::kernels::{Kernel, Way, all, launch};
use super::key::Key;

#[derive(Clone)]
struct Product<R: CubeRuntime> {
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    output: CubeTensor<R>,
    /// What it writes counts for nothing: the kernel is timed.
    is_trial: bool,
}

impl<R: CubeRuntime> Product<R> {
    /// What takes all shapes where the kernel cannot: it was chosen for others of the key.
    fn by(self, kernel: &Kernel) -> Result<(), String> {
        let Self { a, b, output, .. } = self.clone();
        let made = launch(&kernel.strategy, a, b, output);
        match made {
            Err(_) if !self.is_trial => self.by_any_means(),
            made => made.map_err(|error| format!("{error:?}")),
        }
    }

    fn by_any_means(self) -> Result<(), String> {
        let Self { a, b, output, .. } = self;
        let made = launch(&Strategy::Naive, a, b, output);
        made.map_err(|error| format!("{error:?}"))
    }
}

/// Writes `a b` to `output`, by the kernel that was the quickest.
pub(super) fn quickest<R: CubeRuntime>(a: CubeTensor<R>, b: CubeTensor<R>, output: CubeTensor<R>) {
    static TUNER: LocalTuner<Key, CubeTuneId> = local_tuner!();
    let client = a.client.clone();
    let device = CubeTuneId::new(&client, &a.device);
    let product = Product {
        a,
        b,
        output,
        is_trial: false,
    };
    TUNER.execute(&device, &client, TUNER.init(kernels::<R>), product);
}

fn kernels<R: CubeRuntime>() -> TunableSet<Key, Product<R>, ()> {
    let trial = |_: &Key, product: &Product<R>| Product {
        output: product.output.copy(),
        is_trial: true,
        ..product.clone()
    };
    let key = |of: &Product<R>| Key::between(&of.a, &of.b, &of.output);
    let group = |name, way: Way| TuneGroup::<Key>::new(name, move |key| way.priority(key));
    let vector = group("vector", Way::Vector);
    let cores = group("cores", Way::Cores);
    let tensor_cores = group("tensor cores", Way::TensorCores);
    let last = TuneGroup::<Key>::new("last", |_| 0);

    // The first is what the tuner falls back to.
    let naive = Tunable::new("naive", |product: Product<R>| product.by_any_means());
    let set = TunableSet::new(key, trial).with(naive.group(&last, |_| 1));
    all().into_iter().fold(set, |set, kernel| {
        let group = match kernel.way {
            Way::Vector => &vector,
            Way::Cores => &cores,
            Way::TensorCores => &tensor_cores,
        };
        let kernel = std::sync::Arc::new(kernel);
        let tried = kernel.clone();
        let tunable = Tunable::new(&kernel.strategy.to_string(), move |product: Product<R>| {
            product.by(&tried)
        });
        set.with(tunable.group(group, move |key| kernel.priority(key)))
    })
}
