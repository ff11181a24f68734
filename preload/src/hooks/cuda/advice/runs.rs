//! What was advised of which pages: runs of pages, in the order of addresses, of which none overlap. What is in none has no advice.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::Advice;
use crate::hooks::cuda::lock::Lock;
use crate::shared::Shared;
use crate::sys;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// As many as are remembered, of which only those that are used take memory.
const RUNS_MAX: usize = 1 << 16;

/// Pages that the same was advised of.
#[derive(Clone, Copy)]
pub struct Run {
    /// The first address.
    pub start: u64,
    /// The address behind them.
    pub end: u64,
    /// What was advised.
    pub advice: Advice,
}

struct Runs {
    /// Mapped for the first one.
    all: *mut Run,
    count: usize,
}

static RUNS: Shared<Runs> = Shared::new(Runs { all: core::ptr::null_mut(), count: 0 });
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whether there has been any, so that where there has been none looking costs nothing.
static ARE_THERE: AtomicBool = AtomicBool::new(false);

/// Whoever uses them.
pub struct Taken {
    _lock: Lock,
}

/// Waits until nobody else uses them.
pub fn take() -> Taken {
    Taken { _lock: Lock::of(&OWNER) }
}

/// Whether there have been any.
pub fn are_there() -> bool {
    ARE_THERE.load(Ordering::Relaxed)
}

/// The addresses of whole pages around these.
pub fn pages(start: u64, bytes: u64) -> (u64, u64) {
    (start / PAGE * PAGE, start.saturating_add(bytes).div_ceil(PAGE).saturating_mul(PAGE))
}

impl Taken {
    /// All of them.
    pub fn all(&mut self) -> &mut [Run] {
        // SAFETY: the lock is ours; so many have been written.
        unsafe {
            let runs = &*RUNS.get();
            if runs.all.is_null() { &mut [] } else { core::slice::from_raw_parts_mut(runs.all, runs.count) }
        }
    }

    /// The first one that ends behind an address.
    pub fn behind(&mut self, address: u64) -> Option<Run> {
        let place = self.all().partition_point(|run| run.end <= address);
        self.all().get(place).copied()
    }

    /// Changes what was advised of whole pages, also where that is nothing yet. False if there is no room to remember it.
    pub fn change(&mut self, start: u64, end: u64, act: impl Fn(&mut Advice)) -> bool {
        let has_room = self.cut(start) && self.cut(end);
        let mut from = start;
        while has_room && from < end {
            let place = self.place_of(from);
            let next = self.all().get_mut(place).filter(|run| run.start < end);
            match next {
                Some(run) if run.start == from => {
                    act(&mut run.advice);
                    from = run.end;
                }
                gap_before => {
                    let to = gap_before.map_or(end, |run| run.start);
                    let mut run = Run { start: from, end: to, advice: Advice::NONE };
                    act(&mut run.advice);
                    if !self.insert(place, run) {
                        return false;
                    }
                    from = to;
                }
            }
        }
        has_room
    }

    /// Forgets what was advised of whole pages.
    pub fn forget(&mut self, start: u64, end: u64) {
        // Without room for one more, what it was cut from is forgotten as a whole.
        let _ = self.cut(start) && self.cut(end);
        self.retain(|run| run.end <= start || run.start >= end);
    }

    /// Forgets those that say nothing, or of which `is_meant` does not say so.
    pub fn retain(&mut self, is_meant: impl Fn(&Run) -> bool) {
        let all = self.all();
        let mut kept = 0;
        for at in 0..all.len() {
            if let Some(run) = all.get(at).copied().filter(|run| run.advice != Advice::NONE && is_meant(run))
                && let Some(place) = all.get_mut(kept)
            {
                *place = run;
                kept += 1;
            }
        }
        // SAFETY: the lock is ours.
        unsafe { (*RUNS.get()).count = kept };
    }

    /// Has no run lie on both sides of an address.
    fn cut(&mut self, address: u64) -> bool {
        let place = self.all().partition_point(|run| run.end <= address);
        let Some(run) = self.all().get_mut(place).filter(|run| run.start < address) else { return true };
        let behind = Run { start: address, ..*run };
        let end = core::mem::replace(&mut run.end, address);
        let is_cut = self.insert(place + 1, behind);
        if !is_cut && let Some(run) = self.all().get_mut(place) {
            run.end = end;
        }
        is_cut
    }

    fn place_of(&mut self, address: u64) -> usize {
        self.all().partition_point(|run| run.start < address)
    }

    fn insert(&mut self, place: usize, run: Run) -> bool {
        // SAFETY: the lock is ours.
        let runs = unsafe { &mut *RUNS.get() };
        if runs.all.is_null() {
            let Ok(room) = sys::map_zeros(RUNS_MAX * size_of::<Run>()) else { return false };
            runs.all = room.cast();
            ARE_THERE.store(true, Ordering::Relaxed);
        }
        if runs.count == RUNS_MAX || place > runs.count {
            return false;
        }
        // SAFETY: there is room for one more behind those that there are.
        unsafe {
            let at = runs.all.add(place);
            core::ptr::copy(at, at.add(1), runs.count - place);
            at.write(run);
        }
        runs.count += 1;
        true
    }
}
