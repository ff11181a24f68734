//! Memory that processes of the job are to share, mapped in this process while it is filled.

use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

/// Such memory, until this is dropped.
#[derive(Debug)]
pub struct Window {
    start: NonNull<u8>,
    bytes: usize,
    unmap: fn(NonNull<u8>, usize),
    writing: Mutex<()>,
}

// SAFETY: what `unmap` calls may be called by any thread.
unsafe impl Send for Window {}
// SAFETY: only `write` uses the memory, and one thread at a time.
unsafe impl Sync for Window {}

impl Window {
    /// The memory at `start`, which `unmap` is given at the end.
    ///
    /// # Safety
    /// So many bytes are mapped there to be written, and nothing in this process refers to them. Any thread may call `unmap`.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize, unmap: fn(NonNull<u8>, usize)) -> Window {
        Window { start, bytes, unmap, writing: Mutex::new(()) }
    }

    /// Writes `content` at `offset`, as far as the memory goes.
    pub fn write(&self, offset: u64, content: &[u8]) {
        let from = (offset as usize).min(self.bytes);
        let bytes = content.len().min(self.bytes - from);
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: so many bytes are mapped behind `from`, and nothing in this process refers to them.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), self.start.as_ptr().add(from), bytes) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        (self.unmap)(self.start, self.bytes);
    }
}
