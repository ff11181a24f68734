//! Memory of the device, and memory of the host that the device reaches.

use std::{
    ffi::c_void,
    ops::{Deref, DerefMut},
    ptr,
    sync::Arc,
};

use super::{context::Context, entry_points::Address, error::Result};

/// Device memory. Its content is undefined at first.
pub struct Buffer {
    context: Arc<Context>,
    address: Address,
    bytes: u64,
}

impl Buffer {
    /// # Errors
    /// When there is not as much, or it may not be taken.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<Self> {
        context.take(bytes)?;
        let mut buffer = Self { context: context.clone(), address: 0, bytes };
        if bytes > 0 {
            let mut address = 0;
            // SAFETY: it writes where it is told to.
            unsafe { context.driver().allocate(&raw mut address, bytes as usize) }
                .map_err(|error| error.of_allocation(bytes))?;
            buffer.address = address;
        }
        Ok(buffer)
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.address != 0 {
            let _entered = self.context.enter();
            // SAFETY: it was allocated and is freed once. Whoever starts work that uses it waits for the work.
            drop(unsafe { self.context.driver().free(self.address) });
        }
        self.context.give_back(self.bytes);
    }
}

/// Host memory that the device copies from and to without the CPU.
pub struct PinnedBuffer {
    context: Arc<Context>,
    place: ptr::NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory that belongs to one owner.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// # Errors
    /// When there is not as much.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let mut place = ptr::null_mut();
        // SAFETY: it writes where it is told to.
        unsafe { context.driver().allocate_host(&raw mut place, bytes.max(1), 0)? };
        // SAFETY: it is as long, and nobody else knows of it. Zeros are bytes; what it held is not known to be.
        unsafe { ptr::write_bytes(place.cast::<u8>(), 0, bytes) };
        let place = ptr::NonNull::new(place.cast::<u8>()).unwrap_or(ptr::NonNull::dangling());
        Ok(Self { context: context.clone(), place, bytes })
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it is as long and was written as a whole. Copies of the device into it are waited for before it is read:
        // whoever starts one sees to that (ring.rs).
        unsafe { std::slice::from_raw_parts(self.place.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and it has one owner.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: it was allocated and is freed once.
        drop(unsafe { self.context.driver().free_host(self.place.as_ptr().cast::<c_void>()) });
    }
}
