//! The candidate kernels and the products that each is suited for.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::components::tile::TileMatmulKind;
use cubek::matmul::definition::{
    MatmulElems, MatmulGlobalElems, MatmulKind as Kind, MatmulSetupError,
};
use cubek::matmul::launch::{MatmulGlobalScale as Scale, Strategy, launch_ref};
use cubek::matmul::routines::BlueprintStrategy::Inferred;
use cubek::matmul::routines::TileSizeSelection;
use cubek::matmul::routines::double_buffering::DoubleBufferingArgs;
use cubek::matmul::routines::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::routines::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::routines::simple::SimpleArgs;
use cubek::matmul::routines::simple_unit::SimpleUnitSelectionArgs;
use cubek::std::InputBinding;
use std::fmt;

use super::few_rows;
use super::key::Key;

/// The kind of hardware units that a kernel uses, which decides the products it is tried for.
#[derive(Clone, Copy)]
pub(super) enum KernelClass {
    /// The kernel for a few rows.
    FewRows,
    /// Kernels for a single row or column.
    Vector,
    /// Kernels on the device's regular cores.
    Cores,
    /// Kernels on the device's tensor cores.
    TensorCores,
}

/// The implementation of a candidate.
pub(super) enum Method {
    FewRows,
    CubeK(Box<Strategy>),
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewRows => f.write_str("few_rows"),
            Self::CubeK(strategy) => strategy.fmt(f),
        }
    }
}

/// A candidate kernel.
pub(super) struct Kernel {
    pub(super) method: Method,
    pub(super) class: KernelClass,
    /// True if the kernel is double-buffered: it loads one stage while it multiplies another.
    pub(super) two_stages: bool,
}

impl KernelClass {
    /// The priority for a product. Kernels of the highest priority are tried first, and lower ones only if none
    /// of them supports the product. A negative priority excludes the kernel.
    pub(super) fn priority(self, key: &Key) -> i8 {
        let small = matches!(key.scale(), Scale::Small);
        let general = matches!(key.kind(), Kind::General);
        match self {
            Self::FewRows if key.has_few_rows() => 4,
            Self::FewRows => -1,
            Self::Vector if matches!(key.kind(), Kind::VecMat | Kind::MatVec) => 3,
            Self::Vector => -1,
            Self::Cores if small || !general || !key.is_narrow() => 2,
            Self::Cores => 1,
            // Tensor cores would round f32 operands.
            Self::TensorCores if !key.is_narrow() => -1,
            Self::TensorCores if matches!(key.scale(), Scale::Large) => 3,
            Self::TensorCores => 2,
        }
    }
}

impl Kernel {
    /// The priority within its class; see [`KernelClass::priority`].
    pub(super) fn priority(&self, key: &Key) -> i8 {
        match self.two_stages {
            true if !key.has_even_stages() => -1,
            // Double buffering does not pay off for small products.
            true if matches!(key.scale(), Scale::Small) => -1,
            _ => 1,
        }
    }
}

/// `a b` in the type `kind` by every kernel that is tried for it and supports the shapes, with the kernel's name: a benchmark
/// may choose any of them.
pub fn products_by_every_kernel<R: CubeRuntime>(
    a: &CubeTensor<R>,
    b: &CubeTensor<R>,
    kind: DType,
) -> Vec<(String, CubeTensor<R>)> {
    let product = |kernel: Kernel| {
        let output = init_matmul_output(a, b, kind);
        let key = Key::between(a, b, &output);
        let is_tried = kernel.class.priority(&key) >= 0 && kernel.priority(&key) >= 0;
        let launched =
            is_tried && launch(&kernel.method, a.clone(), b.clone(), output.clone()).is_ok();
        launched.then(|| (kernel.method.to_string(), output))
    };
    all().into_iter().filter_map(product).collect()
}

/// Writes `a b` to `output`.
pub(super) fn launch<R: CubeRuntime>(
    method: &Method,
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    output: CubeTensor<R>,
) -> Result<(), MatmulSetupError> {
    match method {
        Method::FewRows => few_rows::launch(a, b, output),
        Method::CubeK(strategy) => launch_cubek(strategy, a, b, output),
    }
}

/// Writes `a b` to `output` with a kernel of CubeK.
pub(super) fn launch_cubek<R: CubeRuntime>(
    strategy: &Strategy,
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    output: CubeTensor<R>,
) -> Result<(), MatmulSetupError> {
    let client = output.client.clone();
    let [of_a, of_b, of_output] = [a.dtype, b.dtype, output.dtype].map(Into::into);
    let mut kinds = MatmulElems::from_globals(&MatmulGlobalElems {
        lhs: of_a,
        rhs: of_b,
        out: of_output,
    });
    launch_ref(
        strategy,
        &client,
        InputBinding::new(a.binding(), of_a),
        InputBinding::new(b.binding(), of_b),
        output.binding(),
        &mut kinds,
    )
}

/// Returns all candidate kernels.
pub(super) fn all() -> Vec<Kernel> {
    let kernel = |strategy, class, two_stages| Kernel {
        method: Method::CubeK(Box::new(strategy)),
        class,
        two_stages,
    };
    let mut kernels = vec![
        Kernel {
            method: Method::FewRows,
            class: KernelClass::FewRows,
            two_stages: false,
        },
        kernel(
            Strategy::GemvPlaneParallel(Inferred(Default::default())),
            KernelClass::Vector,
            false,
        ),
        kernel(
            Strategy::GemvUnitPerpendicular(Inferred(Default::default())),
            KernelClass::Vector,
            false,
        ),
    ];
    for tile_size in [
        TileSizeSelection::MaxTileSize,
        TileSizeSelection::MinTileSize,
    ] {
        let one = Strategy::SimpleUnit(Inferred(SimpleUnitSelectionArgs { tile_size }));
        let two = Strategy::DoubleUnit(Inferred(DoubleUnitSelectionArgs { tile_size }));
        kernels.push(kernel(one, KernelClass::Cores, false));
        kernels.push(kernel(two, KernelClass::Cores, true));
    }
    for multi_rows in [false, true] {
        let of = |tile_matmul| SimpleArgs {
            multi_rows,
            tile_matmul,
        };
        for one in [
            Strategy::SimpleCyclicCmma(Inferred(of(TileMatmulKind::Cmma))),
            Strategy::SimpleCyclicMma(Inferred(of(TileMatmulKind::Mma))),
            // One stage, loaded by the tensor memory accelerator of NVIDIA's Hopper and later; rejected elsewhere.
            Strategy::SimpleTmaCmma(Inferred(of(TileMatmulKind::Cmma))),
            Strategy::SimpleTmaMma(Inferred(of(TileMatmulKind::Mma))),
        ] {
            kernels.push(kernel(one, KernelClass::TensorCores, false));
        }
    }
    for row_count in [4, 8] {
        let of = |tile_matmul| {
            Inferred(OrderedSelectionArgs {
                partition_k: Some(2),
                row_count: Some(row_count),
                rows_per_plane: Some(2),
                tile_matmul,
            })
        };
        for two in [
            Strategy::OrderedDoubleCmma(of(TileMatmulKind::Cmma)),
            Strategy::OrderedDoubleMma(of(TileMatmulKind::Mma)),
        ] {
            kernels.push(kernel(two, KernelClass::TensorCores, true));
        }
    }
    for specialized in [false, true] {
        let of = |tile_matmul| {
            Inferred(DoubleBufferingArgs {
                specialized,
                tile_matmul,
            })
        };
        for two in [
            Strategy::DoubleCyclicCmma(of(TileMatmulKind::Cmma)),
            Strategy::DoubleCyclicMma(of(TileMatmulKind::Mma)),
        ] {
            kernels.push(kernel(two, KernelClass::TensorCores, true));
        }
    }
    kernels
}
