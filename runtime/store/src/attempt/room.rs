//! Room for others: an attempt fails before it fills the file system, which the program itself may be writing to.
//!
//! How much a checkpoint will need is not known before its pages have been compared with the store's, so nothing is
//! refused that might fit: the room is looked at before a program is stopped and before each batch is written. What is
//! still on its way to the disk counts as written.

use super::Attempt;
use crate::{Result, StoreError, files::behind::WriteBehind, pack::writer::PackWriter};

/// What is left to others: a hundredth of the file system, but no more than this.
const LEFT_BYTES_MAX: u64 = 64 << 20;

impl Attempt {
    /// Refuses when nothing can be written any more without taking what is left to others.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoRoom`]; also from every later call that writes.
    pub fn check_room(&self) -> Result<()> {
        self.check_room_for(0)
    }

    /// Refuses when fewer than `bytes` can be written and something is left.
    pub(super) fn check_room_for(&self, bytes: usize) -> Result<()> {
        let files = &self.shared.files;
        let Some(room) = files.room()? else { return Ok(()) };
        let writing = self.writer.as_ref().map_or(0, PackWriter::unwritten_bytes);
        let syncing = self.syncing.as_ref().map_or(0, WriteBehind::unwritten_bytes);
        let needed_bytes = bytes as u64 + writing + syncing + (room.total_bytes / 100).min(LEFT_BYTES_MAX);
        match room.free_bytes < needed_bytes {
            true => Err(StoreError::NoRoom { path: files.path(""), free_bytes: room.free_bytes, needed_bytes }),
            false => Ok(()),
        }
    }
}
