//! A difference on its way into an attempt, as pages: the head, zeros up to the next page, the data.

use std::io;

use ckpt_kernels::merkle::{Head, Sink};
use ckpt_store::{Attempt, PAGE_BYTES, PageList, StoreError};

use crate::image::StoredDifference;

/// A difference whose pages are written.
pub struct Stored {
    pub list: PageList,
    pub data_bytes: u64,
    head_bytes: u64,
}

impl Stored {
    /// Makes it part of the checkpoint.
    ///
    /// # Errors
    /// The store's, also when a page is there no more.
    pub fn write_list(&self, attempt: &mut Attempt) -> crate::error::Result<StoredDifference> {
        Ok(StoredDifference { pages: attempt.write_page_list(&self.list)?, head_bytes: self.head_bytes })
    }
}

/// Collects bytes and writes them in large calls.
pub struct PageSink<'a> {
    attempt: &'a mut Attempt,
    /// Is told the bytes of data that have come, and of how many.
    progress: &'a mut dyn FnMut(u64, u64),
    data_bytes: u64,
    /// Whole pages, and the beginning of the next one.
    buffer: Vec<u8>,
    call_bytes: usize,
    written_pages: u64,
    stored: Stored,
    failure: Option<StoreError>,
}

impl<'a> PageSink<'a> {
    pub fn new(attempt: &'a mut Attempt, progress: &'a mut dyn FnMut(u64, u64)) -> PageSink<'a> {
        let call_bytes = (attempt.best_call_bytes() / PAGE_BYTES).max(1) * PAGE_BYTES;
        let stored = Stored { list: PageList::new(), data_bytes: 0, head_bytes: 0 };
        PageSink {
            attempt,
            progress,
            data_bytes: 0,
            buffer: Vec::new(),
            call_bytes,
            written_pages: 0,
            stored,
            failure: None,
        }
    }

    /// Why the store refused, if it did.
    pub fn failure(&mut self) -> Option<StoreError> {
        self.failure.take()
    }

    /// Writes what is left, the last page filled up with zeros.
    pub fn finish(mut self) -> Result<Stored, StoreError> {
        self.fill_page();
        self.write()?;
        Ok(self.stored)
    }

    fn fill_page(&mut self) {
        self.buffer.resize(self.buffer.len().next_multiple_of(PAGE_BYTES), 0);
    }

    fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.call_bytes - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            self.write_if_full()?;
        }
        Ok(())
    }

    fn write_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < self.call_bytes {
            return Ok(());
        }
        self.write().map_err(|error| {
            let message = error.to_string();
            self.failure = Some(error);
            io::Error::other(message)
        })
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let keys = self.attempt.write_pages(&self.buffer)?;
        self.stored.list.set_run(self.written_pages, &keys);
        self.written_pages += keys.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Sink for PageSink<'_> {
    fn head(&mut self, head: &Head) -> io::Result<()> {
        let encoded = head.encode();
        (self.stored.head_bytes, self.stored.data_bytes) = (encoded.len() as u64, head.data_bytes);
        self.push(&encoded)?;
        self.fill_page();
        self.write_if_full()
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.data_bytes += bytes.len() as u64;
        (self.progress)(self.data_bytes, self.stored.data_bytes);
        self.push(bytes)
    }
}
