//! Allocations that the driver is asked for once more, at the addresses that they had.
//!
//! It gives addresses as it likes. But where these are free, and it is asked in the order in which the program had asked, it tends
//! to give the same. What comes at another address is held for a while, so that the next comes elsewhere.

use ckpt_wire::allocations::CUDA_MANAGED_EVACUATED;

use super::super::functions::{self, ATTACH_GLOBAL};
use super::for_each;
use super::sort::sort;
use crate::hooks::cuda::driver::{CuResult, Handle, SUCCESS};
use crate::sys;

/// How often one is asked for that comes where none was.
const TRIES: usize = 4;
/// As many as are held at other addresses.
const HELD_MAX: usize = 64;

/// An allocation.
#[derive(Clone, Copy)]
pub struct One {
    id: u64,
    /// Its address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    context: u64,
    /// Whether the driver has given it.
    pub is_there: bool,
}

/// All that are evacuated, in the order of addresses.
pub struct Wanted {
    all: *mut One,
    /// Their places, in the order in which the program has allocated them.
    order: *mut usize,
    count: usize,
    /// Bytes of the mapping that both are in.
    bytes: usize,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::unmap(self.all.cast(), self.bytes) };
    }
}

impl Wanted {
    /// Those that there are.
    pub fn collect() -> Result<Wanted, CuResult> {
        let mut count = 0;
        for_each(CUDA_MANAGED_EVACUATED, |_| {
            count += 1;
            Ok(())
        })?;
        let bytes = (count * (size_of::<One>() + size_of::<usize>())).max(1);
        let all = sys::map_zeros(bytes).map_err(|error| -error.0)?.cast::<One>();
        // SAFETY: the mapping has room for as many places behind as many allocations.
        let order = unsafe { all.add(count) }.cast::<usize>();
        let mut wanted = Wanted { all, order, count: 0, bytes };
        for_each(CUDA_MANAGED_EVACUATED, |found| {
            let one = One {
                id: found.id,
                address: found.address,
                bytes: found.bytes,
                context: found.context,
                is_there: false,
            };
            // SAFETY: there is room for as many as were counted, and none has come since: the gate is closed.
            unsafe {
                wanted.all.add(wanted.count).write(one);
                wanted.order.add(wanted.count).write(wanted.count);
            }
            wanted.count += 1;
            Ok(())
        })?;
        // SAFETY: so many have been written, and nobody else knows them.
        let order = unsafe { core::slice::from_raw_parts_mut(wanted.order, wanted.count) };
        sort(order, |&place| wanted.all().get(place).map_or(0, |one| one.id));
        Ok(wanted)
    }

    /// Whether the driver has given any of them.
    pub fn is_any_there(&self) -> bool {
        self.all().iter().any(|one| one.is_there)
    }

    /// Those in so many bytes from an address on.
    pub fn within(&self, start: usize, bytes: usize) -> &[One] {
        self.all().get(self.places(start, bytes)).unwrap_or_default()
    }

    fn places(&self, start: usize, bytes: usize) -> core::ops::Range<usize> {
        let place = |end: usize| self.all().partition_point(|one| (one.address as usize) < end);
        place(start)..place(start + bytes)
    }

    /// Frees those of them that are there.
    pub fn give_back(&mut self, start: usize, bytes: usize) {
        let places = self.places(start, bytes);
        for one in self.all_mut().get_mut(places).unwrap_or_default().iter_mut().filter(|one| one.is_there) {
            free(one.address);
            one.is_there = false;
        }
    }

    fn all(&self) -> &[One] {
        // SAFETY: so many have been written.
        unsafe { core::slice::from_raw_parts(self.all, self.count) }
    }

    fn all_mut(&mut self) -> &mut [One] {
        // SAFETY: as above, and they are this one's alone.
        unsafe { core::slice::from_raw_parts_mut(self.all, self.count) }
    }

    /// Asks the driver for each, as long as some come where they were.
    pub fn allocate(&mut self) {
        let (mut held, mut count) = ([0; HELD_MAX], 0);
        'all: for at in 0..self.count {
            // SAFETY: as many places as allocations have been written.
            let place = unsafe { self.order.add(at).read() };
            let mut tries = 0;
            while tries < TRIES {
                let Some(one) = self.all().get(place).copied().filter(|one| !one.is_there) else { break };
                let Some(address) = one.ask() else { break 'all };
                if let Some(come) = self.waiting_for(address, &one) {
                    // It is as good as this one.
                    come.is_there = true;
                } else if let Some(room) = held.get_mut(count) {
                    *room = address;
                    count += 1;
                    tries += 1;
                } else {
                    free(address);
                    break 'all;
                }
            }
        }
        held.iter().take(count).copied().for_each(free);
    }

    /// The one that was at an address, and is else like this one, if it has not come yet.
    fn waiting_for(&mut self, address: u64, like: &One) -> Option<&mut One> {
        let is_like = |one: &One| one.bytes == like.bytes && one.context == like.context;
        let place = self.all().partition_point(|one| one.address < address);
        self.all_mut().get_mut(place).filter(|one| one.address == address && is_like(one) && !one.is_there)
    }
}

impl One {
    fn ask(&self) -> Option<u64> {
        let mut address = 0;
        // SAFETY: a context that cannot end while the gate is closed, and a place for an address.
        unsafe {
            if self.context != 0 && functions::set_current(self.context as Handle) != SUCCESS {
                return None;
            }
            let result = functions::allocate_managed(&raw mut address, self.bytes as usize, ATTACH_GLOBAL);
            (result == SUCCESS).then_some(address)
        }
    }
}

fn free(address: u64) {
    // SAFETY: just allocated, and nobody else knows it.
    let _ = unsafe { functions::free(address) };
}
