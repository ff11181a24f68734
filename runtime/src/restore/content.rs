//! Fills the regions with the pages of the checkpoint.
//!
//! The store verifies every page that it hands out, so when this is done every byte that the program will see has
//! been verified. Fresh memory is zero already, so pages of zeros are written only over files.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use super::copy_on_write::InCommon;
use super::file_mappings::{MappingPlan, Source};
use super::fresh_memory::FreshMemory;
use super::lazy::Rest;
use super::process::HalfBuilt;
use super::window::Window;
use crate::differences::{Differences, WINDOW_BYTES};
use crate::error::{Error, Result};
use crate::image::{PageRange, Region};
use crate::ptrace::{ProcessMemory, write_memory};

/// Pages asked of the store at a time: 64 MiB, which all its cores read, verify and write in pieces.
const BATCH_PAGES: usize = 1 << 14;
/// Bytes written at a time: 1 MiB, beyond which process_vm_writev gains nothing.
const WRITE_BYTES: usize = 1 << 20;
const PAGE: u64 = PAGE_BYTES as u64;

/// Has `writer` write the pages of a region into `process` but for those that are there in common with others, or those that have to be
/// there first.
pub fn fill<'a>(
    writer: &mut Writer<'a>,
    (process, fresh): (&'a HalfBuilt, Option<&'a FreshMemory>),
    (number, region, common): (usize, &Region, InCommon<'_>),
    (source, rest): (Source, Option<&Rest>),
    plan: &'a MappingPlan,
    differences: &Differences,
) -> Result<()> {
    if region.in_differences {
        return fill_finer((process, fresh), region, writer, differences);
    }
    let bytes = bytes_to_fill(region, source);
    if region.advice.droppable {
        writer.pass_by(bytes); // the kernel may drop it at any time; the program has to expect zeros
        return Ok(());
    }
    let begun = writer.begin(match (source, fresh) {
        (Source::Object { file, offset }, _) => match plan.of_huge_pages.get(&file) {
            Some(mapped) => Target::Window(mapped, offset),
            None => Target::Object(&plan.files[file], offset),
        },
        (Source::Sysv { segment, offset }, _) => Target::Window(&plan.segments[segment], offset),
        (_, Some(fresh)) => Target::Fresh(fresh, region.address),
        _ if region.protection & libc::PROT_WRITE != 0 => Target::Writable(process.pid(), region.address),
        _ => Target::Protected(process.memory(), region.address),
    });
    match source {
        _ if let Some(rest) = rest => rest.iter().try_for_each(|&(page, key)| writer.add(page, key))?,
        Source::SharedFile { .. } => {} // the file has them, or gets them at the end
        Source::PrivateFile { .. } => {
            let list = writer.store.page_list(&region.pages)?;
            for &PageRange { first, count } in &region.own_pages {
                for page in first..first + count {
                    writer.add(page, list.get(page))?;
                }
            }
        }
        Source::Memory | Source::SharedMemory | Source::Object { .. } | Source::Ring { .. } | Source::Sysv { .. } => {
            let list = writer.store.page_list(&region.pages)?;
            for (page, key) in list.iter().take_while(|(page, _)| *page < region.bytes / PAGE) {
                if !key.is_zero() && key != common.page(number, page) {
                    writer.add(page, key)?;
                }
            }
        }
    }
    writer.pass_by(bytes.saturating_sub(writer.added_since(begun)));
    Ok(())
}

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

/// Writes a region whose content is in differences. Pages of zeros are passed by: fresh memory has them without taking any.
fn fill_finer(
    (process, fresh): (&HalfBuilt, Option<&FreshMemory>),
    region: &Region,
    writer: &mut Writer<'_>,
    differences: &Differences,
) -> Result<()> {
    let mut window = vec![0; WINDOW_BYTES];
    for block in region.blocks() {
        for address in block.clone().step_by(WINDOW_BYTES) {
            let bytes = &mut window[..(block.end - address).min(WINDOW_BYTES as u64) as usize];
            differences.read(writer.store, block.start, address - block.start, bytes, None)?;
            let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
            let is_zero = |page: &[u8; PAGE_BYTES]| page.iter().all(|byte| *byte == 0);
            let mut at = address;
            for run in pages.chunk_by(|page, next| is_zero(page) == is_zero(next)) {
                if !is_zero(&run[0]) {
                    match fresh {
                        Some(fresh) => fresh.put(at, run.as_flattened())?,
                        None => write_run(process.pid(), at, run.as_flattened())?,
                    }
                }
                at += run.as_flattened().len() as u64;
            }
            (writer.filled)(bytes.len() as u64);
        }
    }
    Ok(())
}

fn write_run(pid: i32, address: u64, bytes: &[u8]) -> Result<()> {
    let pieces = (address..).step_by(WRITE_BYTES).zip(bytes.chunks(WRITE_BYTES));
    pieces.into_iter().try_for_each(|(address, piece)| write_memory(pid, address, piece))
}

/// The bytes that [`fill`] will report for `region`, at most.
pub fn bytes_to_fill(region: &Region, source: Source) -> u64 {
    match source {
        Source::SharedFile { .. } => 0,
        Source::PrivateFile { .. } => region.own_pages.iter().map(|own| own.count * PAGE).sum(),
        Source::Memory | Source::SharedMemory => region.bytes,
        Source::Object { .. } | Source::Ring { .. } | Source::Sysv { .. } => region.bytes,
    }
}

/// How content gets to a region.
enum Target<'a> {
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
    store: &'a Store,
    filled: &'a mut dyn FnMut(u64),
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
    fn begin(&mut self, target: Target<'a>) -> u64 {
        self.targets.push(target);
        self.added_bytes
    }

    fn added_since(&self, begun: u64) -> u64 {
        self.added_bytes - begun
    }

    /// Counts what is as it has to be.
    fn pass_by(&mut self, bytes: u64) {
        (self.filled)(bytes);
    }

    fn add(&mut self, page: u64, key: PageKey) -> Result<()> {
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
