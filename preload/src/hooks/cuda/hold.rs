//! Where the agent and libckpt.so meet to hold devices still: see [`ckpt_wire::device`].

use ckpt_wire::device::Hold;

use crate::shared::Shared;

/// All zero until the program makes a context.
// SAFETY: `Hold` is `FromBytes`: it is valid with every byte zero.
pub static HOLD: Shared<Hold> = Shared::new(unsafe { core::mem::zeroed() });
