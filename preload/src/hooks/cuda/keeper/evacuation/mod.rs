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
mod pinned;
mod sort;
mod spans;
mod stillness;
mod wanted;

use ckpt_wire::allocations::{CUDA_MANAGED, CUDA_MANAGED_EVACUATED, CudaAllocation};
use ckpt_wire::device::DEVICES_MOVING;

use super::address_space;
use super::commands::{NO_CONTEXT, done};
use super::functions;
use crate::hooks::cuda::driver::{CuResult, Handle};
use crate::hooks::cuda::{advice, contexts, hold, records};
use crate::log;
use crate::section::Section;
use crate::sys;
use spans::{PAGE, Span, Taken, sharing_units};
use wanted::{One, Wanted};

pub use pinned::free;
pub use stillness::try_locks;

/// Threads do not stand still.
pub const NOT_STILL: CuResult = -libc::EBUSY;
/// Something is in the way.
const OCCUPIED: CuResult = -libc::EEXIST;
/// How often the driver is asked to free an allocation, and how long after the time before.
const FREES: u32 = 5;
const FREES_EVERY_MS: u32 = 10;
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
    pinned::unregister_all(&mut spans)?;
    if let Err(error) = spans.add_all(|add| for_each(CUDA_MANAGED, |found| add(found.address, found.bytes))) {
        spans.forget(|span| span.is_new);
        return Err(error);
    }
    guard::moving(|| {
        let copied = spans.new_ones().try_for_each(copy_aside);
        // Whoever has stopped the threads may have died meanwhile.
        if let Err(error) = copied.and_then(|()| if stillness::is_there() { Ok(()) } else { Err(NOT_STILL) }) {
            spans.new_ones().for_each(forget_copy);
            spans.forget(|span| span.is_new);
            return Err(error);
        }
        let freed = for_each(CUDA_MANAGED, |found| {
            free_patiently(found.address)?;
            set_kind(found.address, CUDA_MANAGED_EVACUATED, 0);
            Ok(())
        });
        if freed.is_err() {
            // Where the driver has freed nothing, all is where it was. Beside that, what was freed may be mapped still.
            spans.new_ones().for_each(let_write);
            spans.new_ones().filter(|span| is_untouched(span)).for_each(forget_copy);
            spans.forget(is_untouched);
        }
        let placed = put_all_back(&mut spans);
        if placed.is_err() {
            // Threads that go on now would use memory that is not theirs any more, as where one of several on a page was not freed.
            let _ = take_back(&mut spans);
            if spans.all().iter().any(|span| span.aside != 0) {
                end_program(
                    b"the driver has freed a part of the managed memory on some pages, and does not give it back",
                );
            }
            advise_again(&mut spans);
            spans.forget(|span| span.is_native);
        }
        freed.and(placed)
    })
}

/// Has the driver free managed memory, which it may not be able to in that moment.
fn free_patiently(address: u64) -> Result<(), CuResult> {
    let mut outcome = Ok(());
    for _ in 0..FREES {
        // SAFETY: the program's, which cannot use it on a device before it is back.
        outcome = done(unsafe { functions::free(address) });
        if outcome.is_ok() {
            break;
        }
        sys::futex_wait(hold::devices(), DEVICES_MOVING, Some(FREES_EVERY_MS));
    }
    outcome
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
        guard::moving(|| take_back(&mut spans))?;
        advise_again(&mut spans);
        spans.forget(|span| span.is_native);
    }
    pinned::register_all()
}

/// Has the driver allocate as much of it as comes where it was; the rest is in its place as ordinary memory, if that can be done.
fn take_back(spans: &mut Taken) -> Result<(), CuResult> {
    move_aside(spans).and_then(|()| reallocate(spans)).or_else(|_| put_all_back(spans))
}

fn put_all_back(spans: &mut Taken) -> Result<(), CuResult> {
    spans.all().iter_mut().map(put_back).fold(Ok(()), Result::and)
}

/// Tells the driver what the program had advised of what is back.
fn advise_again(spans: &mut Taken) {
    let mut outcome = Ok(());
    for span in spans.all().iter().filter(|span| span.is_native) {
        let _ = for_each_within(span, CUDA_MANAGED, |found| {
            // SAFETY: managed memory of the program's.
            let given = advice::give_again(found, |address, bytes, what, location| unsafe {
                functions::advise(address, bytes, what, location)
            });
            outcome = outcome.and(given);
            Ok(())
        });
    }
    if let Err(error) = outcome {
        advice::say_not_taken(error);
    }
}

fn enter_any_context() -> Result<(), CuResult> {
    let (_, context) = contexts::all().and_then(|mut all| all.next()).ok_or(NO_CONTEXT)?;
    enter(context as u64)
}

fn enter(context: u64) -> Result<(), CuResult> {
    // SAFETY: a context of the program's, which cannot end while the gate is closed.
    done(unsafe { functions::set_current(context as Handle) })
}

/// Shows all that can be evacuated and is of this kind.
fn for_each(kind: u32, act: impl FnMut(&CudaAllocation) -> Result<(), CuResult>) -> Result<(), CuResult> {
    for_each_between(0, u64::MAX, kind, act)
}

/// The same of what lies in a span.
fn for_each_within(
    span: &Span,
    kind: u32,
    act: impl FnMut(&CudaAllocation) -> Result<(), CuResult>,
) -> Result<(), CuResult> {
    for_each_between(span.start as u64, span.end(), kind, act)
}

fn for_each_between(
    mut from: u64,
    end: u64,
    kind: u32,
    mut act: impl FnMut(&CudaAllocation) -> Result<(), CuResult>,
) -> Result<(), CuResult> {
    let is_meant = |found: &CudaAllocation| found.what() == kind && found.can_be_evacuated();
    while let Some(found) = records::next_before(from, end, is_meant) {
        act(&found)?;
        from = found.address + 1;
    }
    Ok(())
}

/// The first allocation in a span of which `is_meant` says so.
fn first_within(span: &Span, is_meant: impl Fn(&CudaAllocation) -> bool) -> Option<CudaAllocation> {
    records::next_before(span.start as u64, span.end(), is_meant)
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

/// Whether the driver has all of its memory still.
fn is_untouched(span: &Span) -> bool {
    first_within(span, |found| found.what() == CUDA_MANAGED_EVACUATED).is_none()
}

/// Whether nothing is mapped where a span was, or nothing but addresses that the driver keeps taken.
fn is_only_reserved(span: &Span) -> bool {
    let mut is_so = true;
    let looked = address_space::for_each(&mut |mapping| {
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
    if wanted.is_any_there() {
        let mut first = 0;
        while let Some(unit) = spans.all().get(first..).map(sharing_units).filter(|unit| !unit.is_empty()) {
            if !unit.iter().all(|span| is_whole(&wanted, span)) {
                unit.iter().for_each(|span| wanted.give_back(span.start, span.bytes));
            }
            first += unit.len();
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
        // Nobody knows what they have seen.
        end_program(b"the threads have gone on while managed memory came back");
    }
    Ok(())
}

/// Memory is not what it was, and its last checkpoint is.
fn end_program(why: &[u8]) -> ! {
    if let Some(mut section) = Section::enter() {
        log::append(&mut section, |line| {
            line.push(why).push(b": the program ends; ckpt restart brings it back");
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
