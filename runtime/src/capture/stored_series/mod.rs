//! Differences of one engine in the store: a series, from one that stores everything on.
//!
//! An engine remembers what the checkpoints before had. After an attempt that was not sealed it remembers too much, so
//! whoever has a series begins a new one then; and so does he when the old one has become long: who wants one checkpoint
//! back reads the heads of all differences.

mod comparison;
mod sink;

use ckpt_kernels::merkle::{Live, Taken};
use ckpt_store::{Attempt, PageList, Store};

use crate::differences::Differences;
use crate::error::{Error, Result};
use crate::image::StoredDifference;
pub use comparison::Mismatch;
pub use sink::PageSink;
use sink::Stored;

/// Differences of a series.
const SERIES_MAX: usize = 64;

/// An engine, and where its differences are.
pub struct StoredSeries<E> {
    /// The engine.
    pub engine: E,
    /// Number of the next difference.
    next: u32,
    /// How many differences are sealed.
    sealed: u32,
    /// Oldest first.
    stored: Vec<Stored>,
    is_unsealed: bool,
    /// What has been stored, for comparing, if that is wanted.
    verified: Option<Differences>,
}

impl<E> StoredSeries<E> {
    /// Nothing yet. `verifies`: so that memory can be compared with what would be restored.
    pub fn new(engine: E, verifies: bool) -> StoredSeries<E> {
        let verified = verifies.then(Differences::default);
        StoredSeries { engine, next: 0, sealed: 0, stored: Vec::new(), is_unsealed: false, verified }
    }

    /// Whether there was an attempt that did not become a checkpoint.
    pub fn is_unsealed(&self) -> bool {
        self.is_unsealed
    }

    /// Whether to go back to a checkpoint means to read much that is of no use any more; it has so many bytes of memory.
    pub fn is_long(&self, bytes: u64) -> bool {
        let later: u64 = self.stored.iter().skip(1).map(|stored| stored.data_bytes).sum();
        self.stored.len() >= SERIES_MAX || later > bytes
    }

    /// An attempt begins that may come to nothing.
    pub fn begin(&mut self) {
        self.is_unsealed = true;
    }

    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self) {
        self.is_unsealed = false;
        self.sealed = self.next;
    }

    /// Has the engine forget what was not sealed, from the difference with that number on.
    ///
    /// # Errors
    /// The engine's.
    pub fn forget_unsealed<X>(&mut self, forget: impl FnOnce(&mut E, u32) -> Result<(), X>) -> Result<(), X> {
        if !std::mem::take(&mut self.is_unsealed) {
            return Ok(());
        }
        self.next = self.sealed;
        self.stored.truncate(self.sealed as usize);
        forget(&mut self.engine, self.sealed)
    }

    /// Has `find` find the next difference, by the engine and with that number, and writes its pages.
    ///
    /// # Errors
    /// The engine's and the store's.
    pub fn take<X: Into<Error>>(
        &mut self,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64, u64),
        find: impl FnOnce(&mut E, u32, &mut PageSink<'_>) -> Result<Taken, X>,
    ) -> Result<Taken> {
        let number = self.next;
        self.next += 1;
        let mut sink = PageSink::new(attempt, written);
        let taken = match find(&mut self.engine, number, &mut sink) {
            Ok(taken) => taken,
            Err(error) => return Err(sink.failure().map_or_else(|| error.into(), Into::into)),
        };
        self.stored.push(sink.finish()?);
        if let Some(shortage) = &taken.shortage {
            log::info!("memory is stored by method {:?}: {shortage}", taken.method);
        }
        if let Some(verified) = &mut self.verified {
            verified.add(&taken.head, PageList::new())?;
        }
        Ok(taken)
    }

    /// Where memory is not as the newest difference would restore it, if that is to be found out.
    ///
    /// # Errors
    /// When memory or the store cannot be read.
    pub fn mismatch(&mut self, live: &[Live<'_>], store: &Store) -> Result<Option<Mismatch>> {
        let (Some(verified), Some(newest)) = (&mut self.verified, self.stored.last()) else { return Ok(None) };
        let mismatch = comparison::mismatch(verified, self.next.saturating_sub(1), live, store)?;
        verified.complete(newest.list.clone());
        Ok(mismatch)
    }

    /// Makes all differences part of the checkpoint that the newest one is of.
    ///
    /// # Errors
    /// The store's.
    pub fn write_lists(&self, attempt: &mut Attempt) -> Result<Vec<StoredDifference>> {
        self.stored.iter().map(|stored| stored.write_list(attempt)).collect()
    }
}
