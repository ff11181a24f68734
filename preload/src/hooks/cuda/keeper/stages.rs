//! Pieces of device memory into which the agent has content copied that cannot be exported where it is. They are its own for
//! as long as a hold lasts, and nobody's records know them.

use core::ffi::c_int;

use super::super::backing::calls::{self, OUT_OF_MEMORY, Properties};
use super::super::backing::pieces;
use super::super::driver::CuResult;

/// The most that there are at once.
const STAGES: usize = 16;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: CuResult = 500;

/// Where they are, and how long.
pub struct Stages([Option<(u64, usize)>; STAGES]);

impl Stages {
    pub const fn new() -> Self {
        Self([None; STAGES])
    }

    /// A new one: its address, and how long it is.
    pub fn make(&mut self, device: c_int, wanted: u64) -> Result<(u64, u64), CuResult> {
        let free = self.0.iter_mut().find(|stage| stage.is_none()).ok_or(OUT_OF_MEMORY)?;
        let properties = Properties::of(device, false);
        let unit = calls::granularity(&properties)?;
        let bytes = (wanted.max(1) as usize).checked_next_multiple_of(unit).ok_or(OUT_OF_MEMORY)?;
        let memory = calls::create(bytes, &properties)?;
        let mapped = pieces::map_at_new_addresses(memory, bytes, device);
        // Mapped memory stays.
        calls::release(memory);
        let address = mapped?;
        *free = Some((address, bytes));
        Ok((address, bytes as u64))
    }

    /// Gives the one at `address` back.
    pub fn give_back(&mut self, address: u64) -> Result<(), CuResult> {
        let there = |stage: &&mut Option<(u64, usize)>| stage.is_some_and(|(start, _)| start == address);
        let (address, bytes) = self.0.iter_mut().find(there).and_then(Option::take).ok_or(NOT_FOUND)?;
        pieces::unmap(address, bytes)
    }

    /// Gives all back.
    pub fn end(&mut self) {
        for (address, bytes) in self.0.iter_mut().filter_map(Option::take) {
            let _ = pieces::unmap(address, bytes);
        }
    }
}
