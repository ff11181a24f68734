//! The gate: what every call passes that may change device memory, allocates or frees it. While the agent holds devices
//! still it is closed, and calls wait in front of it; those that are inside already come to their end first.
//!
//! An open gate costs a call two additions to a counter and two looks at a flag: no lock, no system call, and no line of
//! cache that other threads write, since threads are spread over many counters. Whoever closes it sees every call: a call
//! is counted before it looks at the flag, and the flag is set before the counters are read.
//!
//! A call inside of another one, as from a callback of the driver's, passes: its thread is counted already.
//!
//! In a child of fork, threads that were inside are gone, and so is whoever had closed it. A call that finds it closed by
//! another process opens it; the counters are set right when the child gets a keeper of its own.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

/// Calls in flight, of some threads. Alone on its two lines of cache, which processors fetch together.
#[repr(align(128))]
struct Counter(AtomicU32);

const COUNTERS: usize = 64;
static IN_FLIGHT: [Counter; COUNTERS] = [const { Counter(AtomicU32::new(0)) }; COUNTERS];

/// Not 0 while the gate is closed. Calls wait for it to be 0.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// Pid of the process that has closed it.
static CLOSED_BY: AtomicI32 = AtomicI32::new(0);
/// How many calls have ended since the gate was closed, so that who waits for the last one is woken.
static ENDED: AtomicU32 = AtomicU32::new(0);

// Of each thread: how many calls of its are inside of one another.
global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".globl ckpt_gate_depth",
    ".hidden ckpt_gate_depth",
    ".type ckpt_gate_depth, @object",
    ".size ckpt_gate_depth, 8",
    "ckpt_gate_depth:",
    ".zero 8",
    ".popsection",
);

/// The calling thread's own.
#[inline(always)]
fn depth() -> *mut u64 {
    let address: *mut u64;
    // SAFETY: reads two words that do not change while a thread lives.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + ckpt_gate_depth@gottpoff]",
            out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    address
}

/// A thread has one and the same counter all its life. (The address of its own memory, multiplied by 2^64 / the golden ratio.)
#[inline(always)]
fn counter(depth: *const u64) -> &'static AtomicU32 {
    let mixed = (depth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &IN_FLIGHT[(mixed >> 58) as usize % COUNTERS].0
}

/// Proof that the calling thread is inside of the gate, which it leaves when this is dropped.
pub struct Passage(*mut u64);

/// Goes in, and waits for that if the gate is closed.
#[inline(never)]
pub fn enter() -> Passage {
    let depth = depth();
    // SAFETY: the thread's own word.
    unsafe { *depth += 1 };
    // SAFETY: as above.
    if unsafe { *depth } == 1 {
        let counter = counter(depth);
        counter.fetch_add(1, Ordering::SeqCst);
        if CLOSED.load(Ordering::SeqCst) != 0 {
            wait_outside(counter);
        }
    }
    Passage(depth)
}

impl Drop for Passage {
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: the thread's own word; a passage is dropped by the thread that went in.
        unsafe { *self.0 -= 1 };
        // SAFETY: as above.
        if unsafe { *self.0 } == 0 {
            counter(self.0).fetch_sub(1, Ordering::SeqCst);
            if CLOSED.load(Ordering::SeqCst) != 0 {
                say_ended();
            }
        }
    }
}

#[cold]
fn wait_outside(counter: &AtomicU32) {
    loop {
        counter.fetch_sub(1, Ordering::SeqCst);
        say_ended();
        while CLOSED.load(Ordering::SeqCst) != 0 {
            if !is_closed_by_us() {
                CLOSED.store(0, Ordering::SeqCst);
                break;
            }
            sys::futex_wait(&CLOSED, 1, None);
        }
        counter.fetch_add(1, Ordering::SeqCst);
        if CLOSED.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
}

#[cold]
fn say_ended() {
    ENDED.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(&ENDED);
}

/// By this process, or one that shares its memory.
fn is_closed_by_us() -> bool {
    let (closer, pid) = (CLOSED_BY.load(Ordering::SeqCst), sys::getpid());
    closer == pid || sys::same_memory(closer, pid) == Ok(true)
}

/// From now on calls wait. Those inside go on.
pub fn close() {
    CLOSED_BY.store(sys::getpid(), Ordering::SeqCst);
    CLOSED.swap(1, Ordering::SeqCst);
}

/// Lets all in that wait, and whoever comes.
pub fn open() {
    CLOSED.swap(0, Ordering::SeqCst);
    sys::futex_wake(&CLOSED);
}

/// Waits until no call is inside of a closed gate; false when `is_over` says that it is not wanted any more, which is asked
/// every few milliseconds.
pub fn wait_until_empty(is_over: impl Fn() -> bool) -> bool {
    loop {
        let ended = ENDED.load(Ordering::SeqCst);
        if IN_FLIGHT.iter().all(|counter| counter.0.load(Ordering::SeqCst) == 0) {
            return true;
        }
        if is_over() {
            return false;
        }
        sys::futex_wait(&ENDED, ended, Some(5));
    }
}

/// In a child of fork: nobody is inside but the calling thread, if it is.
pub fn begin_anew() {
    CLOSED.store(0, Ordering::SeqCst);
    for counter in &IN_FLIGHT {
        counter.0.store(0, Ordering::SeqCst);
    }
    let depth = depth();
    // SAFETY: the thread's own word.
    if unsafe { *depth } != 0 {
        counter(depth).store(1, Ordering::SeqCst);
    }
}
