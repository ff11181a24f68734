//! Streams that are being captured into a graph. While there is one, nobody may wait for its context: the capture would be
//! lost. So devices are not held still then.
//!
//! The driver knows best when a capture has ended, whatever the function that was to end it returned: it is asked.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering};

use super::driver::{CuResult, Handle, Real, SUCCESS, driver_hooks};
use super::lock::Lock;
use crate::shared::Shared;
use crate::sys;

/// A stream in which a capture has begun.
#[derive(Clone, Copy)]
struct Capture {
    stream: u64,
    /// Whose default stream it is; 0 for streams that are the same for all threads.
    thread: i32,
    context: u64,
}

const NONE: Capture = Capture { stream: 0, thread: 0, context: 0 };

/// How many calls are about to begin a capture.
static BEGINNING: AtomicU32 = AtomicU32::new(0);
/// How many calls are about to wait for a context.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// How often, and for how long each time, the begin of a capture lets them come to wait.
const LETS_WAIT: u32 = 20;
const LETS_WAIT_MS: u32 = 1;

/// Used by whoever holds the lock.
static CAPTURES: Shared<[Capture; 64]> = Shared::new([NONE; 64]);
/// How many found no room. They are taken for unfinished for ever.
static UNLISTED: AtomicU32 = AtomicU32::new(0);

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD_STREAM: u64 = 2;

type GetContext = unsafe extern "C" fn(Handle, *mut Handle) -> CuResult;
static GET_CONTEXT: Real<GetContext> = Real::new(c"cuStreamGetCtx");
type IsCapturing = unsafe extern "C" fn(Handle, *mut c_int) -> CuResult;
static IS_CAPTURING: Real<IsCapturing> = Real::new(c"cuStreamIsCapturing");

/// Whether some stream is being captured.
pub fn are_there() -> bool {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    let listed = unsafe { &*CAPTURES.get() }.iter().any(|capture| capture.stream != 0);
    listed || UNLISTED.load(Ordering::Relaxed) != 0
}

/// Begins to wait for a context, unless there is a capture or one begins: then `None`.
///
/// A capture that begins meanwhile lets it come to wait in the driver, which then does not mind. It does not let it end: the
/// program may need that graph for it.
pub fn unless_there<T>(wait: impl FnOnce() -> T) -> Option<T> {
    WAITING.fetch_add(1, Ordering::SeqCst);
    let is_none = BEGINNING.load(Ordering::SeqCst) == 0 && !are_there();
    let waited = is_none.then(wait);
    WAITING.fetch_sub(1, Ordering::SeqCst);
    waited
}

/// The captures in a context end with it.
pub fn forget_context(context: u64) {
    forget(|capture| capture.context == context);
}

fn forget(is_gone: impl Fn(&Capture) -> bool) {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    for capture in unsafe { &mut *CAPTURES.get() } {
        if is_gone(capture) {
            *capture = NONE;
        }
    }
}

/// The stream that a program means by a handle, and the thread whose it is if each has one.
fn meant(stream: Handle, per_thread: bool) -> (u64, i32) {
    match stream as u64 {
        0 if per_thread => (PER_THREAD_STREAM, sys::gettid()),
        PER_THREAD_STREAM => (PER_THREAD_STREAM, sys::gettid()),
        other => (other, 0),
    }
}

fn begin(stream: Handle, per_thread: bool, real: impl FnOnce() -> CuResult) -> CuResult {
    BEGINNING.fetch_add(1, Ordering::SeqCst);
    for _ in 0..LETS_WAIT {
        let waiting = WAITING.load(Ordering::SeqCst);
        if waiting == 0 {
            break;
        }
        sys::futex_wait(&WAITING, waiting, Some(LETS_WAIT_MS));
    }
    let result = real();
    if result == SUCCESS {
        let (stream, thread) = meant(stream, per_thread);
        let mut context = core::ptr::null_mut();
        if let Some(get) = GET_CONTEXT.get() {
            // SAFETY: the stream is live, and a place to write to.
            unsafe { get(stream as Handle, &raw mut context) };
        }
        list(Capture { stream, thread, context: context as u64 });
    }
    BEGINNING.fetch_sub(1, Ordering::SeqCst);
    result
}

fn list(capture: Capture) {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    match unsafe { &mut *CAPTURES.get() }.iter_mut().find(|free| free.stream == 0) {
        Some(free) => *free = capture,
        None => drop(UNLISTED.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Before a stream may be gone, and another one have its handle.
fn taken(stream: Handle) -> Option<Capture> {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    let capture = unsafe { &mut *CAPTURES.get() }.iter_mut().find(|it| it.stream != 0 && it.stream == stream as u64)?;
    Some(core::mem::replace(capture, NONE))
}

fn ended(stream: Handle, per_thread: bool, result: CuResult) -> CuResult {
    let (stream, thread) = meant(stream, per_thread);
    let mut status = 0;
    // SAFETY: what the program has just named as a stream, and a place to write to.
    let asked = IS_CAPTURING.get().map(|ask| unsafe { ask(stream as Handle, &raw mut status) });
    if asked != Some(SUCCESS) || status == 0 {
        forget(|capture| (capture.stream, capture.thread) == (stream, thread));
    }
    result
}

driver_hooks! {
    "cuStreamBeginCapture" 10000 =>
    cuStreamBeginCapture(stream: Handle) |real| { begin(stream, false, || real(stream)) }

    "cuStreamBeginCapture" 10000 per_thread =>
    cuStreamBeginCapture_ptsz(stream: Handle) |real| { begin(stream, true, || real(stream)) }

    "cuStreamBeginCapture" 10010 =>
    cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) |real| { begin(stream, false, || real(stream, mode)) }

    "cuStreamBeginCapture" 10010 per_thread =>
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) |real| { begin(stream, true, || real(stream, mode)) }

    "cuStreamBeginCaptureToGraph" 12030 =>
    cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_uint
    ) |real| {
        begin(stream, false, || real(stream, graph, before, edges, count, mode))
    }

    "cuStreamBeginCaptureToGraph" 12030 per_thread =>
    cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_uint
    ) |real| {
        begin(stream, true, || real(stream, graph, before, edges, count, mode))
    }

    "cuStreamEndCapture" 10000 =>
    cuStreamEndCapture(stream: Handle, graph: *mut Handle) |real| { ended(stream, false, real(stream, graph)) }

    "cuStreamEndCapture" 10000 per_thread =>
    cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) |real| { ended(stream, true, real(stream, graph)) }

    /// A stream that is destroyed is captured no more.
    "cuStreamDestroy" 4000 =>
    cuStreamDestroy_v2(stream: Handle) |real| {
        let before = taken(stream);
        let result = real(stream);
        if result != SUCCESS && let Some(capture) = before {
            list(capture);
        }
        result
    }
}
