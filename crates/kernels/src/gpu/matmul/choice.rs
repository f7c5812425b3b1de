//! Which kernel makes a product: the quickest for its kind of shapes, found by trying, and remembered.

use std::fmt;

use burn_cubecl::cubecl::tune::{
    AutotuneKey, LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner,
};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, CubeTuneId};
use cubek::matmul::definition::MatmulKind;
use cubek::matmul::launch::{MatmulAutotuneKey, MatmulGlobalScale, Strategy};
use serde::{Deserialize, Serialize};

use super::kernels::{Kernel, Way, all, launch};

/// No kernel's stage is longer than half of it, nor other than a power of two.
const TWO_STAGES: usize = 256;

/// The kinds of products that one choice is made for.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(super) struct Key {
    /// Sizes up to the next power of two, types, how the factors lie.
    product: MatmulAutotuneKey,
    even_stages: bool,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, even stages: {}", self.product, self.even_stages)
    }
}

impl AutotuneKey for Key {}

impl Key {
    pub(super) fn between<R: CubeRuntime>(
        a: &CubeTensor<R>,
        b: &CubeTensor<R>,
        output: &CubeTensor<R>,
    ) -> Self {
        let (a_shape, b_shape) = (a.meta.shape(), b.meta.shape());
        let depth = a_shape.iter().next_back().copied().unwrap_or(0);
        Self {
            product: MatmulAutotuneKey::generate(
                &a.client,
                a_shape,
                b_shape,
                a.meta.strides(),
                b.meta.strides(),
                a.dtype.into(),
                b.dtype.into(),
                output.dtype.into(),
                None,
                None,
            ),
            even_stages: depth.is_multiple_of(TWO_STAGES),
        }
    }

    pub(super) fn kind(&self) -> &MatmulKind {
        &self.product.analysis.kind
    }

    pub(super) fn scale(&self) -> &MatmulGlobalScale {
        &self.product.analysis.scale_global
    }

    /// Whether the factors are of 16 bits.
    pub(super) fn is_narrow(&self) -> bool {
        self.product.definition.elem_lhs.size() == 2
    }

    /// Whether a kernel of any stage's length makes an even number of them.
    pub(super) fn has_even_stages(&self) -> bool {
        self.even_stages
    }
}

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
