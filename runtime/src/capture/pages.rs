//! Moving pages from a still process into the store, in large batches.
//!
//! `process_vm_readv` pins what it reads, and a page that a clone shares with its program cannot be pinned: the kernel first
//! gives the clone a copy of its own. So a twin, nearly all of whose pages are shared, is read through `/proc/PID/mem`, which
//! looks without pinning: half the time for a page, and no second copy of the program's memory. So is all where the call is forbidden.

use std::ops::Range;

use ckpt_store::{Attempt, PAGE_BYTES, PageKey, PageList};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::{self, IoSliceMut};

use crate::error::{Error, Result};
use crate::page_set::PageSet;
use crate::ptrace::{ProcessMemory, is_read_by_call};

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
    /// The process itself may read it, and pages of it may be pinned: the fast way works.
    pub readable: bool,
    /// Pages that cannot be read are behind the end of a file, and count as zero.
    pub may_end_early: bool,
}

/// Reads the memory of a process that holds still.
#[derive(Debug)]
pub struct PageSource {
    pid: i32,
    memory: ProcessMemory,
    /// Its pages may be pinned, and the kernel lets us do it.
    may_pin: bool,
}

impl PageSource {
    /// The memory of `pid`, which the caller traces.
    pub fn open(pid: i32) -> Result<PageSource> {
        Ok(PageSource { pid, memory: ProcessMemory::open(pid)?, may_pin: is_read_by_call() })
    }

    /// The same of a clone, which shares its pages with the program.
    pub fn open_clone(pid: i32) -> Result<PageSource> {
        Ok(PageSource { may_pin: false, ..PageSource::open(pid)? })
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

    /// Reads the pages of `runs`, a batch, one after another into `into`, which is as long as they are together.
    pub fn read_batch(&self, place: &Place, runs: &[Range<u64>], into: &mut [u8]) -> Result<()> {
        if place.readable && self.may_pin {
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
        self.read_run_by_run(place, runs, into)
    }

    /// Reads ranges of addresses one after another into `into`, which is as long as they are together. The process itself
    /// must be able to read them.
    pub fn read_ranges(&self, ranges: &[Range<u64>], into: &mut [u8]) -> io::Result<()> {
        let length = |range: &Range<u64>| (range.end - range.start) as usize;
        let mut rest = into;
        if !self.may_pin {
            for range in ranges {
                let (now, later) = rest.split_at_mut(length(range));
                self.memory.read(range.start, now).map_err(io::Error::other)?;
                rest = later;
            }
            return Ok(());
        }
        for ranges in ranges.chunks(BATCH_RUNS) {
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

    /// Through protections and around the ends of files.
    fn read_run_by_run(&self, place: &Place, runs: &[Range<u64>], into: &mut [u8]) -> Result<()> {
        let mut rest = into;
        for run in runs {
            let (now, later) = rest.split_at_mut(((run.end - run.start) * PAGE) as usize);
            match self.memory.read(place.address + run.start * PAGE, now) {
                Ok(()) => {}
                Err(_) if place.may_end_early => self.read_page_by_page(place, run, now),
                Err(error) => return Err(error),
            }
            rest = later;
        }
        Ok(())
    }

    /// What cannot be read is zero.
    fn read_page_by_page(&self, place: &Place, run: &Range<u64>, into: &mut [u8]) {
        for (page, buffer) in run.clone().zip(into.chunks_exact_mut(PAGE_BYTES)) {
            if self.memory.read(place.address + page * PAGE, buffer).is_err() {
                buffer.fill(0);
            }
        }
    }
}

/// Writes pages that were read before (in the order of `set`) into the store and into `list`.
pub fn store_held(held: &[u8], set: &PageSet, attempt: &mut Attempt, list: &mut PageList) -> Result<()> {
    let runs: Vec<_> = set.ranges().collect();
    store(held, &runs, attempt, list)
}

fn store(pages: &[u8], runs: &[Range<u64>], attempt: &mut Attempt, list: &mut PageList) -> Result<()> {
    let keys = attempt.write_pages(pages)?;
    note(&mut keys.as_slice(), runs, list);
    Ok(())
}

/// Takes the keys of `runs` from the front of `keys` into `list`.
pub fn note(keys: &mut &[PageKey], runs: &[Range<u64>], list: &mut PageList) {
    for run in runs {
        let (these, others) = keys.split_at((run.end - run.start) as usize);
        list.set_run(run.start, these);
        *keys = others;
    }
}

/// Bytes of the pages in a batch.
pub fn bytes_of(batch: &[Range<u64>]) -> usize {
    (batch.iter().map(|run| run.end - run.start).sum::<u64>() * PAGE) as usize
}

/// Cuts a set into batches of at most `BATCH_PAGES` pages in at most `BATCH_RUNS` runs.
pub fn batches(set: &PageSet) -> Vec<Vec<Range<u64>>> {
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
