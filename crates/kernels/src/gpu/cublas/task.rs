//! Sizes and memory layouts of a product, as strided batches.

use burn::tensor::DType;

/// The device's idle time around a product: the host waits for earlier kernels, starts the product and waits for it.
const WAIT_SECONDS: f64 = 25e-6;

/// The shape, strides and element type of a tensor `[…, rows, columns]`.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub shape: &'a [usize],
    pub strides: &'a [usize],
    pub kind: DType,
}

/// Matrices of `rows · columns` elements that are consecutive in one of both dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Columns are consecutive, instead of rows.
    pub is_transposed: bool,
    /// The distance between rows, or between columns if the matrix is transposed, in elements.
    pub leading: usize,
    /// The distance between matrices, in elements; 0 for the same matrix.
    pub between: usize,
}

/// The products `a b` of `matrices` matrices `[rows, depth]` and `[depth, columns]`. The result is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// The type of the operands.
    pub kind: DType,
    /// The type of the result.
    pub output_kind: DType,
    pub matrices: usize,
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
    pub a: Operand,
    pub b: Operand,
}

impl Task {
    /// Returns `None` if the product is not one strided batch of supported types and sizes.
    pub fn of(a: View, b: View, output_kind: DType) -> Option<Self> {
        let batch = a.shape.len().checked_sub(2)?;
        let is_supported = match a.kind {
            DType::F32 => output_kind == DType::F32,
            DType::BF16 | DType::F16 => [DType::F32, a.kind].contains(&output_kind),
            _ => false,
        };
        if b.shape.len() != a.shape.len() || b.kind != a.kind || !is_supported {
            return None;
        }
        // Dimensions of several matrices are one if they are evenly spaced in both operands.
        let mut matrices = 1;
        let mut between = [0, 0];
        for dim in (0..batch).rev() {
            let length = a.shape[dim].max(b.shape[dim]);
            let strides = [a, b].map(|of| match of.shape[dim] {
                1 => 0,
                _ => of.strides[dim],
            });
            match (length, matrices) {
                (1, _) => continue,
                (_, 1) => between = strides,
                _ if strides == between.map(|stride| stride * matrices) => {}
                _ => return None,
            }
            matrices *= length;
        }
        let (rows, depth, columns) = (a.shape[batch], a.shape[batch + 1], b.shape[batch + 1]);
        let task = Self {
            kind: a.kind,
            output_kind,
            matrices,
            rows,
            depth,
            columns,
            a: Operand::of(a, batch, between[0])?,
            b: Operand::of(b, batch, between[1])?,
        };
        let sizes = [
            matrices,
            rows,
            depth,
            columns,
            task.a.leading,
            task.b.leading,
        ];
        let most = i32::MAX as usize;
        let fits = sizes.iter().all(|size| (1..=most).contains(size));
        fits.then_some(task)
    }

    /// Returns true if the library saves at least twice the time that the device waits for it, by low estimates of the
    /// throughput of both on a Hopper GPU.
    pub fn is_worthwhile(&self) -> bool {
        let [kernels, library] = match self.kind {
            DType::F32 => [25e12, 50e12],
            _ => [140e12, 600e12],
        };
        let sizes = [self.matrices, self.rows, self.depth, self.columns];
        let operations = 2.0 * sizes.iter().map(|&size| size as f64).product::<f64>();
        operations / kernels - operations / library > 2.0 * WAIT_SECONDS
    }
}

impl Operand {
    fn of(view: View, batch: usize, between: usize) -> Option<Self> {
        let (rows, columns) = (view.shape[batch], view.shape[batch + 1]);
        let (row, column) = (view.strides[batch], view.strides[batch + 1]);
        // The distance between `lines` lines of `length` consecutive elements.
        let leading = |lines: usize, length: usize, line: usize, element: usize| {
            let is_consecutive = element == 1 || length == 1;
            let line = if lines == 1 { length } else { line };
            (is_consecutive && line >= length).then_some(line)
        };
        let (is_transposed, leading) = match leading(rows, columns, row, column) {
            Some(leading) => (false, leading),
            None => (true, leading(columns, rows, column, row)?),
        };
        Some(Self {
            is_transposed,
            leading,
            between,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(shape: &'a [usize], strides: &'a [usize], kind: DType) -> View<'a> {
        View {
            shape,
            strides,
            kind,
        }
    }

    fn f32_task(a: [&[usize]; 2], b: [&[usize]; 2]) -> Option<Task> {
        let [a, b] = [a, b].map(|[shape, strides]| view(shape, strides, DType::F32));
        Task::of(a, b, DType::F32)
    }

    fn operand(is_transposed: bool, leading: usize, between: usize) -> Operand {
        Operand {
            is_transposed,
            leading,
            between,
        }
    }

    #[test]
    fn contiguous_transposed_and_pitched_operands_are_supported() {
        let contiguous: [&[usize]; 2] = [&[5, 7], &[7, 1]];
        let task = f32_task(contiguous, [&[7, 3], &[3, 1]]).unwrap();
        assert_eq!([task.rows, task.depth, task.columns], [5, 7, 3]);
        assert_eq!(
            (task.matrices, task.a, task.b),
            (1, operand(false, 7, 0), operand(false, 3, 0))
        );
        let task = f32_task([&[5, 7], &[1, 5]], [&[7, 3], &[1, 128]]).unwrap();
        assert_eq!(
            (task.a, task.b),
            (operand(true, 5, 0), operand(true, 128, 0))
        );
        // A row or column, whatever the stride of its only line.
        let task = f32_task([&[1, 7], &[900, 1]], [&[7, 1], &[4, 9]]).unwrap();
        assert_eq!(
            (task.a, task.b),
            (operand(false, 7, 0), operand(false, 4, 0))
        );
    }

    #[test]
    fn other_strides_types_and_sizes_are_not_supported() {
        let b: [&[usize]; 2] = [&[7, 3], &[3, 1]];
        // Every second column, and one row repeated.
        assert_eq!(f32_task([&[5, 7], &[14, 2]], b), None);
        assert_eq!(f32_task([&[5, 7], &[0, 1]], b), None);
        assert_eq!(f32_task([&[0, 7], &[7, 1]], b), None);
        let long = i32::MAX as usize + 1;
        assert_eq!(
            f32_task([&[5, long], &[long, 1]], [&[long, 1], &[1, 1]]),
            None
        );
        let of = |a, b, output| {
            let [a, b] = [a, b].map(|kind| view(&[4, 4], &[4, 1], kind));
            Task::of(a, b, output).is_some()
        };
        assert!(of(DType::BF16, DType::BF16, DType::F32));
        assert!(of(DType::F16, DType::F16, DType::F16));
        assert!(!of(DType::BF16, DType::BF16, DType::F16));
        assert!(!of(DType::F32, DType::BF16, DType::F32));
        assert!(!of(DType::F32, DType::F32, DType::BF16));
        assert!(!of(DType::F64, DType::F64, DType::F64));
    }

    #[test]
    fn dimensions_of_matrices_are_one_batch_if_they_are_evenly_spaced() {
        let a: [&[usize]; 2] = [&[2, 3, 5, 7], &[105, 35, 7, 1]];
        let shared: [&[usize]; 2] = [&[1, 1, 7, 4], &[28, 28, 4, 1]];
        let task = f32_task(a, shared).unwrap();
        assert_eq!((task.matrices, task.a.between, task.b.between), (6, 35, 0));
        // Heads of tokens: evenly spaced within a sequence only.
        let heads: [&[usize]; 2] = [&[2, 3, 5, 7], &[105, 7, 21, 1]];
        assert_eq!(f32_task(heads, shared), None);
        let task = f32_task([&[1, 3, 5, 7], &[105, 7, 21, 1]], shared).unwrap();
        assert_eq!((task.matrices, task.a), (3, operand(false, 21, 7)));
        // One of the operands is shared in the outer dimension only.
        let partly: [&[usize]; 2] = [&[1, 3, 7, 4], &[84, 28, 4, 1]];
        assert_eq!(f32_task(a, partly), None);
    }

    #[test]
    fn only_large_products_are_worthwhile() {
        let square = |n: usize, kind| {
            let [shape, strides] = [[n, n], [n, 1]];
            let view = view(&shape, &strides, kind);
            Task::of(view, view, DType::F32).unwrap().is_worthwhile()
        };
        // 1.7 · 10⁹ and 17 · 10⁹ operations in bf16, 2.1 · 10⁹ and 4.3 · 10⁹ in f32.
        assert!(!square(950, DType::BF16) && square(2048, DType::BF16));
        assert!(!square(1024, DType::F32) && square(1290, DType::F32));
    }
}
