//! How much memory something takes: an allocator that counts, for tests and fuzz targets.
//!
//! The whole process is counted, so what is measured is measured alone.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// What a store of a few KiB may take, whatever is in it.
pub const PEAK_BYTES_MAX: usize = 64 << 20;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn taken(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every call is the system allocator's, with the arguments as they came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps what the method asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps what the method asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        taken(bytes);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps what the method asks for.
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps what the method asks for.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Nobody else measures, or prepares what is measured.
pub struct Alone(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

/// Waits until nobody else is at it.
pub fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    Alone(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs something, and fails when it takes more than [`PEAK_BYTES_MAX`] beyond what was taken before.
pub fn within_bounds<T>(_alone: &Alone, what: &str, run: impl FnOnce() -> T) -> T {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = run();
    let peak = PEAK.load(Relaxed) - before;
    assert!(peak <= PEAK_BYTES_MAX, "{what}: {} MiB", peak >> 20);
    result
}
