//! Calls of cuBLASLt. It stores matrices by columns: a contiguous `[rows, columns]` tensor is its matrix of `columns` rows. So
//! `a b` is computed as `(a b)ᵀ = bᵀ aᵀ`, with the operands exchanged.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::fmt::Display;
use std::ptr;
use std::sync::Arc;

use burn::tensor::DType;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaStream};

use super::task::{Operand, Task};

/// The memory of algorithms that need some, in bytes: NVIDIA's recommendation for Hopper.
const WORKSPACE: usize = 32 << 20;

/// The most prepared products.
const MOST_PLANS: usize = 1024;

/// The library on one device. Its memory and handle are kept until the process ends.
pub struct Library {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    handle: sys::cublasLtHandle_t,
    workspace: CUdeviceptr,
    /// The prepared products by task and alignments of `a`, `b` and the output in bytes.
    plans: HashMap<(Task, [u32; 3]), Plan>,
}

// SAFETY: the handle and the descriptors of the plans are not bound to a thread, and are used through `&mut self` only.
unsafe impl Send for Library {}

impl Library {
    /// Loads the library and opens device `number`.
    ///
    /// # Errors
    /// The library is missing, or a call fails.
    pub fn open(number: usize) -> Result<Self, String> {
        // SAFETY: it loads NVIDIA's library, which has no requirements on its caller.
        if !unsafe { sys::is_culib_present() } {
            return Err("the library libcublasLt is not installed".to_owned());
        }
        // The primary context, which CubeCL uses, too.
        let context = CudaContext::new(number).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let stream = context.new_stream().map_err(failed("cuStreamCreate"))?;
        let handle = result::create_handle().map_err(failed("cublasLtCreate"))?;
        // SAFETY: the context is the current one of this thread.
        let workspace = unsafe { cudarc::driver::result::malloc_sync(WORKSPACE) };
        Ok(Self {
            context,
            stream,
            handle,
            workspace: workspace.map_err(failed("cuMemAlloc"))?,
            plans: HashMap::new(),
        })
    }

    /// The version, such as 12.8.4.
    pub fn version() -> String {
        // SAFETY: it only returns a number. The library is present, since there is a `Library`.
        let version = unsafe { sys::cublasLtGetVersion() };
        format!(
            "{}.{}.{}",
            version / 10_000,
            version / 100 % 100,
            version % 100
        )
    }

    /// Writes the product to `output` after all work that the device was given, and waits for it. Returns false if the library
    /// does not support the task.
    ///
    /// # Errors
    /// A call fails.
    ///
    /// # Safety
    /// The addresses are those of memory on the device that has the sizes of the task, and stays allocated.
    pub unsafe fn multiply(
        &mut self,
        task: &Task,
        addresses: [CUdeviceptr; 3],
    ) -> Result<bool, String> {
        // Makes the context the thread's current one, and waits for the kernels that write the operands.
        self.context
            .synchronize()
            .map_err(failed("cuCtxSynchronize"))?;
        let alignments = addresses.map(|address| 1 << address.trailing_zeros().min(8));
        let key = (*task, alignments);
        if self.plans.len() >= MOST_PLANS {
            self.plans.clear();
        }
        let plan = match self.plans.entry(key) {
            Entry::Occupied(plan) => plan.into_mut(),
            Entry::Vacant(place) => {
                let plan = Plan::new(self.handle, task, alignments);
                place.insert(plan.map_err(failed("cublasLtMatmulAlgoGetHeuristic"))?)
            }
        };
        let Some(algorithm) = &plan.algorithm else {
            return Ok(false);
        };
        let [a, b, output] = addresses.map(|address| address as *mut c_void);
        let [b_layout, a_layout, output_layout] = plan.layouts;
        let factors: [f32; 2] = [1.0, 0.0];
        // SAFETY: the caller's addresses and this workspace are on the device, and the layouts are those of the task. The
        // factors are read by the call. The stream is waited for before the caller continues.
        unsafe {
            result::matmul(
                self.handle,
                plan.description,
                (&raw const factors[0]).cast(),
                (&raw const factors[1]).cast(),
                b,
                b_layout,
                a,
                a_layout,
                output,
                output_layout,
                output,
                output_layout,
                algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                self.stream.cu_stream().cast(),
            )
        }
        .map_err(failed("cublasLtMatmul"))?;
        self.stream
            .synchronize()
            .map_err(failed("cuStreamSynchronize"))?;
        Ok(true)
    }
}

/// The descriptors and the algorithm of a product. Descriptors that do not exist are null.
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    preference: sys::cublasLtMatmulPreference_t,
    /// The layouts of `b`, `a` and the output.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    /// `None` if no algorithm supports the product.
    algorithm: Option<sys::cublasLtMatmulAlgo_t>,
}

impl Plan {
    fn new(
        handle: sys::cublasLtHandle_t,
        task: &Task,
        [a, b, output]: [u32; 3],
    ) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB,
        };
        use sys::cublasLtMatmulPreferenceAttributes_t::{
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        };
        use sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

        use sys::cublasStatus_t::{CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED};

        // From here on, an error destroys what exists.
        let mut plan = Self {
            description: ptr::null_mut(),
            preference: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            algorithm: None,
        };
        // Factors and sums in f32, without TF32.
        plan.description = result::create_matmul_desc(
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cudaDataType_t::CUDA_R_32F,
        )?;
        let transposed = [
            (CUBLASLT_MATMUL_DESC_TRANSA, task.b.is_transposed),
            (CUBLASLT_MATMUL_DESC_TRANSB, task.a.is_transposed),
        ];
        for (attribute, is_transposed) in transposed {
            // `CUBLAS_OP_N` or `CUBLAS_OP_T`.
            let (value, size) = value_of(&i32::from(is_transposed));
            // SAFETY: the descriptor exists, and the attribute is an enumeration of 32 bits.
            unsafe { result::set_matmul_desc_attribute(plan.description, attribute, value, size)? };
        }
        let result_operand = Operand {
            is_transposed: false,
            leading: task.columns,
            between: task.rows * task.columns,
        };
        let operands = [
            (task.b, task.kind, task.depth, task.columns),
            (task.a, task.kind, task.rows, task.depth),
            (result_operand, task.output_kind, task.rows, task.columns),
        ];
        for (layout, (operand, kind, rows, columns)) in plan.layouts.iter_mut().zip(operands) {
            *layout = layout_of(operand, kind, rows, columns)?;
            set_batch(*layout, task.matrices, operand.between)?;
        }

        plan.preference = result::create_matmul_pref()?;
        let set = |attribute, (value, size)| {
            // SAFETY: the descriptor exists, and the value has the type of the attribute.
            unsafe { result::set_matmul_pref_attribute(plan.preference, attribute, value, size) }
        };
        set(
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            value_of(&WORKSPACE),
        )?;
        // Partial sums are added in f32, and never by several blocks in any order.
        let reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        set(
            CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            value_of(&reduction),
        )?;
        let alignments = [
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, output),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, output),
        ];
        for (attribute, bytes) in alignments {
            set(attribute, value_of(&bytes))?;
        }
        let [b, a, output] = plan.layouts;
        // SAFETY: the descriptors exist.
        let found = unsafe {
            result::get_matmul_algo_heuristic(
                handle,
                plan.description,
                b,
                a,
                output,
                output,
                plan.preference,
            )
        };
        plan.algorithm = match found {
            Ok(found) => Some(found.algo),
            Err(CublasError(CUBLAS_STATUS_NOT_SUPPORTED | CUBLAS_STATUS_INVALID_VALUE)) => None,
            Err(error) => return Err(error),
        };
        Ok(plan)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the descriptors that are not null exist, and are not used after this. No call that fails has an effect.
        unsafe {
            for layout in self.layouts.iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(*layout);
            }
            if !self.preference.is_null() {
                let _ = result::destroy_matmul_pref(self.preference);
            }
            if !self.description.is_null() {
                let _ = result::destroy_matmul_desc(self.description);
            }
        }
    }
}

/// The layout of `[rows, columns]` matrices, whose consecutive elements are a column for the library.
fn layout_of(
    operand: Operand,
    kind: DType,
    rows: usize,
    columns: usize,
) -> Result<sys::cublasLtMatrixLayout_t, CublasError> {
    let kind = match kind {
        DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    };
    let (lines, length) = match operand.is_transposed {
        true => (columns, rows),
        false => (rows, columns),
    };
    result::create_matrix_layout(kind, length as u64, lines as u64, operand.leading as i64)
}

fn set_batch(
    layout: sys::cublasLtMatrixLayout_t,
    matrices: usize,
    between: usize,
) -> Result<(), CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t::{
        CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
    };
    let (count, between) = (matrices as i32, between as i64);
    let attributes = [
        (CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, value_of(&count)),
        (
            CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            value_of(&between),
        ),
    ];
    for (attribute, (value, size)) in attributes {
        // SAFETY: the layout exists, and the values have the types of the attributes.
        unsafe { result::set_matrix_layout_attribute(layout, attribute, value, size)? };
    }
    Ok(())
}

/// The address and size of an attribute's value.
fn value_of<T>(value: &T) -> (*const c_void, usize) {
    (ptr::from_ref(value).cast(), size_of::<T>())
}

/// Names the function that failed.
fn failed<E: Display>(function: &'static str) -> impl FnOnce(E) -> String {
    move |error| format!("{function} failed: {error}")
}
