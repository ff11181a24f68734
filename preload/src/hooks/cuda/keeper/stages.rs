//! Pieces of device memory into which the agent has content copied that cannot be exported where it is. They are its own for
//! as long as a hold lasts, and nobody's records know them.

use core::ffi::c_int;

use super::super::driver::{CuResult, SUCCESS};
use super::functions::{self, Access, Properties};

/// The most that there are at once.
const STAGES: usize = 16;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: CuResult = 2;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: CuResult = 500;

/// Where they are, and how long.
pub struct Stages([Option<(u64, usize)>; STAGES]);

fn done(result: CuResult) -> Result<(), CuResult> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}

impl Stages {
    pub const fn new() -> Self {
        Self([None; STAGES])
    }

    /// A new one: its address, and how long it is.
    pub fn make(&mut self, device: c_int, wanted: u64) -> Result<(u64, u64), CuResult> {
        let free = self.0.iter_mut().find(|stage| stage.is_none()).ok_or(OUT_OF_MEMORY)?;
        let properties = Properties::exportable(device);
        let mut unit = 0;
        // SAFETY: a place to write to, and live properties.
        done(unsafe { functions::granularity(&raw mut unit, &raw const properties, 0) })?;
        let bytes = (wanted.max(1) as usize).checked_next_multiple_of(unit).ok_or(OUT_OF_MEMORY)?;
        let mut memory = 0;
        // SAFETY: as above.
        done(unsafe { functions::create(&raw mut memory, bytes, &raw const properties, 0) })?;
        let mapped = map(device, memory, bytes);
        // SAFETY: a reference of ours. Mapped memory stays.
        unsafe { functions::release(memory) };
        let address = mapped?;
        *free = Some((address, bytes));
        Ok((address, bytes as u64))
    }

    /// Gives the one at `address` back.
    pub fn give_back(&mut self, address: u64) -> Result<(), CuResult> {
        let there = |stage: &&mut Option<(u64, usize)>| stage.is_some_and(|(start, _)| start == address);
        let (address, bytes) = self.0.iter_mut().find(there).and_then(Option::take).ok_or(NOT_FOUND)?;
        give_back(address, bytes)
    }

    /// Gives all back.
    pub fn end(&mut self) {
        for (address, bytes) in self.0.iter_mut().filter_map(Option::take) {
            let _ = give_back(address, bytes);
        }
    }
}

/// At addresses that nobody else has.
fn map(device: c_int, memory: u64, bytes: usize) -> Result<u64, CuResult> {
    let mut address = 0;
    // SAFETY: a place to write to.
    done(unsafe { functions::reserve(&raw mut address, bytes, 0, 0, 0) })?;
    // SAFETY: reserved just now, and as long as the memory.
    let mut result = unsafe { functions::map(address, bytes, 0, memory, 0) };
    if result == SUCCESS {
        let access = Access::all(device);
        // SAFETY: mapped just now; live access.
        result = unsafe { functions::set_access(address, bytes, &raw const access, 1) };
        if result != SUCCESS {
            // SAFETY: ours.
            unsafe { functions::unmap(address, bytes) };
        }
    }
    if result != SUCCESS {
        // SAFETY: ours.
        unsafe { functions::free_addresses(address, bytes) };
    }
    done(result).map(|()| address)
}

fn give_back(address: u64, bytes: usize) -> Result<(), CuResult> {
    // SAFETY: made here, and nobody uses it any more.
    done(unsafe { functions::unmap(address, bytes) })?;
    // SAFETY: as above.
    done(unsafe { functions::free_addresses(address, bytes) })
}
