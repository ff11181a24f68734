//! Where a store's files live: the few operations the store needs, and nothing else.
//!
//! All I/O goes through these three traits, so that a test can run a store in memory, keep apart what is visible and
//! what is durable, and fail any operation. Names are relative paths of one or two parts ("header", "packs/NAME").
//!
//! What the store relies on: `rename` replaces a name at once and for every process; a file's bytes are durable after
//! `sync`, its name after `sync_dir` of its directory; a hold and a lock end with the process that has them, however it
//! ends. A back end that cannot promise one of these cannot hold a store.

mod local;
mod memory;

use std::{fmt, io, path::Path};

pub use local::Local;
pub use memory::{Memory, Step, Survives};

/// A directory of files.
pub trait Backend: Send + Sync + fmt::Debug {
    /// What error messages put before a name.
    fn root(&self) -> &Path;
    /// Creates a file that does not exist yet, readable and writable by its owner alone.
    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>>;
    /// Opens a file for reading; never follows a link.
    fn open(&self, name: &str) -> io::Result<Box<dyn ReadFile>>;
    /// Creates a directory, for its owner alone; one that is there already is fine.
    fn create_dir(&self, name: &str) -> io::Result<()>;
    /// The names in a directory ("" is the root), in no order.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Gives a file another name at once, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name. Those who have it open can read on.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names in a directory durable ("" is the root).
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// A value that changes whenever a name in `dir` does; `None` when that cannot be told right now.
    fn stamp(&self, dir: &str) -> io::Result<Option<u64>>;
    /// Takes the exclusive lock of that name, creating its file; `None` when somebody else has it.
    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>>;
    /// How much can still be written; `None` where nobody can tell.
    fn room(&self) -> io::Result<Option<Room>> {
        Ok(None)
    }
    /// Whether a live process has called [`WriteFile::hold`] on this file and not closed it.
    fn is_held(&self, name: &str) -> io::Result<bool>;
}

/// The room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What this user can still write.
    pub free_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

/// A file that its one writer appends to.
pub trait WriteFile: Send + Sync {
    /// Writes all of `bytes` at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the bytes durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Shows others that this file's writer lives, until this value is dropped or the process ends.
    fn hold(&mut self) -> io::Result<()>;
}

/// A file that does not change.
pub trait ReadFile: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills `out` from byte `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}
