//! Exchanges between GPUs by NVIDIA's NCCL, which copies from one to another over NVLink or PCIe.
//!
//! Ranks send each other slices and sum them themselves, in rank order: NCCL's own sums depend on the number of GPUs and
//! their connections.

#![allow(unsafe_code)]

use std::any::Any;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use burn::cubecl::cuda::CudaDevice;
use burn::tensor::Device;
use cudarc::driver::{CudaContext, CudaStream};
use cudarc::nccl::result::{self, NcclError};
use cudarc::nccl::sys;

use crate::{AddressedVector, Backend};

/// The bytes by which the members of a communicator find each other. One member makes them and gives them to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclId(pub [u8; 128]);

impl NcclId {
    /// Loads the library and makes an id for devices as this one.
    ///
    /// # Errors
    /// The device is not one of CUDA, the library is not installed, or it fails.
    pub fn new<B: Backend>(device: &Device<B>) -> Result<Self, String> {
        number_of::<B>(device)?;
        // SAFETY: it loads NVIDIA's library, which has no requirements on its caller.
        if !unsafe { sys::is_culib_present() } {
            return Err("the library libnccl is not installed".to_owned());
        }
        let id = result::get_uniqueid().map_err(failed("ncclGetUniqueId"))?;
        Ok(Self(id.internal.map(|byte| byte as u8)))
    }
}

/// This process's membership of a group of GPUs, each of another process. It is kept until the process ends.
pub struct NcclCommunicator {
    communicator: sys::ncclComm_t,
    stream: Arc<CudaStream>,
    rank: usize,
    size: usize,
    /// One thread at a time uses a communicator.
    calls: Mutex<()>,
}

// SAFETY: the communicator is not bound to a thread, and is used by one at a time.
unsafe impl Send for NcclCommunicator {}
// SAFETY: as above.
unsafe impl Sync for NcclCommunicator {}

impl NcclCommunicator {
    /// Joins the others with the same id, which all `size` ranks must do, each with another GPU.
    ///
    /// # Errors
    /// The device is not one of CUDA, another rank has the same one, or a call fails.
    pub fn join<B: Backend>(
        device: &Device<B>,
        id: NcclId,
        rank: usize,
        size: usize,
    ) -> Result<Self, String> {
        // The primary context, which CubeCL uses, too.
        let context =
            CudaContext::new(number_of::<B>(device)?).map_err(|error| error.to_string())?;
        let stream = context.new_stream().map_err(|error| error.to_string())?;
        let id = sys::ncclUniqueId {
            internal: id.0.map(|byte| byte as std::ffi::c_char),
        };
        let mut communicator = ptr::null_mut();
        // SAFETY: the pointer is written by the call, which returns when all ranks have joined. The context is this thread's.
        unsafe { result::comm_init_rank(&raw mut communicator, int(size), id, int(rank)) }
            .map_err(failed("ncclCommInitRank"))?;
        Ok(Self {
            communicator,
            stream,
            rank,
            size,
            calls: Mutex::new(()),
        })
    }

    /// Sends a slice of `sent` to each other rank, in rank order, or all of it to each if it is as long as a slice. Receives
    /// one from each, in rank order. All ranks must exchange slices of the same length.
    ///
    /// # Errors
    /// The lengths do not fit, or a call fails.
    pub fn exchange<B: Backend>(
        &self,
        sent: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String> {
        let others = self.size - 1;
        let slice = received.len() / others.max(1);
        let step = match sent.len() {
            length if length == slice * others => slice,
            length if length == slice => 0,
            length => {
                let received = received.len();
                return Err(format!("{length} elements are sent, {received} received"));
            }
        };
        if slice == 0 {
            return Ok(());
        }
        let _calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        // The group's transfers belong to this thread's context.
        let context = self.stream.context().bind_to_thread();
        context.map_err(|error| error.to_string())?;
        let from = sent.memory().pointer().cast::<f32>();
        let to = received.memory_mut().pointer_mut().cast::<f32>();
        let stream = self.stream.cu_stream().cast();
        result::group_start().map_err(failed("ncclGroupStart"))?;
        let ranks = (0..self.size).filter(|&rank| rank != self.rank);
        let queued = ranks.enumerate().try_for_each(|(place, rank)| {
            let kind = sys::ncclDataType_t::ncclFloat;
            // SAFETY: the vectors have a slice at these places, by the lengths above, on the communicator's device, whose
            // kernels were waited for (`VectorMemory`). The borrows keep the memory until the stream is waited for below.
            unsafe {
                let from = from.add(place * step).cast();
                result::send(from, slice, kind, int(rank), self.communicator, stream)
                    .map_err(failed("ncclSend"))?;
                let to = to.add(place * slice).cast();
                result::recv(to, slice, kind, int(rank), self.communicator, stream)
                    .map_err(failed("ncclRecv"))
                    .map(drop)
            }
        });
        // Also after an error: a group that is left open would take the calls of the next one.
        let ended = result::group_end().map_err(failed("ncclGroupEnd"));
        let done = self.stream.synchronize().map_err(|error| error.to_string());
        queued.and(ended.map(drop)).and(done)
    }
}

/// The number of a CUDA device.
fn number_of<B: Backend>(device: &Device<B>) -> Result<usize, String> {
    let device = (device as &dyn Any).downcast_ref::<CudaDevice>();
    let device = device.ok_or("it exchanges the memory of CUDA devices only")?;
    Ok(device.index)
}

fn int(number: usize) -> std::ffi::c_int {
    std::ffi::c_int::try_from(number).unwrap_or(std::ffi::c_int::MAX)
}

/// Names the function that failed.
fn failed(function: &'static str) -> impl FnOnce(NcclError) -> String {
    move |error| format!("{function} failed: {:?}", error.0)
}
