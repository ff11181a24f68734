//! Managed memory: the driver's, or, in a program that has been checkpointed or restarted, ordinary memory of the host that the
//! driver has pinned where it is (`keeper::evacuation`), or, with `CKPT_MANAGED_BACKING=pinned`, memory of the host that the driver has pinned.
//!
//! The driver checkpoints pinned memory, but not managed memory. To a program one is what the other is: host and devices have the
//! same bytes at the same address, and threads may use it at any time, also while a checkpoint is taken. But pinned memory does
//! not move: a device reaches it through the bus, each time. So what a program advises, or wants to be moved, comes to nothing, and
//! is answered here; but advice is remembered ([`advice`]) of what may become the driver's again.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use ckpt_wire::allocations::{CUDA_MANAGED, CUDA_MANAGED_PINNED, CUDA_MANAGED_REGISTERED, CudaAllocation};

use super::advice::{ACCESSED_BY, Advice, Location};
use super::backing::calls::{self, INVALID_VALUE, OUT_OF_MEMORY};
use super::driver::{CuResult, Handle, NO_FUNCTION, Real, SUCCESS, driver_hooks};
use super::gate::{self, Passage};
use super::{advice, keeper, memory, records};
use crate::log;
use crate::section::Section;

static HOST_ALLOC: Real<unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> CuResult> =
    Real::new(c"cuMemHostAlloc");
static FREE_HOST: Real<unsafe extern "C" fn(*mut c_void) -> CuResult> = Real::new(c"cuMemFreeHost");

/// `CU_MEMHOSTALLOC_PORTABLE` and `_DEVICEMAP`: for all contexts, and for devices.
const FOR_ALL: c_uint = 1 | 2;
/// `CU_MEM_ATTACH_GLOBAL` and `_HOST`, the ways in which managed memory can be allocated.
const ATTACH_GLOBAL: c_uint = 1;
const ATTACH_HOST: c_uint = 2;

// `CUpointer_attribute`, and of `CUmemorytype` what managed memory is said to be.
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const CONTEXT: c_int = 1;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_BYTES: c_int = 12;
const DEVICE: c_uint = 2;

/// `CUmem_range_attribute`, behind the last.
const RANGE_ATTRIBUTES_END: c_int = 9;
/// `CUmem_advise`, the values that there are.
const ADVICE_FIRST: c_int = 1;
const ADVICE_LAST: c_int = 6;

/// Whether managed memory is pinned memory. Before our constructor has read the user's wish, it is not.
static IS_PINNED: AtomicBool = AtomicBool::new(false);

/// Whether some of it may be, so that where there has been none looking costs nothing.
static MAY_BE_OURS: AtomicBool = AtomicBool::new(false);

/// From now on, what is allocated is pinned, or is the driver's.
pub fn switch(is_pinned: bool) {
    IS_PINNED.store(is_pinned, Ordering::Relaxed);
    if is_pinned {
        may_be_ours();
    }
}

/// From now on, some of it may be pinned.
pub fn may_be_ours() {
    MAY_BE_OURS.store(true, Ordering::Relaxed);
}

/// Whether there has been any, so that where there has been none looking costs nothing.
static HAS_BEEN_THERE: AtomicBool = AtomicBool::new(false);

/// Of managed memory, has a question to the driver that passes a closed gate wait there: while it is evacuated, the driver does not
/// know it.
pub fn passes_gate(address: u64) -> Option<Passage> {
    let found = HAS_BEEN_THERE.load(Ordering::Relaxed).then(|| records::containing(address)).flatten();
    found.filter(CudaAllocation::can_be_evacuated).map(|_| gate::enter())
}

/// The pinned allocation that an address lies in.
pub fn around(address: u64) -> Option<CudaAllocation> {
    let found = MAY_BE_OURS.load(Ordering::Relaxed).then(|| records::containing(address)).flatten();
    found.filter(|found| matches!(found.kind, CUDA_MANAGED_PINNED | CUDA_MANAGED_REGISTERED))
}

fn begins_at(address: u64) -> Option<CudaAllocation> {
    around(address).filter(|found| found.address == address)
}

/// Allocates `bytes`, and records that. If it is the driver's business, why it could not be done, if that was so.
///
/// # Safety
/// As for `cuMemAllocManaged`.
unsafe fn allocate(address: *mut u64, bytes: usize, flags: c_uint) -> Result<(), Option<CuResult>> {
    let is_good = !address.is_null() && bytes != 0 && matches!(flags, ATTACH_GLOBAL | ATTACH_HOST);
    if !IS_PINNED.load(Ordering::Relaxed) || !is_good {
        return Err(None);
    }
    let (context, device) = (calls::current_context().map_err(|_| None)?, calls::current_device().map_err(|_| None)?);
    let mut place = core::ptr::null_mut();
    // SAFETY: a place for one.
    let result = HOST_ALLOC.get().map_or(NO_FUNCTION, |allocate| unsafe { allocate(&raw mut place, bytes, FOR_ALL) });
    if result != SUCCESS {
        return Err(Some(result));
    }
    let given = place as u64;
    let allocation = CudaAllocation::new(CUDA_MANAGED_PINNED, given, bytes as u64);
    records::add(CudaAllocation { context: context as u64, device, ..allocation });
    if records::at(given).is_none() {
        // There is no memory for our records: nobody would know how to free it.
        let _ = free_host(given);
        return Err(Some(OUT_OF_MEMORY));
    }
    // SAFETY: the caller's word.
    unsafe { address.write(given) };
    Ok(())
}

fn free_host(address: u64) -> CuResult {
    // SAFETY: memory that the driver has given for this.
    FREE_HOST.get().map_or(INVALID_VALUE, |free| unsafe { free(address as *mut c_void) })
}

/// Frees what begins at `address` when nothing uses it any more; `other` does it if it is not pinned managed memory.
pub fn free(address: u64, other: impl FnOnce() -> CuResult) -> CuResult {
    let Some(found) = begins_at(address) else { return other() };
    match calls::synchronise(found.context as Handle) {
        Ok(()) if found.kind == CUDA_MANAGED_REGISTERED => {
            memory::free(address, || keeper::free_registered(&found).err().unwrap_or(SUCCESS))
        }
        Ok(()) => memory::free(address, || free_host(address)),
        Err(error) => error,
    }
}

/// Puts answers of the driver's about a pointer right.
///
/// # Safety
/// There must be `count` attributes, and as many places that the driver has written its answers to.
pub unsafe fn correct(count: c_uint, attributes: *const c_int, answers: *const *mut c_void, address: u64) {
    let Some(found) = around(address) else { return };
    for number in 0..count as usize {
        // SAFETY: the caller's word.
        unsafe { correct_as_managed(*answers.add(number), *attributes.add(number), &found) };
    }
}

unsafe fn correct_as_managed(answer: *mut c_void, attribute: c_int, found: &CudaAllocation) {
    // SAFETY: the caller's word; the types are those that cuda.h gives the attributes.
    unsafe {
        match attribute {
            MEMORY_TYPE => answer.cast::<c_uint>().write_unaligned(DEVICE),
            IS_MANAGED => answer.cast::<c_uint>().write_unaligned(1),
            // Several may lie on a page, which was pinned as a whole, by whoever had a context then.
            RANGE_START => answer.cast::<u64>().write_unaligned(found.address),
            RANGE_BYTES => answer.cast::<usize>().write_unaligned(found.bytes as usize),
            CONTEXT => answer.cast::<u64>().write_unaligned(found.context),
            DEVICE_ORDINAL => answer.cast::<c_int>().write_unaligned(found.device),
            _ => {}
        }
    }
}

/// What an operation on pinned memory comes to, which changes nothing. `None` if that is not where it is.
fn nothing(address: u64, bytes: usize) -> Option<CuResult> {
    let found = around(address)?;
    let is_within = bytes != 0 && bytes as u64 <= found.address + found.bytes - address;
    Some(if is_within { SUCCESS } else { INVALID_VALUE })
}

/// Has advice taken, by `real` if it is not of pinned memory, and remembers it.
fn advise(address: u64, bytes: usize, advice: c_int, location: Location, real: impl FnOnce() -> CuResult) -> CuResult {
    let is_advice = (ADVICE_FIRST..=ADVICE_LAST).contains(&advice);
    let of_pinned = nothing(address, bytes).map(|result| if is_advice { result } else { INVALID_VALUE });
    let result = of_pinned.unwrap_or_else(real);
    if result == SUCCESS {
        advice::remember(address, bytes, advice, location);
    }
    result
}

/// What was advised of pinned memory, as far as that is more than nothing.
fn advice_of(address: u64, bytes: usize) -> Advice {
    let is_registered = around(address).is_some_and(|found| found.kind == CUDA_MANAGED_REGISTERED);
    if is_registered { advice::of(address, bytes) } else { Advice::NONE }
}

/// Does what several addresses are given for by `each`, but for pinned ones, where it is nothing; by `all` at once, if none is.
///
/// # Safety
/// There must be `count` addresses and sizes.
unsafe fn of_several(
    addresses: *const u64,
    sizes: *const usize,
    count: usize,
    all: impl FnOnce() -> CuResult,
    mut each: impl FnMut(usize) -> CuResult,
) -> CuResult {
    let is_asked = MAY_BE_OURS.load(Ordering::Relaxed) && !addresses.is_null() && !sizes.is_null();
    // SAFETY: the caller's word.
    let pinned = |number: usize| unsafe { nothing(addresses.add(number).read(), sizes.add(number).read()) };
    if !is_asked || !(0..count).any(|number| pinned(number).is_some()) {
        return all();
    }
    let mut results = (0..count).map(|number| pinned(number).unwrap_or_else(|| each(number)));
    results.find(|&result| result != SUCCESS).unwrap_or(SUCCESS)
}

/// `cuMemPrefetchBatchAsync`, and the one that discards before.
type PrefetchSeveral =
    unsafe extern "C" fn(*mut u64, *mut usize, usize, *mut u64, *mut usize, usize, u64, Handle) -> CuResult;

/// Does what `real` does, but for pinned memory.
///
/// # Safety
/// As for `real`.
#[expect(clippy::too_many_arguments, reason = "they are the driver's")]
unsafe fn prefetch_several(
    real: PrefetchSeveral,
    addresses: *mut u64,
    sizes: *mut usize,
    count: usize,
    places: *mut u64,
    begin_at: *mut usize,
    place_count: usize,
    flags: u64,
    stream: Handle,
) -> CuResult {
    // SAFETY: the caller's word, and of one address at a time: its own place begins at it.
    unsafe {
        of_several(
            addresses,
            sizes,
            count,
            || real(addresses, sizes, count, places, begin_at, place_count, flags, stream),
            |at| {
                let (place, mut first) = (places.add(place_of(begin_at, place_count, at)), 0);
                real(addresses.add(at), sizes.add(at), 1, place, &raw mut first, 1, flags, stream)
            },
        )
    }
}

/// Which of the places is that of an address: the last one that begins at it or before.
///
/// # Safety
/// There must be `count` numbers.
unsafe fn place_of(begin_at: *const usize, count: usize, number: usize) -> usize {
    // SAFETY: the caller's word.
    let behind = (0..count).take_while(|&place| unsafe { begin_at.add(place).read() } <= number).count();
    behind.saturating_sub(1)
}

/// Says of pinned memory what managed memory is said of that this was advised of, and that never moved.
///
/// # Safety
/// `answer` must have room for so many bytes.
unsafe fn answer_of_range(answer: *mut c_void, bytes: usize, attribute: c_int, advised: Advice) -> CuResult {
    let is_known = (1..RANGE_ATTRIBUTES_END).contains(&attribute);
    let is_one = attribute == ACCESSED_BY || bytes == size_of::<c_int>();
    if answer.is_null() || bytes == 0 || !bytes.is_multiple_of(size_of::<c_int>()) || !is_known || !is_one {
        return INVALID_VALUE;
    }
    for number in 0..bytes / size_of::<c_int>() {
        // SAFETY: the caller's word.
        unsafe { answer.cast::<c_int>().add(number).write_unaligned(advised.answer(attribute, number)) };
    }
    SUCCESS
}

/// Tells the user that full checkpoints will be refused in spite of the wish for pinned memory.
fn say_not_pinned(bytes: usize, error: CuResult) {
    let Some(mut section) = Section::enter() else { return };
    log::append(&mut section, |line| {
        line.push(b"managed memory of ").push_decimal(bytes as u64, 1).push(b" bytes cannot be pinned (error ");
        line.push_decimal(u64::from(error.unsigned_abs()), 1);
        line.push(b" of the CUDA driver): it is the driver's, which is evacuated for full checkpoints");
    });
}

driver_hooks! {
    "cuMemAllocManaged" 6000 =>
    cuMemAllocManaged(address: *mut u64, bytes: usize, flags: c_uint) |real| {
        match allocate(address, bytes, flags) {
            Ok(()) => SUCCESS,
            Err(why) => {
                let result = real(address, bytes, flags);
                if result == SUCCESS {
                    HAS_BEEN_THERE.store(true, Ordering::Relaxed);
                    advice::forget(*address, bytes as u64);
                    records::add_plain(CUDA_MANAGED, *address, bytes as u64);
                    if let Some(why) = why {
                        say_not_pinned(bytes, why);
                    }
                }
                result
            }
        }
    }

    "cuMemAdvise" 8000 =>
    cuMemAdvise(address: u64, bytes: usize, advice: c_int, device: c_int) |real| {
        advise(address, bytes, advice, Location::of_device(device), || real(address, bytes, advice, device))
    }

    "cuMemAdvise" 12020 =>
    cuMemAdvise_v2(address: u64, bytes: usize, advice: c_int, place: u64) |real| {
        advise(address, bytes, advice, Location::of(place), || real(address, bytes, advice, place))
    }

    "cuMemRangeGetAttribute" 8000 ungated =>
    cuMemRangeGetAttribute(answer: *mut c_void, bytes: usize, attribute: c_int, address: u64, count: usize) |real| {
        let _passage = passes_gate(address);
        match nothing(address, count) {
            Some(SUCCESS) => answer_of_range(answer, bytes, attribute, advice_of(address, count)),
            Some(error) => error,
            None => real(answer, bytes, attribute, address, count),
        }
    }

    "cuMemRangeGetAttributes" 8000 ungated =>
    cuMemRangeGetAttributes(
        answers: *mut *mut c_void, bytes: *mut usize, attributes: *mut c_int, number: usize, address: u64, count: usize
    ) |real| {
        let _passage = passes_gate(address);
        match nothing(address, count) {
            Some(SUCCESS) if !answers.is_null() && !bytes.is_null() && !attributes.is_null() => (0..number)
                .map(|at| {
                    answer_of_range(*answers.add(at), *bytes.add(at), *attributes.add(at), advice_of(address, count))
                })
                .find(|&result| result != SUCCESS)
                .unwrap_or(SUCCESS),
            Some(_) => INVALID_VALUE,
            None => real(answers, bytes, attributes, number, address, count),
        }
    }
}

/// The kinds for programs with one default stream, and those for programs with one a thread.
macro_rules! in_streams {
    ($(
        $base:literal $since:literal $name:ident, $since_per_thread:literal $name_per_thread:ident =>
        $arguments:tt |$real:ident| $body:block
    )*) => {
        driver_hooks! {
            $(
                $base $since => $name $arguments |$real| $body
                $base $since_per_thread per_thread => $name_per_thread $arguments |$real| $body
            )*
        }
    };
}

in_streams! {
    "cuStreamAttachMemAsync" 6000 cuStreamAttachMemAsync, 7000 cuStreamAttachMemAsync_ptsz =>
    (stream: Handle, address: u64, bytes: usize, flags: c_uint) |real| {
        // 0 means all of it.
        nothing(address, bytes.max(1)).unwrap_or_else(|| real(stream, address, bytes, flags))
    }

    "cuMemPrefetchAsync" 8000 cuMemPrefetchAsync, 8000 cuMemPrefetchAsync_ptsz =>
    (address: u64, bytes: usize, to: c_int, stream: Handle) |real| {
        nothing(address, bytes).unwrap_or_else(|| real(address, bytes, to, stream))
    }

    "cuMemPrefetchAsync" 12020 cuMemPrefetchAsync_v2, 12020 cuMemPrefetchAsync_v2_ptsz =>
    (address: u64, bytes: usize, place: u64, flags: c_uint, stream: Handle) |real| {
        nothing(address, bytes).unwrap_or_else(|| real(address, bytes, place, flags, stream))
    }

    "cuMemPrefetchBatchAsync" 13000 cuMemPrefetchBatchAsync, 13000 cuMemPrefetchBatchAsync_ptsz =>
    (
        addresses: *mut u64, sizes: *mut usize, count: usize, places: *mut u64, begin_at: *mut usize, place_count: usize,
        flags: u64, stream: Handle
    ) |real| {
        prefetch_several(real, addresses, sizes, count, places, begin_at, place_count, flags, stream)
    }

    "cuMemDiscardBatchAsync" 13000 cuMemDiscardBatchAsync, 13000 cuMemDiscardBatchAsync_ptsz =>
    (addresses: *mut u64, sizes: *mut usize, count: usize, flags: u64, stream: Handle) |real| {
        of_several(
            addresses, sizes, count,
            || real(addresses, sizes, count, flags, stream),
            |at| real(addresses.add(at), sizes.add(at), 1, flags, stream),
        )
    }

    "cuMemDiscardAndPrefetchBatchAsync" 13000 cuMemDiscardAndPrefetchBatchAsync,
        13000 cuMemDiscardAndPrefetchBatchAsync_ptsz =>
    (
        addresses: *mut u64, sizes: *mut usize, count: usize, places: *mut u64, begin_at: *mut usize, place_count: usize,
        flags: u64, stream: Handle
    ) |real| {
        prefetch_several(real, addresses, sizes, count, places, begin_at, place_count, flags, stream)
    }
}
