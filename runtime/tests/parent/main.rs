//! `ckpt run` as a parent: whoever started it must see the program.
//!
//! The real command runs real programs. It lies in a directory of its own beside a libckpt.so that does nothing,
//! because nothing is checkpointed here.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

mod process;
mod scratch;
mod signals;
mod status;
mod terminal;
