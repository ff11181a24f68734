//! Loaded code as the agent sees it: laid out in [`ckpt_wire::device`]. There are few, and they are looked for one by one.

use core::sync::atomic::{AtomicU64, Ordering};

use ckpt_wire::device::{CODES, CodeBlock, LoadedCode};

use crate::hooks::cuda::hold;
use crate::hooks::recorded;
use crate::sys;

/// All entries, used and free. Used by whoever holds the lock.
pub struct Entries {
    /// The newest block, from which the others are found.
    blocks: *mut CodeBlock,
}

impl Entries {
    /// No entries yet.
    pub const fn new() -> Self {
        Self { blocks: core::ptr::null_mut() }
    }

    /// Shows code that has an id. `None` when there is no memory for it.
    pub fn show(&mut self, code: LoadedCode) -> Option<()> {
        let entry = match self.first(|entry| entry.id == 0) {
            Some(free) => free,
            None => self.add_block()?,
        };
        // SAFETY: a free entry, which is ours. A reader believes it from when it has an id.
        unsafe { entry.write(LoadedCode { id: 0, ..code }) };
        id_of(entry).store(code.id, Ordering::Release);
        Some(())
    }

    /// Code that is so.
    pub fn find(&self, is_it: impl Fn(&LoadedCode) -> bool) -> Option<LoadedCode> {
        // SAFETY: entries stay for ever.
        self.first(|entry| entry.id != 0 && is_it(entry)).map(|entry| unsafe { entry.read() })
    }

    /// The same, which is there no longer.
    pub fn take(&mut self, is_it: impl Fn(&LoadedCode) -> bool) -> Option<LoadedCode> {
        let entry = self.first(|entry| entry.id != 0 && is_it(entry))?;
        // SAFETY: entries stay for ever.
        let code = unsafe { entry.read() };
        id_of(entry).store(0, Ordering::Release);
        Some(code)
    }

    fn first(&self, is_it: impl Fn(&LoadedCode) -> bool) -> Option<*mut LoadedCode> {
        let mut block = self.blocks;
        while !block.is_null() {
            for place in 0..CODES {
                // SAFETY: within the block; blocks stay for ever.
                let entry = unsafe { (&raw mut (*block).code).cast::<LoadedCode>().add(place) };
                // SAFETY: as above; the lock is ours.
                if is_it(unsafe { &*entry }) {
                    return Some(entry);
                }
            }
            // SAFETY: as above.
            block = unsafe { (*block).next } as *mut CodeBlock;
        }
        None
    }

    /// The first entry of a new block, all of which are free.
    fn add_block(&mut self) -> Option<*mut LoadedCode> {
        let block = sys::map_zeros(size_of::<CodeBlock>()).ok()?.cast::<CodeBlock>();
        // SAFETY: complete; blocks stay for ever.
        unsafe { recorded::link(hold::code(), block as u64, &raw mut (*block).next) };
        self.blocks = block;
        // SAFETY: within the block.
        Some(unsafe { (&raw mut (*block).code).cast() })
    }
}

fn id_of(entry: *mut LoadedCode) -> &'static AtomicU64 {
    // SAFETY: blocks stay for ever; the id is the entry's first field, aligned, and touched as an atomic from outside.
    unsafe { AtomicU64::from_ptr(&raw mut (*entry).id) }
}
