//! The addresses at which the driver has mapped its devices. While it has let them go nothing is there, and what a thread maps
//! meanwhile may come to lie just there; but the driver needs the same addresses again. So they are reserved until then.
//!
//! The keeper alone does this, while the gate is closed.

use super::address_space;
use crate::shared::Shared;
use crate::sys;

/// Addresses from the first to the one behind the last.
type Range = [usize; 2];

/// As many as are remembered. A process with eight devices has some hundred.
const RANGES_MAX: usize = 4096;

struct Noted {
    /// Mapped when the first is noted.
    ranges: *mut Range,
    count: usize,
}

static NOTED: Shared<Noted> = Shared::new(Noted { ranges: core::ptr::null_mut(), count: 0 });

fn ranges() -> &'static mut [Range] {
    // SAFETY: used by the keeper alone; so many have been written.
    unsafe {
        let noted = &*NOTED.get();
        if noted.ranges.is_null() { &mut [] } else { core::slice::from_raw_parts_mut(noted.ranges, noted.count) }
    }
}

/// Notes where devices are mapped now.
pub fn note() {
    // SAFETY: used by the keeper alone.
    let noted = unsafe { &mut *NOTED.get() };
    noted.count = 0;
    if noted.ranges.is_null() {
        let Ok(room) = sys::map_zeros(RANGES_MAX * size_of::<Range>()) else { return };
        noted.ranges = room.cast();
    }
    // As far as /proc says it.
    let _ = address_space::for_each(&mut |mapping| {
        if mapping.is_of_device() && noted.count < RANGES_MAX {
            // SAFETY: there is room for one more.
            unsafe { noted.ranges.add(noted.count).write(mapping.range) };
            noted.count += 1;
        }
    });
}

/// Reserves those at which nothing is mapped.
pub fn take() {
    for range in ranges() {
        let [start, end] = *range;
        if sys::reserve(start, end - start).is_err() {
            // The driver has kept it, or somebody was faster: it is not ours to give back.
            *range = [0; 2];
        }
    }
}

/// Gives them back, for the driver.
pub fn give_back() {
    for &mut [start, end] in ranges() {
        if end != 0 {
            // SAFETY: ours, and nobody can use it.
            unsafe { sys::unmap(start as *mut u8, end - start) };
        }
    }
}
