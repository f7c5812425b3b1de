//! Which of Burn's backends are compiled in; each takes the composed operations; [`crate::flex`] is the one that has its own.

#[cfg(feature = "ndarray")]
impl crate::Backend for burn_ndarray::NdArray {}

// `Wgpu` and `WebGpu` are one type, and so are `Vulkan` and `Metal`: they differ in how booleans are stored.
#[cfg(feature = "wgpu")]
impl crate::Backend for burn::backend::WebGpu {}

#[cfg(all(feature = "vulkan", not(feature = "metal")))]
impl crate::Backend for burn::backend::Vulkan {}

#[cfg(feature = "metal")]
impl crate::Backend for burn::backend::Metal {}

#[cfg(feature = "cuda")]
impl crate::Backend for burn::backend::Cuda {}

#[cfg(feature = "rocm")]
impl crate::Backend for burn::backend::Rocm {}
