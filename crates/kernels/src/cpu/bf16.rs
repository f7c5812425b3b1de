//! Products of bfloat16.
use super::matrix::{Matrix, MatrixMut};
use super::product::Output;
/// Threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// All.
    All,
    /// This.
    This,
}
/// Supported.
pub fn supported() -> bool {
    false
}
/// Product.
pub fn product(_c: MatrixMut<'_>, _a: Matrix<'_>, _b: Matrix<'_>, _o: Output, _t: Threads) {}
