//! Moving pages from a still process into the store, in large batches.

use std::ops::Range;

use ckpt_store::{Attempt, PAGE_BYTES, PageList};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::{self, IoSliceMut};

use super::page_set::PageSet;
use crate::error::{Error, Result};
use crate::ptrace::ProcessMemory;

/// Pages of a batch: 1 MiB, where process_vm_readv is fastest.
const BATCH_PAGES: u64 = 256;
/// Runs in a batch; the kernel takes at most 1,024 at once.
const BATCH_RUNS: usize = 512;
const PAGE: u64 = PAGE_BYTES as u64;

/// Where the pages of a region come from.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Address of page 0.
    pub address: u64,
    /// The process itself may read it: the fast way works.
    pub readable: bool,
    /// Pages that cannot be read are behind the end of a file, and count as zero.
    pub may_end_early: bool,
}

/// Reads the memory of a process that holds still.
#[derive(Debug)]
pub struct PageSource {
    pid: i32,
    memory: ProcessMemory,
}

impl PageSource {
    /// The memory of `pid`, which the caller traces.
    pub fn open(pid: i32) -> Result<PageSource> {
        Ok(PageSource { pid, memory: ProcessMemory::open(pid)? })
    }

    /// Reads the pages of `set` one after another into a new buffer.
    pub fn read_set(&self, place: &Place, set: &PageSet) -> Result<Vec<u8>> {
        let mut buffer = vec![0; (set.len() * PAGE) as usize];
        let mut at = 0;
        for batch in batches(set) {
            let end = at + bytes_of(&batch);
            self.read_batch(place, &batch, &mut buffer[at..end])?;
            at = end;
        }
        Ok(buffer)
    }

    fn read_batch(&self, place: &Place, runs: &[Range<u64>], into: &mut [u8]) -> Result<()> {
        if place.readable {
            let remote: Vec<RemoteIoVec> = runs
                .iter()
                .map(|run| RemoteIoVec {
                    base: (place.address + run.start * PAGE) as usize,
                    len: ((run.end - run.start) * PAGE) as usize,
                })
                .collect();
            let wanted = into.len();
            match process_vm_readv(Pid::from_raw(self.pid), &mut [IoSliceMut::new(into)], &remote) {
                Ok(bytes) if bytes == wanted => return Ok(()),
                Ok(_) | Err(Errno::EFAULT) => {}
                Err(Errno::ESRCH) => return Err(Error::ProgramGone { pid: self.pid }),
                Err(source) => return Err(Error::io("read memory of", format!("/proc/{}/mem", self.pid), source)),
            }
        }
        self.read_page_by_page(place, runs, into)
    }

    /// Reads ranges of addresses one after another into `into`, which is as long as they are together. The process itself
    /// must be able to read them.
    pub fn read_ranges(&self, ranges: &[Range<u64>], into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        for ranges in ranges.chunks(BATCH_RUNS) {
            let length = |range: &Range<u64>| (range.end - range.start) as usize;
            let remote: Vec<_> =
                ranges.iter().map(|range| RemoteIoVec { base: range.start as usize, len: length(range) }).collect();
            let (now, later) = rest.split_at_mut(ranges.iter().map(length).sum());
            let wanted = now.len();
            if process_vm_readv(Pid::from_raw(self.pid), &mut [IoSliceMut::new(now)], &remote)? < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            rest = later;
        }
        Ok(())
    }

    /// The slow way, through protections and around the ends of files.
    fn read_page_by_page(&self, place: &Place, runs: &[Range<u64>], into: &mut [u8]) -> Result<()> {
        let pages = runs.iter().cloned().flatten();
        for (page, buffer) in pages.zip(into.chunks_exact_mut(PAGE_BYTES)) {
            match self.memory.read(place.address + page * PAGE, buffer) {
                Ok(()) => {}
                Err(_) if place.may_end_early => buffer.fill(0),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes the pages of `set`, read from `source`, into the store and into `list`.
pub fn store_from(
    source: &PageSource,
    place: &Place,
    set: &PageSet,
    attempt: &mut Attempt,
    list: &mut PageList,
    written: &mut dyn FnMut(u64),
) -> Result<()> {
    let pages = set.len().min(BATCH_PAGES.max(attempt.best_call_bytes() as u64 / PAGE));
    let mut buffer = vec![0; (pages * PAGE) as usize];
    let mut batches = batches(set).into_iter().peekable();
    while batches.peek().is_some() {
        let (mut runs, mut filled) = (Vec::new(), 0);
        while let Some(batch) = batches.next_if(|batch| filled + bytes_of(batch) <= buffer.len()) {
            let end = filled + bytes_of(&batch);
            source.read_batch(place, &batch, &mut buffer[filled..end])?;
            runs.extend(batch);
            filled = end;
        }
        store(&buffer[..filled], &runs, attempt, list)?;
        written(filled as u64);
    }
    Ok(())
}

/// Writes pages that were read before (in the order of `set`) into the store and into `list`.
pub fn store_held(held: &[u8], set: &PageSet, attempt: &mut Attempt, list: &mut PageList) -> Result<()> {
    let runs: Vec<_> = set.ranges().collect();
    store(held, &runs, attempt, list)
}

fn store(pages: &[u8], runs: &[Range<u64>], attempt: &mut Attempt, list: &mut PageList) -> Result<()> {
    let keys = attempt.write_pages(pages)?;
    let mut at = 0;
    for run in runs {
        let count = (run.end - run.start) as usize;
        list.set_run(run.start, &keys[at..at + count]);
        at += count;
    }
    Ok(())
}

fn bytes_of(batch: &[Range<u64>]) -> usize {
    (batch.iter().map(|run| run.end - run.start).sum::<u64>() * PAGE) as usize
}

/// Cuts a set into batches of at most `BATCH_PAGES` pages in at most `BATCH_RUNS` runs.
fn batches(set: &PageSet) -> Vec<Vec<Range<u64>>> {
    let mut batches = Vec::new();
    let mut batch: Vec<Range<u64>> = Vec::new();
    let mut room = BATCH_PAGES;
    for mut range in set.ranges() {
        while !range.is_empty() {
            let taken = range.start..range.end.min(range.start + room);
            room -= taken.end - taken.start;
            range.start = taken.end;
            batch.push(taken);
            if room == 0 || batch.len() == BATCH_RUNS {
                batches.push(std::mem::take(&mut batch));
                room = BATCH_PAGES;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_page_once_and_in_order() {
        let mut set = PageSet::default();
        for first in 0..2000u64 {
            set.push(first * 5..first * 5 + 1 + first % 4);
        }
        set.push(20_000..23_000);
        let batches = batches(&set);
        let pages: Vec<u64> = batches.iter().flatten().cloned().flatten().collect();
        let expected: Vec<u64> = set.ranges().flatten().collect();
        assert_eq!(pages, expected);
        assert!(batches.iter().all(|batch| batch.len() <= BATCH_RUNS
            && batch.iter().map(|run| run.end - run.start).sum::<u64>() <= BATCH_PAGES));
    }
}
