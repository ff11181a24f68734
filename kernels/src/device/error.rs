//! What can go wrong with a device.

use std::{io, path::PathBuf};

use crate::merkle;

/// Or an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// What can go wrong with a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver, or one that is too old.
    #[error("cannot use {} as the CUDA driver: {why}; install NVIDIA's driver, or name its libcuda.so.1", path.display())]
    NoDriver {
        /// The library.
        path: PathBuf,
        /// Why it cannot be opened, or which of its names is missing.
        why: String,
    },
    /// No device of this process is the one that is meant.
    #[error(
        "no device here has the UUID {}: another process may see devices that this one does not",
        hexadecimal(uuid)
    )]
    NoDevice {
        /// The UUID that it was looked for by.
        uuid: [u8; 16],
    },
    /// The driver refused a call.
    #[error("{call} failed: {name} ({code})")]
    Call {
        /// The entry point.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// The driver's name for it.
        name: String,
    },
    /// A bound that is none.
    #[error("CKPT_DEVICE_MEMORY is {value:?}, which is no bound of device memory: give bytes, or as 512K, 512M or 80G")]
    NoBound {
        /// What it is.
        value: String,
    },
    /// More memory than the engine may have.
    #[error("{bytes} bytes more would pass the bound of {bytes_max} bytes of device memory (CKPT_DEVICE_MEMORY)")]
    Bound {
        /// What was to be allocated.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// More memory than the device has left.
    #[error("the device has no {bytes} bytes more")]
    Memory {
        /// What was to be allocated.
        bytes: u64,
    },
    /// What goes wrong on a CPU too.
    #[error(transparent)]
    Merkle(#[from] merkle::Error),
}

fn hexadecimal(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Error {
    /// How many bytes there were not, if that is all.
    pub(super) fn missing_bytes(&self) -> Option<u64> {
        match self {
            Self::Bound { bytes, .. } | Self::Memory { bytes } => Some(*bytes),
            _ => None,
        }
    }

    /// The refusal of an allocation.
    pub(super) fn of_allocation(self, bytes: u64) -> Self {
        match self {
            Self::Call { code: OUT_OF_MEMORY, .. } => Self::Memory { bytes },
            other => other,
        }
    }

    pub(super) fn sink(checkpoint: u32) -> impl Fn(io::Error) -> Self {
        move |source| Self::Merkle(merkle::Error::Sink { checkpoint, source })
    }
}
