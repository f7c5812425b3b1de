//! The tests of the kernels' operations on every backend, in `tests/gradients`.
//!
//! They are not in the package of the kernels, which is optimized at every build: a test program for three backends would take
//! the compiler more than ten minutes at that level.
