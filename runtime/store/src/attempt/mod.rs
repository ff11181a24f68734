//! An attempt to take a checkpoint: the one who writes.
//!
//! It has packs and tables of its own, which nobody else sees, so it needs no lock after it has begun. It ends in one
//! of three ways: sealed, failed with a reason, or dropped (its process died, or an error took it away), which others
//! recognise by the row file that nobody holds any more. In the last two nothing of it stays but the row.

pub(crate) mod begin;
mod lists;
mod pages;
mod room;
pub(crate) mod row;
mod seal;
mod sharing;

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    PageListRef, Result, StoreError,
    attempt::row::{AttemptRow, AttemptState, PageCounts},
    fault,
    files::{Kind, Output, PackName, behind::WriteBehind},
    format,
    format::manifest::OwnPack,
    key_table::KeyTable,
    pack::{Pack, writer::PackWriter},
    store::Shared,
};

pub use sharing::Sharing;

/// An attempt to take a checkpoint. Sealed, failed, or, when it is dropped, failed without a reason of its own.
pub struct Attempt {
    shared: Arc<Shared>,
    /// As it was begun; completed at the end.
    row: AttemptRow,
    sharing: Sharing,
    /// The threads that work for it; see [`Attempt::pool`].
    pool: OnceLock<Arc<ThreadPool>>,
    /// Held open: its lock says that this attempt lives.
    row_file: Output,
    /// New pages and nodes; their places count this attempt's packs.
    pages: KeyTable,
    nodes: KeyTable,
    writer: Option<PackWriter>,
    finished: Vec<(OwnPack, Pack)>,
    /// The last of the finished packs, while its bytes become durable; those of the others are.
    syncing: Option<WriteBehind>,
    roots: Vec<PageListRef>,
    counts: PageCounts,
    broken: Option<String>,
    stage: Stage,
}

/// How far the end of an attempt has come, and so what may be removed when it goes wrong.
#[derive(PartialEq, Eq)]
enum Stage {
    /// Nobody can refer to its packs.
    Writing,
    /// Its manifest may be in place: its packs must stay.
    Published,
    /// Nothing is left to do.
    Ended,
}

impl Attempt {
    fn new(shared: Arc<Shared>, row: AttemptRow, row_file: Output, sharing: Sharing) -> Self {
        Self {
            shared,
            row,
            sharing,
            pool: OnceLock::new(),
            row_file,
            pages: KeyTable::default(),
            nodes: KeyTable::default(),
            writer: None,
            finished: Vec::new(),
            syncing: None,
            roots: Vec::new(),
            counts: PageCounts::default(),
            broken: None,
            stage: Stage::Writing,
        }
    }

    /// The number of the attempt, and of the checkpoint when it is sealed. Unique in the store, and increasing.
    pub fn id(&self) -> u64 {
        self.row.id
    }

    /// What it has in common with its store.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// From here on it refers to less, or more, of what is there already; at first to [`Sharing::WithAll`].
    pub fn share(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    /// What has been written so far.
    pub fn counts(&self) -> PageCounts {
        self.counts
    }

    /// Ends the attempt as failed: everything it wrote is removed but a row that says why.
    pub fn fail(mut self, reason: &str, stop_ms: f64) -> Result<()> {
        self.row.stop_ms = stop_ms;
        self.record_failure(reason)
    }

    /// Removes the packs first: a full disk must not keep the row from being written.
    fn record_failure(&mut self, reason: &str) -> Result<()> {
        self.stage = Stage::Ended;
        self.remove_packs()?;
        let id = self.row.id;
        self.row.state = AttemptState::Failed;
        self.row.sealed_unix_s = None;
        self.row.written = self.counts;
        self.row.reason = shortened(reason);
        let files = &self.shared.files;
        let encoded = format::row::encode(&self.row)?;
        let mut output = files.create(&Kind::Failing.name(id), fault::FAILED_CREATE)?;
        output.append(&encoded, fault::FAILED_WRITE)?;
        output.sync(fault::FAILED_SYNC)?;
        files.rename(&Kind::Failing.name(id), &Kind::Failed.name(id), fault::FAILED_RENAME)?;
        files.remove(&Kind::Writing.name(id), fault::ROW_REMOVE)?;
        files.sync_dir(crate::files::ATTEMPTS, fault::ROWS_SYNC)
    }

    fn remove_packs(&mut self) -> Result<()> {
        self.syncing = None;
        let open = self.writer.take().map(|writer| writer.sequence());
        let finished = self.finished.iter().map(|(own, _)| own.sequence);
        for sequence in finished.chain(open) {
            let name = PackName { attempt: self.row.id, sequence };
            self.shared.files.remove(&name.name(), fault::PACK_REMOVE)?;
        }
        Ok(())
    }

    /// The threads that work for the attempt, one for each CPU. They are started when they are needed first, and so are
    /// scheduled as whoever needs them then: nice, if he is.
    fn pool(&self) -> Result<Arc<ThreadPool>> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool.clone());
        }
        let built = ThreadPoolBuilder::new().thread_name(|number| format!("ckpt-work-{number}")).build();
        let pool = built.map_err(|error| StoreError::Io {
            path: self.shared.files.path(""),
            operation: "start threads to write",
            source: io::Error::other(error),
        })?;
        Ok(self.pool.get_or_init(|| pool.into()).clone())
    }

    /// Which run of which pack comes next.
    fn next_run(&mut self) -> Result<(u32, usize)> {
        if self.writer.as_ref().is_some_and(|writer| writer.is_full(self.shared.options.pack_bytes)) {
            self.finish_pack()?;
        }
        let begun = self.writer.as_ref().map(|writer| (writer.sequence(), writer.run_count()));
        Ok(begun.unwrap_or((self.finished.len() as u32, 0)))
    }

    /// The pack that runs and nodes go to, made when there is none.
    fn writer(&mut self) -> Result<&mut PackWriter> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => {
                let name = PackName { attempt: self.row.id, sequence: self.finished.len() as u32 };
                let Shared { files, header, options, pace, .. } = &*self.shared;
                let writer = PackWriter::create(files, &header.store_id, name, options.write_bytes(), pace.clone())?;
                Ok(none.insert(writer))
            }
        }
    }

    /// Completes the pack being written, if there is one. Its bytes become durable while the next one is written.
    fn finish_pack(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let sequence = writer.sequence();
        let (pack, bytes, syncing) = writer.finish().inspect_err(|_| {
            // The file stays to be removed.
            let name = PackName { attempt: self.row.id, sequence };
            let _ = self.shared.files.remove(&name.name(), fault::PACK_REMOVE);
        })?;
        let bytes = self.shared.files.stored_bytes(bytes);
        self.finished.push((OwnPack { sequence, bytes }, pack));
        let before = self.syncing.replace(syncing);
        before.map_or(Ok(()), WriteBehind::wait)
    }

    /// Completes the last pack and waits until the bytes of all are durable.
    fn finish_packs(&mut self) -> Result<()> {
        self.finish_pack()?;
        self.syncing.take().map_or(Ok(()), WriteBehind::wait)
    }

    /// Remembers that a write failed: the tables now name what is not in a file.
    fn guard<T>(&mut self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.broken.get_or_insert_with(|| error.to_string());
        }
        done
    }

    fn check_usable(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(reason) => Err(StoreError::AttemptBroken {
                path: self.shared.files.path(""),
                id: self.row.id,
                reason: reason.clone(),
            }),
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("row", &self.row).finish_non_exhaustive()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.stage == Stage::Writing {
            // Gives the space back; when that fails the next attempt to begin does it.
            let _ = self.remove_packs();
        }
    }
}

/// A reason fits into a row whatever it was made from.
fn shortened(reason: &str) -> String {
    reason.chars().take(2_000).collect()
}
