//! The image: everything a checkpoint says about a process except the bytes of its pages.
//!
//! It is the contract between capture and restore, and the only thing they share. Each kind of kernel object has
//! a record of its own; an image is encoded as CBOR with named fields, so that a field can be added without
//! making old checkpoints unreadable. Nothing here talks to the kernel.

mod allocation;
mod descriptor;
mod memory;
mod process;
mod thread;

pub use allocation::{Allocation, AllocationKind};
pub use descriptor::{Descriptor, EpollTarget, FileKind, OpenFile, PipeContent};
pub use memory::{
    Advice, Backing, FileIdentity, PageRange, Protection, Region, SharedObject, SpecialMapping, StoredDifference,
    blocks,
};
pub use process::{Capabilities, Host, IntervalTimer, Layout, Limit, ProcessImage, Role, SignalAction};
pub use thread::{AlternateStack, RobustList, Rseq, Scheduling, ThreadImage};

use crate::error::{Error, Result};

/// Version of the image; raised when a field changes its meaning.
pub const IMAGE_VERSION: u32 = 0;

/// Encodes an image for the store.
pub fn encode(image: &ProcessImage) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a Vec cannot fail, and every type here is representable in CBOR.
    if let Err(error) = ciborium::into_writer(image, &mut bytes) {
        unreachable!("an image is always encodable: {error}");
    }
    bytes
}

/// Decodes the image of checkpoint `id`.
pub fn decode(id: u64, bytes: &[u8]) -> Result<ProcessImage> {
    let image: ProcessImage =
        ciborium::from_reader(bytes).map_err(|error| Error::BadImage { id, why: error.to_string() })?;
    if image.version != IMAGE_VERSION {
        let why = format!("version {}, this ckpt reads {IMAGE_VERSION}", image.version);
        return Err(Error::BadImage { id, why });
    }
    Ok(image)
}
