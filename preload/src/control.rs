//! The control block that the agent finds by its symbol, and the two areas that it points to.
//!
//! All zero until the constructor runs. The constructor writes it alone; afterwards the fields that change are
//! touched through the atomics below, and everything else is read-only. The agent reads it from outside while
//! the program is stopped or running; the restorer adds to `generation` while the program does not run.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use ckpt_wire::{Control, Environment, SCRATCH_BYTES, StubFrame};

use crate::shared::Shared;

/// The control block. Written by the constructor until `state` is set; through the functions below afterwards.
// SAFETY (of the name): no other library defines a symbol that begins with `ckpt_`.
#[unsafe(no_mangle)]
// SAFETY: `Control` is `FromBytes`: it is valid with every byte zero.
pub static ckpt_control: Shared<Control> = Shared::new(unsafe { core::mem::zeroed() });

/// What a thread goes on with when its agent disappears. Written by the agent only, read by the stub only.
// SAFETY: `StubFrame` is `FromBytes`: it is valid with every byte zero.
pub static STUB_FRAME: Shared<StubFrame> = Shared::new(unsafe { core::mem::zeroed() });

/// The same for threads that make calls at the same time.
// SAFETY: as for `STUB_FRAME`.
pub static STUB_FRAMES: Shared<[StubFrame; ckpt_wire::STUB_FRAMES]> = Shared::new(unsafe { core::mem::zeroed() });

/// What takes the place of the environment when a restart makes a copy of the program. Written by the restorer only.
// SAFETY: `Environment` is `FromBytes`: it is valid with every byte zero.
pub static ENVIRONMENT: Shared<Environment> = Shared::new(unsafe { core::mem::zeroed() });

/// Room for the arguments of injected calls. Used by the agent only.
pub static SCRATCH: Shared<Scratch> = Shared::new(Scratch([0; SCRATCH_BYTES]));

/// Page-aligned, so that an argument in it is on one page of its own.
#[repr(C, align(4096))]
pub struct Scratch([u8; SCRATCH_BYTES]);

/// A shared view of the control block, for fields that no longer change.
pub fn control() -> *const Control {
    ckpt_control.get()
}

/// [`Control::state`]. Stored with release order as the constructor's last act.
pub fn state() -> &'static AtomicU32 {
    // SAFETY: the field is aligned, lives for ever, and after the constructor is accessed through this only.
    unsafe { AtomicU32::from_ptr(&raw mut (*ckpt_control.get()).state) }
}

/// [`Control::signal_taken`].
pub fn signal_taken() -> &'static AtomicU32 {
    // SAFETY: as in `state`.
    unsafe { AtomicU32::from_ptr(&raw mut (*ckpt_control.get()).signal_taken) }
}

/// [`Control::agent_pid`].
pub fn agent_pid() -> &'static AtomicI32 {
    // SAFETY: as in `state`.
    unsafe { AtomicI32::from_ptr(&raw mut (*ckpt_control.get()).agent_pid) }
}

/// [`Control::generation`]: the restorer changes it from outside, so it is read anew each time.
pub fn generation() -> &'static AtomicU64 {
    // SAFETY: as in `state`.
    unsafe { AtomicU64::from_ptr(&raw mut (*ckpt_control.get()).generation) }
}

/// [`Control::copy`], a text that ends with a zero: the restorer changes it from outside, so it is read anew each time.
pub fn copy() -> *const u8 {
    // SAFETY: the field lives for ever; no reference to it is made.
    unsafe { &raw const (*ckpt_control.get()).copy }.cast()
}
