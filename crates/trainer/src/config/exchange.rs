//! The memory that ranks exchange.

use burn::tensor::{Device, Tensor};
use emberlm_kernels::{AddressedVector, Backend};
use serde::{Deserialize, Serialize};

use super::check::require;
use crate::error::TrainError;

emberlm_system::named! {
    /// The memory of gradients and parameters that ranks exchange. It does not change the results.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ExchangeMemory {
        /// That of the host, to which devices copy.
        #[default]
        Host = "host",
        /// That of the device, by its address: by NCCL between CUDA devices, else by an MPI library that is able to access it.
        Device = "device",
    }
}

impl ExchangeMemory {
    /// Checks that the memory of `device` has addresses, if it is to be exchanged.
    pub(crate) fn check_device<B: Backend>(self, device: &Device<B>) -> Result<(), TrainError> {
        let has_addresses = || AddressedVector::<B>::new(Tensor::zeros([1], device)).is_some();
        let backend = B::name(device);
        let rule = format!("must be host on {backend}, whose memory has no addresses");
        let holds = self == Self::Host || has_addresses();
        require("train", "exchange", self.name(), holds, &rule)
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;

    #[test]
    fn only_backends_with_addresses_exchange_their_memory() {
        let [flex, ndarray] = [ExchangeMemory::Host, ExchangeMemory::Device].map(|memory| {
            memory.check_device::<Flex>(&Default::default()).unwrap();
            memory.check_device::<NdArray>(&Default::default())
        });
        flex.unwrap();
        assert_eq!(
            ndarray.unwrap_err().to_string(),
            "train.exchange = device: must be host on ndarray, whose memory has no addresses"
        );
    }
}
