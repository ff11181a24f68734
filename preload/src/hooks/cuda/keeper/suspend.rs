//! Having the driver let the devices go, and give them back: its Lock, Checkpoint, Restore and Unlock.
//!
//! Before the first, the memory of pieces is taken from behind their addresses, if somebody keeps it ([`kept`]); behind the last
//! it is put back. In the next life nobody has kept it: there is new memory, and whoever restarts the program fills it.
//!
//! Managed memory has been evacuated before ([`evacuation`]), where the agent has seen to that, and comes back behind.
//!
//! The addresses at which the driver had mapped its devices are kept meanwhile, too ([`reservations`]).
//!
//! From the first of them to the last the gate is closed, and it is the keeper's to open: nobody else may say that the devices
//! are there ([`Hold::devices`](ckpt_wire::device::Hold::devices)). Nothing here allocates, or waits for what a thread in front of the gate may hold.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ckpt_wire::DEVICE_WAIT_MS_DEFAULT;
use ckpt_wire::device::{
    DEVICES_EMPTY, DEVICES_EVACUATED, DEVICES_LOST, DEVICES_MOVING, DEVICES_ON_THEIR_WAY, DEVICES_SUSPENDED,
    DEVICES_THERE, STEP_CHECKPOINT, STEP_LOCK, STEP_MANAGED, STEP_MEMORY, STEP_RESTORE, STEP_UNLOCK, step_name,
};

use super::super::backing::kept;
use super::super::driver::{CuResult, SUCCESS};
use super::super::{gate, hold};
use super::functions::{self, CheckpointArguments, LockArguments, RestoreArguments};
use super::{commands, evacuation, idle_memory, line, reservations};
use crate::log;
use crate::section::Section;
use crate::sys;

/// How long the keeper sleeps before it looks whether there is still somebody who has the devices suspended.
const LOOKS_EVERY_MS: u32 = 10_000;
/// How often an unlock that fails is tried, and how long after the one before.
const UNLOCKS: u32 = 50;
const UNLOCKS_EVERY_MS: u32 = 100;
/// How long to wait for devices that the driver cannot give back, which others may use for a while, in ms, and how often to ask.
static WAITS_MS: AtomicU64 = AtomicU64::new(DEVICE_WAIT_MS_DEFAULT);
const ASKS_EVERY_MS: u32 = 1000;
/// `CU_PROCESS_STATE_RUNNING`, `_LOCKED`, `_CHECKPOINTED` and `_FAILED`.
const RUNNING: c_int = 0;
const LOCKED: c_int = 1;
const CHECKPOINTED: c_int = 2;
const FAILED: c_int = 3;
/// Of a device and the one that stands for it.
pub const PAIR_BYTES: u64 = 32;

/// Whether somebody will ask for evacuated memory when the devices are there again.
static IS_BROUGHT_BACK: AtomicBool = AtomicBool::new(false);

/// Whether it was somebody else who had the driver let the devices go, and who will have it give them back.
static IS_OTHERS: AtomicBool = AtomicBool::new(false);

/// The driver's error, and the step that it is of.
pub type Failed = (CuResult, u64);

/// From now on, devices that the driver cannot give back are waited for so long.
pub fn wait_at_most(ms: u64) {
    WAITS_MS.store(ms, Ordering::Relaxed);
}

/// How long they are waited for.
pub fn waits_ms() -> u64 {
    WAITS_MS.load(Ordering::Relaxed)
}

/// Whether the devices are suspended, or on their way.
pub fn are_away() -> bool {
    hold::devices().load(Ordering::SeqCst) != DEVICES_THERE
}

/// Whether they are there, and the new memory of pieces is still to be filled.
pub fn are_empty() -> bool {
    hold::devices().load(Ordering::SeqCst) == DEVICES_EMPTY
}

/// Whether they are there, and managed memory is evacuated.
pub fn are_evacuated() -> bool {
    hold::devices().load(Ordering::SeqCst) == DEVICES_EVACUATED
}

/// Whether the driver does not have them.
pub fn are_locked() -> bool {
    are_away() && !are_empty() && !are_evacuated()
}

/// It has been filled, if there was any.
pub fn filled() -> Result<(), Failed> {
    if are_empty() { have_them() } else { Ok(()) }
}

/// The driver has them, and what was taken from it is back, but for evacuated memory.
fn have_them() -> Result<(), Failed> {
    become_(with_driver());
    if are_evacuated() && !IS_BROUGHT_BACK.load(Ordering::Relaxed) { bring_back(false).map(drop) } else { Ok(()) }
}

/// Where devices are that the driver has, and to which nothing is lacking but what is evacuated. That comes back before the gate is
/// opened, whatever becomes of the agent.
fn with_driver() -> u32 {
    if evacuation::is_there() { DEVICES_EVACUATED } else { DEVICES_THERE }
}

/// Evacuates managed memory, while all other threads stand still.
pub fn evacuate() -> Result<(), Failed> {
    become_(DEVICES_MOVING);
    // If the hold is over, either the line has seen that they are not there, or it has opened the gate.
    let is_over = line::is_over();
    let outcome = if is_over { Err(evacuation::NOT_STILL) } else { evacuation::evacuate() };
    become_(with_driver());
    outcome.map_err(|error| (error, STEP_MANAGED))
}

/// Brings it back; in its place, if other threads do not stand still. How many bytes are pinned there then.
pub fn bring_back(are_still: bool) -> Result<u64, Failed> {
    let is_evacuated = are_evacuated();
    if is_evacuated {
        become_(DEVICES_MOVING);
    }
    let back = evacuation::bring_back(are_still).map_err(|error| (error, STEP_MANAGED));
    if is_evacuated {
        become_(if back.is_ok() { DEVICES_THERE } else { DEVICES_EVACUATED });
    }
    back
}

fn become_(devices: u32) {
    hold::devices().store(devices, Ordering::SeqCst);
}

fn step(result: CuResult, step: u64) -> Result<(), Failed> {
    if result == SUCCESS { Ok(()) } else { Err((result, step)) }
}

/// Whether somebody else has had the driver let the devices go.
pub fn is_done_by_others() -> bool {
    let is_others = !are_away() && state() == Some(CHECKPOINTED);
    IS_OTHERS.store(is_others, Ordering::Relaxed);
    is_others
}

/// Whether somebody else still has them, as far as is known: the driver may not answer.
pub fn are_others() -> bool {
    IS_OTHERS.load(Ordering::Relaxed)
}

/// Suspends them. If that fails, they are the program's as before, or, if the driver stays locked, to be given back like suspended
/// ones.
pub fn suspend(lock_ms: u64) -> Result<(), Failed> {
    if are_others() {
        become_(DEVICES_SUSPENDED);
        return Ok(());
    }
    become_(DEVICES_ON_THEIR_WAY);
    idle_memory::give_back();
    let keeper = hold::kept_by().load(Ordering::SeqCst);
    let let_go = if keeper == 0 { Ok(()) } else { kept::let_go(keeper).map_err(|error| (error, STEP_MEMORY)) };
    let outcome = let_go.and_then(|()| lock_and_checkpoint(lock_ms.min(u64::from(u32::MAX)) as c_uint));
    let is_free = outcome.is_err() && state() != Some(LOCKED) && take_memory_back().is_ok();
    become_(if is_free { with_driver() } else { DEVICES_SUSPENDED });
    outcome
}

fn lock_and_checkpoint(timeout_ms: c_uint) -> Result<(), Failed> {
    let pid = sys::getpid();
    let mut how = LockArguments { timeout_ms, unused: 0, unused_too: [0; 7] };
    // SAFETY: live arguments, as long as the driver reads.
    step(unsafe { functions::lock(pid, &raw mut how) }, STEP_LOCK)?;
    reservations::note();
    let mut how = CheckpointArguments([0; 8]);
    // SAFETY: as above.
    let taken = step(unsafe { functions::checkpoint(pid, &raw mut how) }, STEP_CHECKPOINT);
    match taken {
        Ok(()) => reservations::take(),
        Err(_) => {
            // Nothing was taken; what is locked must not stay so.
            let _ = unlock();
        }
    }
    taken
}

/// Gives them back, the devices that these pairs name for others. If that fails, they are suspended still, or lost. How many pieces
/// have new memory, which is to be filled. `is_brought_back`: somebody will ask for evacuated memory; otherwise it is pinned.
///
/// # Safety
/// There must be so many pairs.
pub unsafe fn resume(pairs: *mut u8, count: u32, is_brought_back: bool) -> Result<u64, Failed> {
    if are_others() {
        become_(DEVICES_THERE);
        return Ok(0);
    }
    if are_empty() {
        return Err((commands::INVALID, STEP_MEMORY));
    }
    become_(DEVICES_ON_THEIR_WAY);
    IS_BROUGHT_BACK.store(is_brought_back, Ordering::Relaxed);
    // SAFETY: the caller's word.
    let restored = unsafe { restore(pairs, count) };
    match restored.and_then(|()| take_memory_back()) {
        Ok(0) => have_them().map(|()| 0),
        Ok(new) => {
            become_(DEVICES_EMPTY);
            Ok(new)
        }
        Err(failed) => {
            become_(if state() == Some(FAILED) { DEVICES_LOST } else { DEVICES_SUSPENDED });
            Err(failed)
        }
    }
}

/// How many pieces have new memory.
fn take_memory_back() -> Result<u64, Failed> {
    let new = kept::take_back(hold::kept_by().load(Ordering::SeqCst)).map_err(|error| (error, STEP_MEMORY))?;
    // Another process may have that pid some day.
    hold::kept_by().store(0, Ordering::SeqCst);
    Ok(new)
}

/// # Safety
/// As of [`resume`].
unsafe fn restore(pairs: *mut u8, count: u32) -> Result<(), Failed> {
    // One that could not be unlocked the last time has been restored; one that has lacked memory since then, also unlocked.
    let state = state();
    if state == Some(RUNNING) {
        return Ok(());
    }
    if state != Some(LOCKED) {
        let mut how = RestoreArguments { pairs, count, unused: [0; 52], unused_too: 0 };
        reservations::give_back();
        // SAFETY: live arguments, as long as the driver reads, and the caller's word.
        let restored = step(unsafe { functions::restore(sys::getpid(), &raw mut how) }, STEP_RESTORE);
        if restored.is_err() {
            reservations::take();
        }
        restored?;
    }
    unlock()
}

/// Unlocks the process, again and again if that fails: nothing is as bad as a driver that stays locked.
fn unlock() -> Result<(), Failed> {
    let mut last = SUCCESS;
    for _ in 0..UNLOCKS {
        let mut how = CheckpointArguments([0; 8]);
        // SAFETY: live arguments, as long as the driver reads.
        last = unsafe { functions::unlock(sys::getpid(), &raw mut how) };
        if last == SUCCESS || state() == Some(RUNNING) {
            return Ok(());
        }
        sys::futex_wait(hold::devices(), DEVICES_ON_THEIR_WAY, Some(UNLOCKS_EVERY_MS));
    }
    Err((last, STEP_UNLOCK))
}

/// What the driver says of the process; none if it does not know.
fn state() -> Option<c_int> {
    let mut state = 0;
    // SAFETY: a place to write to.
    (unsafe { functions::state(sys::getpid(), &raw mut state) } == SUCCESS).then_some(state)
}

/// Sleeps until there is another request than `done`, or nobody any more who could have one: then the devices come back.
pub fn wait(done: u32) {
    sys::futex_wait(hold::request(), done, Some(LOOKS_EVERY_MS));
    let is_asked = || hold::request().load(Ordering::Acquire) != done;
    if !is_asked() && !line::is_somebody_there(hold::wishes().1) && !is_asked() {
        resume_alone(done);
    }
}

/// Gives the devices back without being asked, and opens the gate. While that cannot be, a request other than `done` comes first; if
/// it never can, the program ends.
pub fn resume_alone(done: u32) {
    let began = sys::now_ns();
    let mut is_said = false;
    loop {
        // What nobody has kept, nobody can bring back who does not restart the program.
        if are_empty() || kept::are_away() && hold::kept_by().load(Ordering::SeqCst) == 0 {
            say(
                b"what device memory held has not been put back: the program ends; ckpt restart brings it back",
                0,
                STEP_MEMORY,
            );
            sys::end_program();
        }
        // SAFETY: none.
        let Err((error, step)) = (unsafe { resume(core::ptr::null_mut(), 0, false) }) else {
            gate::open();
            return;
        };
        // Whoever kept the memory is gone.
        let is_gone = step == STEP_MEMORY && matches!(-error, libc::ESRCH | libc::EBADF);
        let is_lost = is_gone || hold::devices().load(Ordering::SeqCst) == DEVICES_LOST;
        if is_lost || sys::now_ns().saturating_sub(began) / 1_000_000 > waits_ms() {
            say(b"the devices cannot be had again: the program ends; ckpt restart brings it back", error, step);
            sys::end_program();
        }
        if !core::mem::replace(&mut is_said, true) {
            say(
                b"the devices cannot be had again yet: the program waits for them, as long as CKPT_DEVICE_WAIT says",
                error,
                step,
            );
        }
        sys::futex_wait(hold::request(), done, Some(ASKS_EVERY_MS));
        if hold::request().load(Ordering::Acquire) != done {
            return;
        }
    }
}

/// Tells the user what nobody else is there to tell.
fn say(what: &[u8], error: CuResult, step: u64) {
    let Some(mut section) = Section::enter() else { return };
    log::append(&mut section, |line| {
        let whose: &[u8] = if error < 0 { b": errno " } else { b": error of the CUDA driver " };
        line.push(what).push(b" (").push(step_name(step).as_bytes());
        if error != SUCCESS {
            line.push(whose).push_decimal(u64::from(error.unsigned_abs()), 1);
        }
        line.push(b")");
    });
}
