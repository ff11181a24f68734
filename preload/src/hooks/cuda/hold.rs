//! Where the agent and libckpt.so meet to hold devices still: see [`ckpt_wire::device`].

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use ckpt_wire::device::{Hold, SOCKET_BYTES};

use crate::shared::Shared;

/// All zero until the program begins to use the driver.
// SAFETY: `Hold` is `FromBytes`: it is valid with every byte zero.
pub static HOLD: Shared<Hold> = Shared::new(unsafe { core::mem::zeroed() });

/// [`Hold::request`].
pub fn request() -> &'static AtomicU32 {
    // SAFETY: aligned, lives for ever, and is touched through this only.
    unsafe { AtomicU32::from_ptr(&raw mut (*HOLD.get()).request) }
}

/// [`Hold::devices`].
pub fn devices() -> &'static AtomicU32 {
    // SAFETY: as in `request`.
    unsafe { AtomicU32::from_ptr(&raw mut (*HOLD.get()).devices) }
}

/// [`Hold::line`].
pub fn line() -> &'static AtomicU32 {
    // SAFETY: as in `request`.
    unsafe { AtomicU32::from_ptr(&raw mut (*HOLD.get()).line) }
}

/// [`Hold::keeper`].
pub fn keeper() -> &'static AtomicI32 {
    // SAFETY: as in `request`.
    unsafe { AtomicI32::from_ptr(&raw mut (*HOLD.get()).keeper) }
}

/// [`Hold::driver`].
pub fn driver() -> &'static AtomicU64 {
    // SAFETY: as in `request`.
    unsafe { AtomicU64::from_ptr(&raw mut (*HOLD.get()).driver) }
}

/// [`Hold::contexts`].
pub fn contexts() -> &'static AtomicU64 {
    // SAFETY: as in `request`.
    unsafe { AtomicU64::from_ptr(&raw mut (*HOLD.get()).contexts) }
}

/// [`Hold::code`].
pub fn code() -> &'static AtomicU64 {
    // SAFETY: as in `request`.
    unsafe { AtomicU64::from_ptr(&raw mut (*HOLD.get()).code) }
}

/// [`Hold::kept_by`].
pub fn kept_by() -> &'static AtomicI32 {
    // SAFETY: as in `request`.
    unsafe { AtomicI32::from_ptr(&raw mut (*HOLD.get()).kept_by) }
}

/// [`Hold::wait_ms`].
pub fn wait_ms() -> &'static AtomicU32 {
    // SAFETY: as in `request`.
    unsafe { AtomicU32::from_ptr(&raw mut (*HOLD.get()).wait_ms) }
}

/// [`Hold::handed_out`].
pub fn handed_out() -> &'static AtomicU32 {
    // SAFETY: as in `request`.
    unsafe { AtomicU32::from_ptr(&raw mut (*HOLD.get()).handed_out) }
}

/// What the agent has written before its newest request: how many milliseconds there are, and its socket.
pub fn wishes() -> (u32, [u8; SOCKET_BYTES]) {
    let hold = HOLD.get();
    // SAFETY: nobody in this process writes them.
    unsafe { ((&raw const (*hold).quiet_within_ms).read_volatile(), (&raw const (*hold).socket).read_volatile()) }
}
