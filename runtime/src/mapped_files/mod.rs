//! Pages of mapped files that are stored behind the seal of a checkpoint.
//!
//! A checkpoint has all pages of all files that a program has mapped, so that a package that is upgraded later strands no job. Of a
//! large program most of them are nothing but the file's, and many have never been touched: to read and store them takes
//! longer than all else. So the agent holds such files open, seals the checkpoint without these pages, writes them
//! while the program has the processors to itself as far as it wants them, and replaces the manifest.
//!
//! In between the checkpoint is sealed, and lacks pages that the files have. Whoever uses it first waits until a writer that
//! lives has completed it, or, where that was killed, completes it from the files, if they have not changed.

mod completion;
mod open;
mod settling;

pub use completion::{StoredFile, StoredFiles, complete};
pub use open::{MappedFiles, open_regular};
pub use settling::{settle, wait_until_complete};
