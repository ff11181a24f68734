//! The pages that managed memory lies in, each run of them once: small allocations share pages. A span is remembered from when its
//! memory is evacuated until that is the driver's again. They are in the order of addresses.

use core::sync::atomic::AtomicI32;

use super::sort::sort;
use crate::hooks::cuda::driver::CuResult;
use crate::hooks::cuda::lock::Lock;
use crate::shared::Shared;
use crate::sys;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// What drivers map at once.
const UNIT: usize = 2 << 20;
/// As many as are remembered, of which only those that are used take memory.
const SPANS_MAX: usize = 1 << 16;

/// Whole pages.
#[derive(Clone, Copy)]
pub struct Span {
    /// The first address.
    pub start: usize,
    /// Bytes.
    pub bytes: usize,
    /// Where its content is meanwhile; 0 if it is in its place.
    pub aside: usize,
    /// Whether the driver keeps its addresses taken when nothing is there.
    pub is_reserved: bool,
    /// Whether the driver has pinned it in its place.
    pub is_registered: bool,
    /// Whether all of it is the driver's again, and the span about to be forgotten.
    pub is_native: bool,
    /// Whether its memory is being evacuated just now, or was evacuated last.
    pub is_new: bool,
}

impl Span {
    /// Whether it and another one have addresses of the same unit.
    pub fn shares_unit(&self, other: &Span) -> bool {
        let units = |span: &Span| (span.start / UNIT, (span.start + span.bytes - 1) / UNIT);
        let ((first, last), (other_first, other_last)) = (units(self), units(other));
        first <= other_last && other_first <= last
    }

    /// The address behind it.
    pub fn end(&self) -> u64 {
        (self.start + self.bytes) as u64
    }

    /// Whether an address lies in it.
    pub fn has(&self, address: usize) -> bool {
        address.checked_sub(self.start).is_some_and(|offset| offset < self.bytes)
    }
}

/// The first of these spans, and those behind it of which each shares a unit with the one before.
pub fn sharing_units(spans: &[Span]) -> &[Span] {
    let pairs = spans.iter().zip(spans.iter().skip(1));
    let behind = pairs.take_while(|(one, next)| one.shares_unit(next)).count();
    spans.get(..=behind).unwrap_or_default()
}

const NONE: Span =
    Span { start: 0, bytes: 0, aside: 0, is_reserved: false, is_registered: false, is_native: false, is_new: false };

/// Those that there are.
#[derive(Clone, Copy)]
struct Spans {
    /// Mapped for the first one.
    all: *mut Span,
    count: usize,
}

static SPANS: Shared<Spans> = Shared::new(Spans { all: core::ptr::null_mut(), count: 0 });
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whoever uses them. The keeper, or a thread of the program's that frees one, inside of the gate.
pub struct Taken {
    _lock: Lock,
}

/// Waits until nobody else uses them.
pub fn take() -> Taken {
    Taken { _lock: Lock::of(&OWNER) }
}

impl Taken {
    /// All of them.
    pub fn all(&mut self) -> &mut [Span] {
        // SAFETY: the lock is ours; so many have been written.
        unsafe {
            let spans = &*SPANS.get();
            if spans.all.is_null() { &mut [] } else { core::slice::from_raw_parts_mut(spans.all, spans.count) }
        }
    }

    /// Those that were added the last time.
    pub fn new_ones(&mut self) -> impl Iterator<Item = &mut Span> {
        self.all().iter_mut().filter(|span| span.is_new)
    }

    /// Adds the pages of all allocations that `show` shows with their first addresses, in the order of these. No room for one more is an
    /// error.
    pub fn add_all(
        &mut self,
        show: impl FnOnce(&mut dyn FnMut(u64, u64) -> Result<(), CuResult>) -> Result<(), CuResult>,
    ) -> Result<(), CuResult> {
        self.new_ones().for_each(|span| span.is_new = false);
        let outcome = show(&mut |address, bytes| self.add(address, bytes));
        sort(self.all(), |span| span.start as u64);
        outcome
    }

    /// Adds the pages of an allocation to the last ones if they share one, or as a new span.
    fn add(&mut self, address: u64, bytes: u64) -> Result<(), CuResult> {
        let start = address as usize / PAGE * PAGE;
        let end = (address as usize + bytes as usize).next_multiple_of(PAGE);
        if let Some(last) = self.all().last_mut().filter(|last| last.is_new)
            && start < last.start + last.bytes
        {
            last.bytes = last.bytes.max(end - last.start);
            return Ok(());
        }
        // SAFETY: the lock is ours.
        let spans = unsafe { &mut *SPANS.get() };
        if spans.all.is_null() {
            let room = sys::map_zeros(SPANS_MAX * size_of::<Span>()).map_err(|error| -error.0)?;
            spans.all = room.cast();
        }
        if spans.count == SPANS_MAX {
            return Err(-libc::ENOSPC);
        }
        let span = Span { start, bytes: end - start, is_new: true, ..NONE };
        // SAFETY: there is room for one more.
        unsafe { spans.all.add(spans.count).write(span) };
        spans.count += 1;
        Ok(())
    }

    /// The one that begins at an address.
    pub fn beginning_at(&mut self, start: usize) -> Option<Span> {
        let all = self.all();
        let place = all.partition_point(|span| span.start < start);
        all.get(place).copied().filter(|span| span.start == start)
    }

    /// Forgets all but the first so many.
    fn truncate(&mut self, count: usize) {
        // SAFETY: the lock is ours.
        unsafe { (*SPANS.get()).count = count };
    }

    /// Forgets those that `is_done` says of.
    pub fn forget(&mut self, is_done: impl Fn(&Span) -> bool) {
        let all = self.all();
        let mut kept = 0;
        for at in 0..all.len() {
            if let Some(span) = all.get(at).copied().filter(|span| !is_done(span))
                && let Some(place) = all.get_mut(kept)
            {
                *place = span;
                kept += 1;
            }
        }
        self.truncate(kept);
    }
}

/// Whether a span has an address, asked by whoever may not wait: the keeper changes none of them while that is asked.
pub fn have(address: usize) -> bool {
    // SAFETY: of one that is written in this moment half may be seen; whoever asks does so while the keeper moves memory, and the list
    // stands.
    let spans = unsafe { SPANS.get().read_volatile() };
    if spans.all.is_null() {
        return false;
    }
    // SAFETY: as above.
    (0..spans.count).any(|at| unsafe { spans.all.add(at).read_volatile() }.has(address))
}
