//! What the program has advised of managed memory (`cuMemAdvise`), which the driver forgets when that is evacuated, and is told again when
//! it comes back. What is pinned in its place meanwhile the driver takes no advice of: that is answered here.
//!
//! It is remembered for pages, as drivers do. Who allocates and frees need not care: what was advised of earlier memory at the
//! same addresses is forgotten when the driver gives these away anew, before the program knows of it.

mod runs;

use core::ffi::{c_int, c_uint};

use ckpt_wire::allocations::CudaAllocation;

use super::driver::{CuResult, SUCCESS};
use super::records;
use crate::log;
use crate::section::Section;

// `CUmem_advise`.
const SET_READ_MOSTLY: c_int = 1;
const UNSET_READ_MOSTLY: c_int = 2;
const SET_PREFERRED_LOCATION: c_int = 3;
const UNSET_PREFERRED_LOCATION: c_int = 4;
const SET_ACCESSED_BY: c_int = 5;
const UNSET_ACCESSED_BY: c_int = 6;

/// `CU_DEVICE_CPU`, and `CU_DEVICE_INVALID`: none.
const HOST_DEVICE: c_int = -1;
const NO_DEVICE: c_int = -2;

// `CUmem_range_attribute`.
const READ_MOSTLY: c_int = 1;
const PREFERRED_LOCATION: c_int = 2;
/// Of all processors.
pub const ACCESSED_BY: c_int = 3;
const LAST_PREFETCH_LOCATION: c_int = 4;
const PREFERRED_LOCATION_TYPE: c_int = 5;
const PREFERRED_LOCATION_ID: c_int = 6;

/// A `CUmemLocation`: its type (`CU_MEM_LOCATION_TYPE_*`), and the number of the device or node. Passed in one register.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Location {
    kind: u32,
    number: c_int,
}

const NOWHERE: u32 = 0;
const ON_DEVICE: u32 = 1;
const ON_HOST: u32 = 2;

impl Location {
    const NONE: Self = Self { kind: NOWHERE, number: 0 };

    /// As the newer calls have it.
    pub const fn of(passed: u64) -> Self {
        Self { kind: passed as u32, number: (passed >> 32) as c_int }
    }

    /// As the older ones have it.
    pub const fn of_device(device: c_int) -> Self {
        if device == HOST_DEVICE { Self { kind: ON_HOST, number: 0 } } else { Self { kind: ON_DEVICE, number: device } }
    }

    const fn passed(self) -> u64 {
        self.kind as u64 | (self.number as c_uint as u64) << 32
    }

    /// As questions about ranges answer it.
    const fn device(self) -> c_int {
        match self.kind {
            NOWHERE => NO_DEVICE,
            ON_DEVICE => self.number,
            _ => HOST_DEVICE,
        }
    }
}

/// Devices that memory can be said to be accessed by; the last bit is the host's.
const DEVICES_MAX: u32 = u64::BITS - 1;

/// What was advised of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    is_read_mostly: bool,
    preferred: Location,
    accessed_by: u64,
}

impl Advice {
    /// Nothing.
    pub const NONE: Self = Self { is_read_mostly: false, preferred: Location::NONE, accessed_by: 0 };

    fn take(&mut self, advice: c_int, location: Location) {
        let processor = match location.kind {
            ON_DEVICE => location.number.cast_unsigned(),
            _ => DEVICES_MAX,
        };
        let accessor = 1_u64.checked_shl(processor).unwrap_or(0);
        match advice {
            SET_READ_MOSTLY => self.is_read_mostly = true,
            UNSET_READ_MOSTLY => self.is_read_mostly = false,
            SET_PREFERRED_LOCATION => self.preferred = location,
            UNSET_PREFERRED_LOCATION => self.preferred = Location::NONE,
            SET_ACCESSED_BY => self.accessed_by |= accessor,
            UNSET_ACCESSED_BY => self.accessed_by &= !accessor,
            _ => {}
        }
    }

    /// What holds of memory of which this and that hold.
    fn both(self, other: Self) -> Self {
        let preferred = if self.preferred == other.preferred { self.preferred } else { Location::NONE };
        let is_read_mostly = self.is_read_mostly && other.is_read_mostly;
        Self { is_read_mostly, preferred, accessed_by: self.accessed_by & other.accessed_by }
    }

    /// The processors that access it, as questions answer it: the host first.
    fn processors(self) -> impl Iterator<Item = c_int> {
        let is_in = move |bit: u32| self.accessed_by >> bit & 1 == 1;
        let host = is_in(DEVICES_MAX).then_some(HOST_DEVICE);
        host.into_iter().chain((0..DEVICES_MAX).filter(move |&bit| is_in(bit)).map(|bit| bit.cast_signed()))
    }

    /// The number that answers a question about one attribute, the `at`-th where there are several.
    pub fn answer(self, attribute: c_int, at: usize) -> c_int {
        match attribute {
            READ_MOSTLY => self.is_read_mostly.into(),
            PREFERRED_LOCATION => self.preferred.device(),
            ACCESSED_BY => self.processors().nth(at).unwrap_or(NO_DEVICE),
            LAST_PREFETCH_LOCATION => NO_DEVICE,
            PREFERRED_LOCATION_TYPE => self.preferred.kind.cast_signed(),
            PREFERRED_LOCATION_ID => self.preferred.number,
            _ => 0,
        }
    }
}

/// Remembers advice that has been taken.
pub fn remember(address: u64, bytes: usize, advice: c_int, location: Location) {
    if !records::containing(address).is_some_and(|found| found.can_be_evacuated()) {
        return;
    }
    let (start, end) = runs::pages(address, bytes as u64);
    let mut all = runs::take();
    if !all.change(start, end, |of_page| of_page.take(advice, location)) {
        // Some of them are of memory that is there no more.
        all.retain(|run| records::next_before(run.start, run.end, CudaAllocation::can_be_evacuated).is_some());
        let _ = all.change(start, end, |of_page| of_page.take(advice, location));
    }
}

/// Forgets what was advised of memory that was there before `bytes` at `address`, which are not recorded yet. A page on which there is other
/// memory keeps what was advised of it.
pub fn forget(address: u64, bytes: u64) {
    if !runs::are_there() {
        return;
    }
    let (mut start, mut end) = runs::pages(address, bytes);
    let (behind_first, before_last) = (runs::pages(address, 1).1, runs::pages(address.saturating_add(bytes) - 1, 1).0);
    let is_used = |from: u64, to: u64| {
        let is_managed = CudaAllocation::can_be_evacuated;
        records::containing(from).is_some_and(|found| is_managed(&found))
            || records::next_before(from, to, is_managed).is_some()
    };
    if is_used(start, behind_first) {
        start = behind_first;
    }
    if is_used(before_last, end) {
        end = before_last;
    }
    if start < end {
        runs::take().forget(start, end);
    }
}

/// What holds of all of these bytes.
pub fn of(address: u64, bytes: usize) -> Advice {
    let (start, end) = runs::pages(address, bytes as u64);
    let mut all = runs::take();
    let mut found: Option<Advice> = None;
    let mut from = start;
    while from < end {
        let run = all.behind(from).filter(|run| run.start <= from);
        let advice = run.map_or(Advice::NONE, |run| run.advice);
        found = Some(found.map_or(advice, |before| before.both(advice)));
        if advice == Advice::NONE {
            break;
        }
        from = run.map_or(end, |run| run.end);
    }
    found.unwrap_or(Advice::NONE)
}

/// Gives all advice of an allocation that is the driver's again, by `advise`; the last error, of advice that was not taken.
pub fn give_again(
    allocation: &CudaAllocation,
    mut advise: impl FnMut(u64, usize, c_int, u64) -> CuResult,
) -> Result<(), CuResult> {
    let end = allocation.address + allocation.bytes;
    let (mut from, mut outcome) = (allocation.address, Ok(()));
    while runs::are_there() && from < end {
        let Some(run) = runs::take().behind(from).filter(|run| run.start < end) else { break };
        let (start, advice) = (run.start.max(from), run.advice);
        from = run.end;
        let mut give = |what: c_int, location: Location| {
            let result = advise(start, (run.end.min(end) - start) as usize, what, location.passed());
            if result != SUCCESS {
                outcome = Err(result);
            }
        };
        if advice.is_read_mostly {
            // Wherever that is.
            give(SET_READ_MOSTLY, Location::of_device(HOST_DEVICE));
        }
        if advice.preferred != Location::NONE {
            give(SET_PREFERRED_LOCATION, advice.preferred);
        }
        advice.processors().for_each(|processor| give(SET_ACCESSED_BY, Location::of_device(processor)));
    }
    outcome
}

/// Tells the user that memory is slower than it might be.
pub fn say_not_taken(error: CuResult) {
    let Some(mut section) = Section::enter() else { return };
    log::append(&mut section, |line| {
        line.push(b"what was advised of managed memory cannot be advised again (error ");
        line.push_decimal(u64::from(error.unsigned_abs()), 1);
        line.push(b" of the CUDA driver): its content is right, and devices may be slower with it");
    });
}
