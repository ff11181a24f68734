//! Allocations that the driver is asked for once more, at the addresses that they had.
//!
//! It gives addresses as it likes. But where these are free, and it is asked in the order in which the program had asked, it tends
//! to give the same. What comes at another address is held for a while, so that the next comes elsewhere.

use ckpt_wire::allocations::CUDA_MANAGED_EVACUATED;

use super::super::functions::{self, ATTACH_GLOBAL};
use super::for_each;
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

/// All that are evacuated, in the order in which the program has allocated them.
pub struct Wanted {
    all: *mut One,
    count: usize,
    /// Bytes of the mapping that they are in.
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
        let bytes = (count * size_of::<One>()).max(1);
        let all = sys::map_zeros(bytes).map_err(|error| -error.0)?.cast::<One>();
        let mut wanted = Wanted { all, count: 0, bytes };
        for_each(CUDA_MANAGED_EVACUATED, |found| {
            let one = One {
                id: found.id,
                address: found.address,
                bytes: found.bytes,
                context: found.context,
                is_there: false,
            };
            // SAFETY: there is room for as many as were counted, and none has come since: the gate is closed.
            unsafe { wanted.all.add(wanted.count).write(one) };
            wanted.count += 1;
            Ok(())
        })?;
        sort(wanted.all_mut(), |one| one.id);
        Ok(wanted)
    }

    /// Whether the driver has given any of them.
    pub fn is_any_there(&self) -> bool {
        self.all().iter().any(|one| one.is_there)
    }

    /// Those in so many bytes from an address on, when all have been asked for.
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
            let mut tries = 0;
            while tries < TRIES {
                let Some(one) = self.all().get(at).copied().filter(|one| !one.is_there) else { break };
                let Some(address) = one.ask() else { break 'all };
                if let Some(come) = self.waiting_for(address, &one) {
                    // It is as good as this one.
                    come.is_there = true;
                } else if let Some(place) = held.get_mut(count) {
                    *place = address;
                    count += 1;
                    tries += 1;
                } else {
                    free(address);
                    break 'all;
                }
            }
        }
        held.iter().take(count).copied().for_each(free);
        sort(self.all_mut(), |one| one.address);
    }

    /// The one that was at an address, and is else like this one, if it has not come yet.
    fn waiting_for(&mut self, address: u64, like: &One) -> Option<&mut One> {
        let is_like = |one: &One| one.bytes == like.bytes && one.context == like.context;
        self.all_mut().iter_mut().find(|one| one.address == address && is_like(one) && !one.is_there)
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

/// Sorts in place, by growing insertion (Shell, with Gonnet's gaps): unlike the sort of the core library, it has no path to a panic.
fn sort(all: &mut [One], key: impl Fn(&One) -> u64) {
    let mut gap = all.len() / 2;
    while gap > 0 {
        for at in gap..all.len() {
            let mut place = at;
            while let Some(before) = place.checked_sub(gap)
                && let (Some(&one), Some(&other)) = (all.get(before), all.get(place))
                && key(&one) > key(&other)
            {
                for (to, what) in [(before, other), (place, one)] {
                    if let Some(there) = all.get_mut(to) {
                        *there = what;
                    }
                }
                place = before;
            }
        }
        gap = if gap == 2 { 1 } else { gap * 5 / 11 };
    }
}

fn free(address: u64) {
    // SAFETY: just allocated, and nobody else knows it.
    let _ = unsafe { functions::free(address) };
}
