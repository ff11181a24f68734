//! Memory for our own tables, of one type each: what is given back is used again, and blocks stay for ever.

use core::mem::MaybeUninit;

use crate::sys;

/// Bytes that are mapped at a time.
const BLOCK_BYTES: usize = 1 << 16;

/// Places for values of type `T`.
pub struct Nodes<T> {
    free: *mut Node<T>,
}

/// The value is first: its address is the node's.
#[repr(C)]
struct Node<T> {
    value: MaybeUninit<T>,
    next: *mut Node<T>,
}

impl<T: Copy> Nodes<T> {
    /// No places yet.
    pub const fn new() -> Self {
        Self { free: core::ptr::null_mut() }
    }

    /// Puts a value somewhere. `None` when there is no memory.
    pub fn put(&mut self, value: T) -> Option<*mut T> {
        if self.free.is_null() {
            self.add_block()?;
        }
        let node = self.free;
        // SAFETY: free nodes are live, and ours alone.
        unsafe {
            self.free = (*node).next;
            (*node).value.write(value);
        }
        Some(node.cast())
    }

    /// Takes a value out, whose place is free then.
    ///
    /// # Safety
    /// `put` must have given it, and nobody may use it any more.
    pub unsafe fn take(&mut self, value: *mut T) -> T {
        let node = value.cast::<Node<T>>();
        // SAFETY: the caller's word.
        unsafe {
            (*node).next = self.free;
            self.free = node;
            (*node).value.assume_init_read()
        }
    }

    fn add_block(&mut self) -> Option<()> {
        const { assert!(size_of::<Node<T>>() <= BLOCK_BYTES) };
        let block = sys::map_zeros(BLOCK_BYTES).ok()?.cast::<Node<T>>();
        for place in 0..BLOCK_BYTES / size_of::<Node<T>>() {
            // SAFETY: within the block, which nobody else knows.
            unsafe {
                let node = block.add(place);
                (*node).next = self.free;
                self.free = node;
            }
        }
        Some(())
    }
}
