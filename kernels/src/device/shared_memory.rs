//! Device memory of another process, mapped here as well.
//!
//! It is there for as long as anybody has it: the other process may unmap it, or end, without a fault on this side.

use std::{
    ffi::{c_int, c_void},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
    sync::Arc,
};

use super::{
    context::Context,
    entry_points::{Address, SharingEntryPoints},
    error::{Error, Result},
};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`, and `..._READWRITE`.
const READ: c_int = 1;
const READ_AND_WRITE: c_int = 3;

/// Memory of another process, for reading.
pub struct SharedMemory {
    context: Arc<Context>,
    address: Address,
    bytes: u64,
}

impl SharedMemory {
    /// Maps the physical memory that another process has exported by this descriptor; it has so many bytes.
    ///
    /// # Errors
    /// When the driver refuses; [`Error::NoDevice`] where the context was not made by [`Context::of`].
    pub fn map(context: &Arc<Context>, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let (device, driver) = context.sharing().ok_or(Error::NoDevice { uuid: [0; 16] })?;
        let (mut physical, mut address) = (0, 0);
        // SAFETY: each writes where it is told to. The number of the descriptor is what the driver takes for it.
        unsafe {
            let number = ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
            driver.import(&raw mut physical, number, DESCRIPTOR)?;
        }
        // SAFETY: it writes where it is told to.
        let mapped = unsafe { driver.reserve(&raw mut address, bytes as usize, 0, 0, 0) }
            .and_then(|()| place(driver, device, physical, address, bytes));
        // The mapping keeps it.
        // SAFETY: the reference is ours.
        let released = unsafe { driver.release(physical) };
        mapped.and(released)?;
        Ok(Self { context: context.clone(), address, bytes })
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

/// Maps physical memory at addresses that are reserved; they are given back if that fails.
fn place(driver: &SharingEntryPoints, device: c_int, physical: u64, address: Address, bytes: u64) -> Result<()> {
    let bytes = bytes as usize;
    // SAFETY: the addresses are ours.
    let mapped = unsafe { driver.map(address, bytes, 0, physical, 0) }.and_then(|()| {
        let access = |flags| {
            let wanted = [ON_DEVICE, device, flags];
            // SAFETY: one description of access, laid out as CUmemAccessDesc.
            unsafe { driver.set_access(address, bytes, &raw const wanted, 1) }
        };
        // Not every driver knows memory that can only be read.
        access(READ).or_else(|_| access(READ_AND_WRITE)).inspect_err(|_| {
            // SAFETY: mapped above.
            drop(unsafe { driver.unmap(address, bytes) });
        })
    });
    mapped.inspect_err(|_| {
        // SAFETY: reserved by the caller, and nothing is mapped there.
        drop(unsafe { driver.give_back(address, bytes) });
    })
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let Some((_, driver)) = self.context.sharing() else { return };
        let _entered = self.context.enter();
        // SAFETY: mapped and reserved by `map`, once. Whoever reads it has finished: it is borrowed from this for that.
        unsafe {
            drop(driver.unmap(self.address, self.bytes as usize));
            drop(driver.give_back(self.address, self.bytes as usize));
        }
    }
}
