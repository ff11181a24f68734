//! Where a store's files live: the few operations the store needs, and nothing else.
//!
//! All I/O goes through these three traits, so that a test can run a store in memory, keep apart what is visible and
//! what is durable, and fail any operation. Names are relative paths of one or two parts ("header", "packs/NAME").
//!
//! What the store relies on, and a back end must keep (tests/conformance.rs tries each):
//!
//! - `create` is exclusive: of two who create one name, one gets `AlreadyExists`.
//! - A name appears by `rename` at once and with all its bytes. Where locks are leases, the store never renames to a name
//!   that is taken, and a crash may leave both names. Elsewhere what has the name is replaced, at once too.
//! - A file's bytes are seen by others after `sync` or `hold`, and durable after `sync`; its name is durable after
//!   `sync_dir` of its directory. Nothing is appended after either.
//! - A lock and a hold end with the process that has them, however it ends. They may end later (a lease), or even be
//!   lost while the process lives: `check_hold` tells, and the store asks right before it publishes.
//! - A hold goes along when its holder renames the file.
//! - What is not there is `NotFound`, except that `remove` may succeed. Nothing else is `NotFound`.
//! - `stamp` never stays the same when a name has changed.
//!
//! A back end that cannot promise one of these cannot hold a store.

mod faulty;
pub(crate) mod file_system;
mod local;
mod memory;
#[cfg(feature = "object-store")]
pub mod object;

use std::{fmt, io, path::Path};

use crate::encryption::Encryptor;
pub use faulty::{Faults, Faulty, Operation};
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
    /// Gives a file another name at once.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name. Those who have it open read on, or get `NotFound` where the bytes go with the name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names in a directory durable ("" is the root).
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// A value that changes whenever a name in `dir` does; `None` when that cannot be told right now.
    fn stamp(&self, dir: &str) -> io::Result<Option<u64>>;
    /// Takes the exclusive lock of that name, creating its file; `None` when somebody else has it. `Unsupported` where
    /// locks do not work.
    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>>;
    /// Whether a lock or a hold can be lost while its process lives on.
    fn locks_are_leases(&self) -> bool {
        false
    }
    /// How much room a file takes that so many bytes are appended to.
    fn stored_bytes(&self, bytes: u64) -> u64 {
        bytes
    }
    /// How much can still be written; `None` where nobody can tell.
    fn room(&self) -> io::Result<Option<Room>> {
        Ok(None)
    }
    /// Whether a live process has called [`WriteFile::hold`] on this file and not closed it. May take as long as a
    /// back end needs to be sure. Once this has said no, [`WriteFile::check_hold`] says no too.
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
    /// An error if the hold was lost, so that others may take this writer for dead. Where a hold is a lock that only its
    /// process can end, there is nothing to ask.
    fn check_hold(&self) -> io::Result<()> {
        Ok(())
    }
    /// Takes away what encrypts the bytes of a file that nothing was appended to: whoever has it gives this file encrypted
    /// bytes from then on. `None` for a file that is not encrypted.
    #[doc(hidden)]
    fn take_encryptor(&mut self) -> Option<Encryptor> {
        None
    }
}

/// A file that does not change.
pub trait ReadFile: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills `out` from byte `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Whether the byte at `offset` is at hand; `true` where nothing can be had ahead.
    fn is_at_hand(&self, _offset: u64) -> bool {
        true
    }
    /// These bytes are going to be read soon. A hint: nothing depends on it.
    fn will_be_read(&self, _offset: u64, _length: u64) {}
}
