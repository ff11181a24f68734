//! The checkpoint store: one directory that several processes and jobs write at once.
//!
//! Words. A *page* is 4096 bytes of memory and is named by its [`PageKey`], which the store's [`Digest`] makes. New pages
//! are written in *page runs* of up to 64 pages into a *pack*. A *page list* says which page lies where in a region; it is
//! stored as a tree of *nodes*, shared between checkpoints. A *manifest* is the root record of one checkpoint. An
//! *attempt* is the try to take a checkpoint; to *seal* it makes it durable and visible. To *prune* is to drop checkpoints
//! and to remove the packs that no other needs.
//!
//! The one invariant: a checkpoint exists when its manifest has been renamed into place, and that happens only after
//! everything the manifest names is durable. No file that is visible is ever changed afterwards: files are created,
//! appended to by their one writer, and removed, never rewritten; the manifest of a checkpoint that was sealed without some
//! pages is replaced, by a rename, when they are there. So a crash at any instruction leaves every earlier
//! checkpoint as it was, and readers need no lock.
//!
//! `FORMAT.md` draws every byte of every file.
//!
//! ```
//! use ckpt_store::{AttemptEnd, AttemptStart, Depth, PageList, Store};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let store = Store::create_or_open(dir)?;
//! let mut attempt = store.begin(AttemptStart {
//!     job: "7f3a".into(),
//!     name: "heat2d".into(),
//!     trigger: "command".into(),
//!     started_unix_ms: 0,
//!     processes: 1,
//!     depth: Depth::Full,
//! })?;
//! let keys = attempt.write_pages(&[7; 3 * 4096])?;
//! let mut list = PageList::new();
//! list.set_run(0, &keys);
//! let root = attempt.write_page_list(&list)?;
//! let end = AttemptEnd { memory_bytes: 12288, stop_ms: 0.2, total_ms: 3.0, processes: 1, ..AttemptEnd::default() };
//! let row = attempt.seal(end, b"state")?;
//!
//! assert_eq!(store.newest_sealed(Some("heat2d"))?, Some(row.id));
//! assert_eq!(store.manifest(row.id)?.state, b"state");
//! let mut page = [0; 4096];
//! store.read_pages(&[store.page_list(&root)?.get(2)], &mut page)?;
//! assert_eq!(page, [7; 4096]);
//! # Ok::<(), ckpt_store::StoreError>(())
//! ```
#![forbid(unsafe_code)]

mod attempt;
pub mod backend;
mod codec;
mod digest;
mod encryption;
mod error;
pub mod fault;
mod files;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod index;
// Open for examples/key_table.rs, no part of the interface.
#[doc(hidden)]
pub mod key_table;
mod options;
mod pace;
mod pack;
mod page_key;
mod page_list;
mod store;
mod threads;

pub use attempt::row::{AttemptEnd, AttemptRow, AttemptStart, AttemptState, Depth, PageCounts};
pub use attempt::{Attempt, Sharing};
pub use codec::Compression;
pub use digest::Digest;
pub use encryption::{Key, KeyId};
pub use error::{Result, StoreError};
pub use fault::FAULT_POINTS;
pub use options::StoreOptions;
pub use page_key::PageKey;
pub use page_list::{PageList, PageListRef};
pub use store::{AddedKey, Completed, Copied, Manifest, Reclaimed, Store, Verifier};
pub use threads::{keep_to_this_thread, on_own_threads, use_all_processors};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES == ckpt_kernels::page_digest::PAGE_BYTES);
