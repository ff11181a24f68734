//! Managed memory, which the driver does not suspend: it is evacuated to ordinary memory of the host before, and comes back behind.
//!
//! At the program's addresses there is, one after the other, the driver's managed memory; ordinary memory with the same content, for as
//! long as the devices are away; and again the driver's, if it gives the same address, or else that ordinary memory still, pinned
//! there. So where the driver gives another address, the program goes on, on a path to its memory that may be slower.
//!
//! While memory is on its way its addresses hold nothing, or not yet what they should. The program's threads use them without any
//! call; so a process of ckpt's has all of them stand still until that is over ([`stillness`]), also if the agent dies meanwhile.
//! Should that process be killed, who touches memory that is not there waits ([`guard`]); but who touches what the driver has given
//! and nobody has filled yet does not, so if they have not stood still until all was filled, the program is ended rather than be
//! wrong. Where nobody holds them still nothing is moved: memory that is in its place can be pinned there at any time. Before this
//! is relied on, the agent tries with a process of its own whether the driver goes along.
//!
//! The keeper alone does this, while the gate is closed.

mod guard;
mod spans;
mod stillness;
mod wanted;

use ckpt_wire::allocations::{CUDA_MANAGED, CUDA_MANAGED_EVACUATED, CUDA_MANAGED_REGISTERED, CudaAllocation};

use super::address_space;
use super::commands::{NO_CONTEXT, done};
use super::functions::{self, DEVICE_MAP, PORTABLE};
use crate::hooks::cuda::driver::{CuResult, SUCCESS};
use crate::hooks::cuda::{contexts, managed, records};
use crate::log;
use crate::section::Section;
use crate::sys;
use spans::{PAGE, Span, Taken};
use wanted::{One, Wanted};

pub use stillness::try_locks;

/// Threads do not stand still.
pub const NOT_STILL: CuResult = -libc::EBUSY;
/// Something is in the way.
const OCCUPIED: CuResult = -libc::EEXIST;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuResult = 801;
/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
const NOT_REGISTERED: CuResult = 713;
/// Bytes that are copied before their source is given back.
const PART: usize = 4 << 20;

/// Whether some managed memory is ordinary memory now, which devices do not reach.
pub fn is_there() -> bool {
    spans::take().all().iter().any(|span| !span.is_registered)
}

/// Makes all managed memory ordinary memory. All other threads stand still.
///
/// # Errors
/// The driver's, or a negative number of the kernel's; then some may be evacuated.
pub fn evacuate() -> Result<(), CuResult> {
    if !stillness::is_there() {
        return Err(NOT_STILL);
    }
    enter_any_context()?;
    let mut spans = spans::take();
    unregister_all(&mut spans)?;
    let first = spans.all().len();
    if let Err(error) = for_each(CUDA_MANAGED, |found| spans.add(first, found.address, found.bytes)) {
        spans.truncate(first);
        return Err(error);
    }
    guard::moving(|| {
        let copied = spans.all().iter_mut().skip(first).try_for_each(copy_aside);
        // Whoever has stopped the threads may have died meanwhile.
        if let Err(error) = copied.and_then(|()| if stillness::is_there() { Ok(()) } else { Err(NOT_STILL) }) {
            spans.all().iter_mut().skip(first).for_each(forget_copy);
            spans.truncate(first);
            return Err(error);
        }
        let freed = for_each(CUDA_MANAGED, |found| {
            // SAFETY: the program's, which cannot use it on a device before it is back.
            done(unsafe { functions::free(found.address) })?;
            set_kind(found.address, CUDA_MANAGED_EVACUATED, 0);
            Ok(())
        });
        if freed.is_err() {
            // What the driver has not freed is where it was. Beside it there may be mapped still what was freed.
            spans.all().iter_mut().skip(first).for_each(let_write);
            spans.all().iter_mut().skip(first).filter(|span| has_native(span)).for_each(forget_copy);
            spans.forget(has_native);
        }
        let placed = spans.all().iter_mut().map(put_back).fold(Ok(()), Result::and);
        freed.and(placed)
    })
}

/// Makes it the driver's managed memory again, where `are_still` says that all other threads stand still; the driver pins in its place
/// what cannot be. How many bytes are pinned then.
///
/// # Errors
/// The driver's, or a negative number of the kernel's. What is not back can be tried again.
pub fn bring_back(are_still: bool) -> Result<u64, CuResult> {
    if are_still && stillness::is_there() {
        enter_any_context()?;
        let mut spans = spans::take();
        guard::moving(|| {
            move_aside(&mut spans).and_then(|()| reallocate(&mut spans)).or_else(|_| {
                // Then it is pinned in its place, if that can be done.
                spans.all().iter_mut().map(put_back).fold(Ok(()), Result::and)
            })
        })?;
        spans.forget(|span| span.is_native);
    }
    register_all()?;
    let mut pinned = 0;
    for_each(CUDA_MANAGED_REGISTERED, |found| {
        pinned += found.bytes;
        Ok(())
    })?;
    Ok(pinned)
}

/// Ends an allocation that was pinned in its place, whose record is gone already, and its span with the last one in there.
///
/// # Errors
/// The driver's.
pub fn free(gone: &CudaAllocation) -> Result<(), CuResult> {
    let is_of_it = |found: &CudaAllocation| found.owner == gone.owner;
    if records::next(0, |found| found.what() == CUDA_MANAGED_REGISTERED && is_of_it(found)).is_some() {
        return Ok(());
    }
    let mut spans = spans::take();
    let Some(span) = spans.all().iter().find(|span| span.start as u64 == gone.owner).copied() else { return Ok(()) };
    // SAFETY: registered by us, and nothing in there is allocated any more.
    done(unsafe { functions::unregister(span.start as *mut _) })?;
    give_up(&span);
    spans.forget(|other| other.start == span.start);
    Ok(())
}

/// Leaves the addresses of a span, in which nothing is allocated any more, to the driver or to anybody.
fn give_up(span: &Span) {
    if span.is_reserved {
        // SAFETY: ours; there is no moment in which somebody else could map something there.
        let _ = unsafe { sys::replace_by_reservation(span.start, span.bytes) };
    } else {
        // SAFETY: ours.
        unsafe { sys::unmap(span.start as *mut u8, span.bytes) };
    }
}

fn enter_any_context() -> Result<(), CuResult> {
    let (_, context) = contexts::all().and_then(|mut all| all.next()).ok_or(NO_CONTEXT)?;
    // SAFETY: a context of the program's, which cannot end while the gate is closed.
    done(unsafe { functions::set_current(context) })
}

/// Shows all that can be evacuated and is of this kind.
fn for_each(kind: u32, mut act: impl FnMut(&CudaAllocation) -> Result<(), CuResult>) -> Result<(), CuResult> {
    let mut from = 0;
    while let Some(found) = records::next(from, |found| found.what() == kind && found.can_be_evacuated()) {
        act(&found)?;
        from = found.address + 1;
    }
    Ok(())
}

fn set_kind(address: u64, kind: u32, owner: u64) {
    records::change(address, |record| {
        (record.kind, record.owner) = (kind, owner);
        false
    });
}

/// Copies what is in a span to memory of its own, where nobody may write to it any more from here on.
fn copy_aside(span: &mut Span) -> Result<(), CuResult> {
    sys::protect(span.start, span.bytes, libc::PROT_READ).map_err(|error| -error.0)?;
    let aside = sys::map_zeros(span.bytes).map_err(|error| -error.0)? as usize;
    span.aside = aside;
    for offset in (0..span.bytes).step_by(PAGE) {
        // SAFETY: a page of the program's, which nobody writes, and one of ours. What is zero is so there, and takes no memory.
        unsafe {
            let (from, to) = ((span.start + offset) as *const u64, (aside + offset) as *mut u64);
            if (0..PAGE / 8).any(|word| from.add(word).read() != 0) {
                to.copy_from_nonoverlapping(from, PAGE / 8);
            }
        }
    }
    Ok(())
}

/// What is mapped where the span was can be written to again.
fn let_write(span: &mut Span) {
    let _ = sys::protect(span.start, span.bytes, libc::PROT_READ | libc::PROT_WRITE);
}

/// The span is as before `copy_aside`, whatever has come of that.
fn forget_copy(span: &mut Span) {
    let_write(span);
    if span.aside != 0 {
        // SAFETY: ours.
        unsafe { sys::unmap(span.aside as *mut u8, span.bytes) };
        span.aside = 0;
    }
}

/// Puts ordinary memory in its place, where the driver has nothing any more.
fn put_back(span: &mut Span) -> Result<(), CuResult> {
    if span.aside == 0 {
        return Ok(());
    }
    if sys::reserve(span.start, span.bytes).is_err() {
        if !is_only_reserved(span) {
            return Err(OCCUPIED);
        }
        span.is_reserved = true;
    }
    // SAFETY: ours, and what it replaces is nothing but addresses.
    unsafe { sys::move_mapping(span.aside, span.bytes, span.start) }.map_err(|error| -error.0)?;
    span.aside = 0;
    Ok(())
}

/// Whether the driver has some of its memory still.
fn has_native(span: &Span) -> bool {
    let is_in_it = |found: &CudaAllocation| found.what() == CUDA_MANAGED && found.can_be_evacuated();
    let first = records::next(span.start as u64, is_in_it);
    first.is_some_and(|found| span.has(found.address as usize))
}

/// Whether nothing is mapped where a span was, or nothing but addresses that the driver keeps taken.
fn is_only_reserved(span: &Span) -> bool {
    let mut is_so = true;
    let looked = address_space::for_each(|mapping| {
        let [start, end] = mapping.range;
        let is_in_the_way = start < span.start + span.bytes && end > span.start;
        is_so &= !is_in_the_way || mapping.is_reservation();
    });
    looked.is_ok() && is_so
}

/// Takes ordinary memory from its place, and leaves the addresses to the driver.
fn move_aside(spans: &mut Taken) -> Result<(), CuResult> {
    for span in spans.all().iter_mut().filter(|span| span.aside == 0 && !span.is_registered) {
        let room = sys::map_zeros(span.bytes).map_err(|error| -error.0)? as usize;
        // SAFETY: nobody else knows the room; what is moved is in `aside` from here on.
        unsafe { sys::move_mapping(span.start, span.bytes, room) }.map_err(|error| -error.0)?;
        span.aside = room;
        if span.is_reserved {
            let _ = sys::reserve(span.start, span.bytes);
        }
    }
    Ok(())
}

/// Has the driver allocate everything again, and fills what lies where it was; the rest is put back in its place.
///
/// The driver may map more at once than an allocation has. So of memory in one unit all comes back, or nothing; and if nothing can be put
/// where something has not come back, nothing comes back at all.
fn reallocate(spans: &mut Taken) -> Result<(), CuResult> {
    let mut wanted = Wanted::collect()?;
    wanted.allocate();
    let is_whole = |wanted: &Wanted, span: &Span| {
        let of_span = wanted.within(span.start, span.bytes);
        !span.is_registered && of_span.iter().all(|one| one.is_there)
    };
    let mut is_settled = !wanted.is_any_there();
    while !is_settled {
        is_settled = true;
        for at in 0..spans.all().len() {
            let Some(broken) = spans.all().get(at).copied().filter(|span| !is_whole(&wanted, span)) else { continue };
            for span in spans.all().iter().filter(|span| span.shares_unit(&broken)) {
                let is_there = |one: &One| one.is_there;
                is_settled &= !wanted.within(span.start, span.bytes).iter().any(is_there);
                wanted.give_back(span.start, span.bytes);
            }
        }
    }
    let put_back_broken = |spans: &mut Taken, wanted: &Wanted| {
        let mut broken = spans.all().iter_mut().filter(|span| !is_whole(wanted, span));
        broken.try_for_each(put_back)
    };
    if put_back_broken(spans, &wanted).is_err() {
        wanted.give_back(0, usize::MAX);
        put_back_broken(spans, &wanted)?;
    }
    for span in spans.all().iter_mut().filter(|span| span.aside != 0) {
        fill(span, wanted.within(span.start, span.bytes));
    }
    if spans.all().iter().any(|span| span.is_native) && stillness::is_over() {
        end_program();
    }
    Ok(())
}

/// Threads have gone on before what they use was there, and nobody knows what they have seen.
fn end_program() -> ! {
    if let Some(mut section) = Section::enter() {
        log::append(&mut section, |line| {
            line.push(
                b"the threads have gone on while managed memory came back: the program ends; ckpt restart brings it back",
            );
        });
    }
    sys::end_program()
}

/// Copies to memory of the driver's what was in a span before.
fn fill(span: &mut Span, allocations: &[One]) {
    let within = |one: &One| (one.address as usize - span.start, (one.address + one.bytes) as usize - span.start);
    // The host need not have room for all of it twice.
    for part in (0..span.bytes).step_by(PART) {
        let end = (part + PART).min(span.bytes);
        for (first, last) in allocations.iter().map(within) {
            let (from, to) = (first.max(part), last.min(end));
            // SAFETY: the program's memory, which nobody uses before it is filled, and its content, of so many bytes.
            unsafe {
                let content = (span.aside + from) as *const u8;
                ((span.start + from) as *mut u8).copy_from_nonoverlapping(content, to.saturating_sub(from));
            }
        }
        // SAFETY: ours, and not needed any more.
        unsafe { sys::unmap((span.aside + part) as *mut u8, end - part) };
    }
    allocations.iter().for_each(|one| set_kind(one.address, CUDA_MANAGED, 0));
    (span.aside, span.is_native) = (0, true);
}

/// Has the driver pin what is not its own in its place.
fn register_all() -> Result<(), CuResult> {
    let mut spans = spans::take();
    if spans.all().iter().all(|span| span.is_registered) {
        return Ok(());
    }
    enter_any_context()?;
    for span in spans.all().iter_mut().filter(|span| !span.is_registered) {
        put_back(span)?;
        register(span)?;
        span.is_registered = true;
        let is_in_it = |found: &CudaAllocation| span.has(found.address as usize);
        for_each(CUDA_MANAGED_EVACUATED, |found| {
            if is_in_it(found) {
                set_kind(found.address, CUDA_MANAGED_REGISTERED, span.start as u64);
            }
            Ok(())
        })?;
        managed::may_be_ours();
    }
    Ok(())
}

fn register(span: &Span) -> Result<(), CuResult> {
    let (place, mut on_device) = (span.start as *mut core::ffi::c_void, 0_u64);
    // SAFETY: ordinary memory, which stays as long as it is registered, and a place for an address.
    unsafe {
        done(functions::register(place, span.bytes, PORTABLE | DEVICE_MAP))?;
        let found = done(functions::device_pointer(&raw mut on_device, place, 0));
        if found.is_ok() && on_device == span.start as u64 {
            return Ok(());
        }
        functions::unregister(place);
        found.and(Err(NOT_SUPPORTED))
    }
}

/// What was pinned in its place is ordinary memory that devices do not reach.
fn unregister_all(spans: &mut Taken) -> Result<(), CuResult> {
    let outcome = spans.all().iter_mut().filter(|span| span.is_registered).try_for_each(unregister);
    // Allocations that have ended with their contexts are in no record any more.
    let is_unused = |span: &Span| {
        let is_in_it = |found: &CudaAllocation| span.has(found.address as usize) && found.can_be_evacuated();
        records::next(span.start as u64, is_in_it).is_none()
    };
    spans.all().iter().filter(|span| is_unused(span)).for_each(give_up);
    spans.forget(is_unused);
    outcome
}

fn unregister(span: &mut Span) -> Result<(), CuResult> {
    // SAFETY: registered by us; no device uses it while the gate is closed.
    match unsafe { functions::unregister(span.start as *mut _) } {
        // The context in which it was registered may have ended.
        SUCCESS | NOT_REGISTERED => {}
        error => return Err(error),
    }
    span.is_registered = false;
    for_each(CUDA_MANAGED_REGISTERED, |found| {
        if span.has(found.address as usize) {
            set_kind(found.address, CUDA_MANAGED_EVACUATED, 0);
        }
        Ok(())
    })
}
