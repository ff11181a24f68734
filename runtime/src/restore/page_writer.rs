//! Writes pages of the store into processes, memory objects and System V memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use super::fresh_memory::FreshMemory;
use super::window::Window;
use crate::error::{Error, Result};
use crate::ptrace::{ProcessMemory, write_memory};

/// Pages asked of the store at a time: 64 MiB, which all its cores read, verify and write in pieces.
const BATCH_PAGES: usize = 1 << 14;
const PAGE: u64 = PAGE_BYTES as u64;

/// Writes `pages` to `address` of process `pid`, where they can be written.
///
/// # Errors
/// When the store cannot be read, or there is no memory.
pub fn write(pid: i32, address: u64, pages: &PageList, store: &Store, filled: &mut dyn FnMut(u64)) -> Result<()> {
    let mut writer = Writer::of(store, filled);
    writer.begin(Target::Writable(pid, address));
    pages.iter().try_for_each(|(page, key)| writer.add(page, key))?;
    writer.finish()
}

/// How content gets to a region.
pub enum Target<'a> {
    /// Into fresh memory at an address, the fastest way.
    Fresh(&'a FreshMemory, u64),
    /// Into the memory of a process at an address, the fast way.
    Writable(i32, u64),
    /// Into private memory that the process itself cannot write.
    Protected(&'a ProcessMemory, u64),
    /// Into a memory object at an offset: a shared mapping lets nobody write through its protection.
    Object(&'a File, u64),
    /// Into System V shared memory, or a memory object of huge pages, at an offset.
    Window(&'a Window, u64),
}

impl Target<'_> {
    fn write(&self, page: u64, content: &[u8]) -> Result<()> {
        match self {
            Target::Fresh(fresh, address) => fresh.put(address + page * PAGE, content),
            Target::Writable(pid, address) => write_memory(*pid, address + page * PAGE, content),
            Target::Protected(memory, address) => memory.write(address + page * PAGE, content),
            Target::Object(file, offset) => file
                .write_all_at(content, offset + page * PAGE)
                .map_err(|source| Error::io("write", "shared memory", source)),
            Target::Window(window, offset) => {
                window.write(offset + page * PAGE, content);
                Ok(())
            }
        }
    }
}

/// Collects pages of many regions, and has them written from where the store reads them to. The kernel reads one batch ahead.
///
/// Pages of small regions lie together in the store, so they are read together.
pub struct Writer<'a> {
    pub(super) store: &'a Store,
    pub(super) filled: &'a mut dyn FnMut(u64),
    targets: Vec<Target<'a>>,
    /// Which target each page goes to, and its number there.
    pages: Vec<(usize, u64)>,
    keys: Vec<PageKey>,
    added_bytes: u64,
}

impl<'a> Writer<'a> {
    /// `filled` is told the bytes of each batch, and what needs no writing.
    pub fn of(store: &'a Store, filled: &'a mut dyn FnMut(u64)) -> Writer<'a> {
        Writer { store, filled, targets: Vec::new(), pages: Vec::new(), keys: Vec::new(), added_bytes: 0 }
    }

    /// The pages to come go to `target`. Gives the bytes that have been added until now.
    pub fn begin(&mut self, target: Target<'a>) -> u64 {
        self.targets.push(target);
        self.added_bytes
    }

    /// The bytes that have been added since then.
    pub fn added_since(&self, begun: u64) -> u64 {
        self.added_bytes - begun
    }

    /// Counts what is as it has to be.
    pub fn pass_by(&mut self, bytes: u64) {
        (self.filled)(bytes);
    }

    /// Has a page written to the last target.
    pub fn add(&mut self, page: u64, key: PageKey) -> Result<()> {
        let target = self.targets.len() - 1;
        if key.is_zero() {
            return self.targets[target].write(page, &[0; PAGE_BYTES]);
        }
        self.pages.push((target, page));
        self.keys.push(key);
        self.added_bytes += PAGE;
        if self.pages.len() < 2 * BATCH_PAGES {
            return Ok(());
        }
        self.store.will_be_read(&self.keys[BATCH_PAGES..]);
        self.write_batch()
    }

    /// Writes what is left.
    pub fn finish(mut self) -> Result<()> {
        while !self.pages.is_empty() {
            self.write_batch()?;
        }
        Ok(())
    }

    /// Writes the first pages, a batch at most.
    fn write_batch(&mut self) -> Result<()> {
        let (targets, count) = (&self.targets, self.pages.len().min(BATCH_PAGES));
        let pages: Vec<(usize, u64)> = self.pages.drain(..count).collect();
        let keys: Vec<PageKey> = self.keys.drain(..count).collect();
        self.store.take_pages(&keys, &|first, bytes: &[u8]| {
            let places = &pages[first..first + bytes.len() / PAGE_BYTES];
            let mut rest = bytes;
            for run in places.chunk_by(|(target, page), next| (*target, page + 1) == *next) {
                let content = rest.split_off(..run.len() * PAGE_BYTES).unwrap_or_default();
                let (target, page) = run[0];
                targets[target].write(page, content)?;
            }
            Ok::<(), Error>(())
        })?;
        (self.filled)((count * PAGE_BYTES) as u64);
        Ok(())
    }
}
