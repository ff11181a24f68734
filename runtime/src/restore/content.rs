//! Fills the regions with the pages of the checkpoint.
//!
//! The store verifies every page that it hands out, so when this is done every byte that the program will see has
//! been verified. Fresh memory is zero already, so pages of zeros are written only over files.

use ckpt_store::{PAGE_BYTES, PageKey, Store};

use super::file_mappings::Source;
use super::process::HalfBuilt;
use crate::error::Result;
use crate::image::{PageRange, Region};
use crate::ptrace::write_memory;

/// Pages read and written at a time.
const BATCH_PAGES: usize = 256;
const PAGE: u64 = PAGE_BYTES as u64;

/// Writes the pages of `region` into `process`; `filled` is told the bytes of each batch.
pub fn fill(
    process: &HalfBuilt,
    region: &Region,
    source: Source,
    store: &Store,
    filled: &mut dyn FnMut(u64),
) -> Result<()> {
    if region.advice.droppable {
        return Ok(()); // the kernel may drop it at any time; the program has to expect zeros
    }
    let mut writer = Writer::new(process, region, store, filled);
    match source {
        Source::SharedFile { .. } => return Ok(()), // the file has them, or gets them at the end
        Source::PrivateFile { .. } => {
            let list = store.page_list(&region.pages)?;
            for &PageRange { first, count } in &region.own_pages {
                for page in first..first + count {
                    writer.add(page, list.get(page))?;
                }
            }
        }
        Source::Memory | Source::SharedMemory | Source::Object { .. } => {
            let list = store.page_list(&region.pages)?;
            for (page, key) in list.iter().take_while(|(page, _)| *page < region.bytes / PAGE) {
                if !key.is_zero() {
                    writer.add(page, key)?;
                }
            }
        }
    }
    writer.flush()
}

/// The bytes that [`fill`] will report for `region`, at most.
pub fn bytes_to_fill(region: &Region, source: Source) -> u64 {
    match source {
        Source::SharedFile { .. } => 0,
        Source::PrivateFile { .. } => region.own_pages.iter().map(|own| own.count * PAGE).sum(),
        Source::Memory | Source::SharedMemory | Source::Object { .. } => region.bytes,
    }
}

/// Collects pages and writes them in runs.
struct Writer<'a> {
    process: &'a HalfBuilt,
    region: &'a Region,
    store: &'a Store,
    filled: &'a mut dyn FnMut(u64),
    pages: Vec<u64>,
    keys: Vec<PageKey>,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(process: &'a HalfBuilt, region: &'a Region, store: &'a Store, filled: &'a mut dyn FnMut(u64)) -> Writer<'a> {
        let (pages, keys) = (Vec::with_capacity(BATCH_PAGES), Vec::with_capacity(BATCH_PAGES));
        Writer { process, region, store, filled, pages, keys, buffer: Vec::new() }
    }

    fn add(&mut self, page: u64, key: PageKey) -> Result<()> {
        if key.is_zero() {
            self.flush()?;
            return self.write(page, &[0; PAGE_BYTES]);
        }
        self.pages.push(page);
        self.keys.push(key);
        if self.pages.len() == BATCH_PAGES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = self.keys.len() * PAGE_BYTES;
        if bytes == 0 {
            return Ok(());
        }
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        self.store.read_pages(&self.keys, &mut self.buffer[..bytes])?;
        let mut at = 0;
        for run in self.pages.chunk_by(|page, next| page + 1 == *next) {
            let end = at + run.len() * PAGE_BYTES;
            self.write(run[0], &self.buffer[at..end])?;
            at = end;
        }
        (self.filled)(bytes as u64);
        self.pages.clear();
        self.keys.clear();
        Ok(())
    }

    fn write(&self, page: u64, content: &[u8]) -> Result<()> {
        let address = self.region.address + page * PAGE;
        if self.region.protection & libc::PROT_WRITE != 0 {
            write_memory(self.process.pid(), address, content)
        } else {
            self.process.memory().write(address, content)
        }
    }
}
