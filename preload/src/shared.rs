//! A static that is written after the program has started.
//!
//! Rust's own answer is a lock, and a lock must not exist here. Each static of this type says who may touch it
//! and when; there are three answers: the constructor before `state` is ready, the holder of the
//! [`Section`](crate::section::Section), or anybody through atomics.

use core::cell::UnsafeCell;

/// Memory at a fixed address, reached through a pointer only.
#[repr(transparent)]
pub struct Shared<T>(UnsafeCell<T>);

// SAFETY: the only access is the pointer from `get`; every use of that pointer names, at its own unsafe block,
// which of the three answers above makes it exclusive.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// A static that starts with `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Where it is.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}
