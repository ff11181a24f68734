//! The pieces as the agent sees them: laid out in [`ckpt_wire::device`], from [`HOLD`] on.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use ckpt_wire::device::{Hold, PIECES, Piece, PieceBlock};

use crate::hooks::cuda::HOLD;
use crate::hooks::recorded;
use crate::sys;

/// Entries that are free: each has the address of the next in its `bytes`. Used by whoever holds the lock.
pub struct Shown {
    free: *mut Piece,
}

impl Shown {
    /// No entries yet.
    pub const fn new() -> Self {
        Self { free: core::ptr::null_mut() }
    }

    /// Shows a piece: its entry. `None` when there is no memory for one.
    pub fn show(&mut self, address: u64, bytes: u64, device: i32) -> Option<*mut Piece> {
        if self.free.is_null() {
            self.add_block()?;
        }
        let entry = self.free;
        // SAFETY: a free entry, which is ours. A reader believes it from when it has an id.
        unsafe {
            self.free = (*entry).bytes as *mut Piece;
            entry.write(Piece { id: 0, address, bytes, device, kept: 0 });
        }
        id_of(entry).store(recorded::next_id(), Ordering::Release);
        Some(entry)
    }

    /// The piece is gone.
    ///
    /// # Safety
    /// `show` must have given the entry, and it must not be used again.
    pub unsafe fn hide(&mut self, entry: *mut Piece) {
        id_of(entry).store(0, Ordering::Release);
        // SAFETY: the caller's word.
        unsafe { (*entry).bytes = self.free as u64 };
        self.free = entry;
    }

    fn add_block(&mut self) -> Option<()> {
        let block = sys::map_zeros(size_of::<PieceBlock>()).ok()?.cast::<PieceBlock>();
        for place in 0..PIECES {
            // SAFETY: within the block, which nobody else knows yet.
            unsafe {
                let entry = (&raw mut (*block).pieces).cast::<Piece>().add(place);
                (*entry).bytes = self.free as u64;
                self.free = entry;
            }
        }
        // SAFETY: complete; blocks stay for ever.
        unsafe { recorded::link(first(), block as u64, &raw mut (*block).next) };
        Some(())
    }

    /// None is shown any more, and no memory is given back.
    pub fn forget_all(&mut self) {
        first().store(0, Ordering::Release);
        self.free = core::ptr::null_mut();
    }
}

/// Where the first block is.
fn first() -> &'static AtomicU64 {
    // SAFETY: a field of eight bytes of a static, touched as an atomic only.
    unsafe { AtomicU64::from_ptr(HOLD.get().byte_add(offset_of!(Hold, pieces)).cast()) }
}

/// [`Piece::kept`] of an entry that is shown; 0 for none.
pub fn kept(entry: *const Piece) -> u32 {
    // SAFETY: blocks stay for ever. The agent writes the number, and nobody here but through `forget_kept`.
    if entry.is_null() { 0 } else { unsafe { (&raw const (*entry).kept).read_volatile() } }
}

/// Makes it 0.
pub fn forget_kept(entry: *mut Piece) {
    if !entry.is_null() {
        // SAFETY: as above.
        unsafe { (&raw mut (*entry).kept).write_volatile(0) };
    }
}

fn id_of(entry: *mut Piece) -> &'static AtomicU64 {
    // SAFETY: blocks stay for ever; the id is the entry's first field, aligned, and touched as an atomic from outside.
    unsafe { AtomicU64::from_ptr(&raw mut (*entry).id) }
}
