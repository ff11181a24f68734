//! Memory that processes share copy on write, because one is a fork of another: they share it again.
//!
//! The kernel shares pages of private memory only between a process and its forks. So the pages that several processes of the
//! job have alike, at the same address, are put into memory of the restarter before it forks them ([`CopyOnWrite::stage`]), at
//! addresses that none of them uses. Each then moves its part to where it belongs, which shares it still ([`InCommon::put`]), and
//! is given what it has otherwise. A parent of 1 GiB with ten children takes 1 GiB again, and not eleven.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::mapping_plan::{Source, first_protection};
use super::page_writer;
use super::process::{Call, HalfBuilt};
use super::ranges::{Span, room};
use crate::error::{Error, Result};
use crate::image::{JobImage, Region, SpecialMapping};
use crate::proc::maps;

const PAGE: u64 = PAGE_BYTES as u64;
/// Less in common is not worth its calls.
const PAGES_MIN: usize = 16;
/// Pages looked at together.
const WINDOW_PAGES: u64 = 512;
/// Of a huge page: memory keeps its place in one when it is moved.
const HUGE: u64 = 2 << 20;
const WRITABLE: i32 = libc::PROT_READ | libc::PROT_WRITE;

const MADVISE: Call = Call("madvise", libc::SYS_madvise);
const MPROTECT: Call = Call("mprotect", libc::SYS_mprotect);
const MREMAP: Call = Call("mremap", libc::SYS_mremap);
const MUNMAP: Call = Call("munmap", libc::SYS_munmap);

/// What the processes of a job have in common.
#[derive(Debug, Default)]
pub struct CopyOnWrite {
    /// Where it is staged, in the restarter and in those forked from it.
    span: Option<Span>,
    blocks: Vec<Block>,
    /// By process and region.
    parts: HashMap<(usize, usize), Part>,
    is_mapped_here: bool,
}

/// A mapping that several processes have, of which others may have a part.
#[derive(Debug)]
struct Block {
    /// Where it is in the processes.
    place: Span,
    no_reserve: bool,
    /// Process and region, in the order of the job: parents come before their children.
    members: Vec<(usize, usize)>,
    /// Where it is staged.
    staged_at: u64,
    /// The pages in common.
    pages: PageList,
}

/// The part of a block that a region has.
#[derive(Debug)]
struct Part {
    block: usize,
    first: u64,
    /// Pages of the region that are zero, although others have them in common.
    absent: Vec<Range<u64>>,
}

impl CopyOnWrite {
    /// Finds what processes of `job` have in common, and puts it into memory of this process, which they are to be forked from. `avoided`
    /// is where they will have other mappings. `staged` is told the bytes of each batch.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn stage<'a>(
        job: &JobImage,
        sources: &[Vec<Source>],
        avoided: impl Iterator<Item = &'a SpecialMapping>,
        store: &Store,
        staged: &mut dyn FnMut(u64),
    ) -> Result<CopyOnWrite> {
        let mut common = CopyOnWrite::default();
        if job.processes.len() < 2 {
            return Ok(common);
        }
        for mut block in blocks(job, sources) {
            let lists = block
                .members
                .iter()
                .map(|&(process, region)| Ok(store.page_list(&job.processes[process].regions[region].pages)?));
            let lists: Vec<PageList> = lists.collect::<Result<_>>()?;
            let extents = block.members.iter().map(|&(process, region)| {
                let Region { address, bytes, .. } = job.processes[process].regions[region];
                let first = (address - block.place.start) / PAGE;
                first..first + bytes / PAGE
            });
            let extents: Vec<Range<u64>> = extents.collect();
            let absent;
            (block.pages, absent) = in_common(&lists, &extents);
            if block.pages.iter().take(PAGES_MIN).count() < PAGES_MIN {
                continue;
            }
            for ((&member, extent), absent) in block.members.iter().zip(extents).zip(absent) {
                common.parts.insert(member, Part { block: common.blocks.len(), first: extent.start, absent });
            }
            common.blocks.push(block);
        }
        if common.blocks.is_empty() {
            return Ok(common);
        }
        if let Err(error) = common.map(job, avoided) {
            log::debug!("memory that processes have in common is not shared: {error}");
            return Ok(CopyOnWrite::default());
        }
        let pid = std::process::id() as i32;
        for block in &common.blocks {
            page_writer::write(pid, block.staged_at, &block.pages, store, staged)?;
        }
        Ok(common)
    }

    /// Maps all blocks where there is room for them.
    fn map<'a>(&mut self, job: &JobImage, avoided: impl Iterator<Item = &'a SpecialMapping>) -> Result<()> {
        let here = maps::outline(std::process::id() as i32)?;
        let mut taken: Vec<Span> = here.iter().map(|mapping| Span { start: mapping.start, end: mapping.end }).collect();
        taken.extend(avoided.map(|mapping| Span::of(mapping.address, mapping.bytes)));
        let regions = job.processes.iter().flat_map(|process| &process.regions);
        taken.extend(regions.map(|region| Span::of(region.address, region.bytes)));
        let mut bytes = 0;
        for block in &mut self.blocks {
            // For now as if the room began at 0.
            block.staged_at = bytes + block.place.start % HUGE;
            bytes = (block.staged_at + block.place.end - block.place.start).next_multiple_of(HUGE);
        }
        let missing = || Error::environment("stage it", "there are no addresses left", "nothing is to be done");
        let start = room(taken, bytes + HUGE).ok_or_else(missing)?.next_multiple_of(HUGE);
        let failed = |source| Error::io("map", "memory to be shared", source);
        let number = |value: u64| NonZeroUsize::new(value as usize).ok_or_else(|| failed(Errno::EINVAL));
        let (at, length) = (number(start)?, number(bytes)?);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing is mapped there, or the kernel refuses. All of it is ours from here on, the gaps as well.
        unsafe { mmap_anonymous(Some(at), length, ProtFlags::PROT_NONE, flags) }.map_err(failed)?;
        (self.span, self.is_mapped_here) = (Some(Span::of(start, bytes)), true);
        for block in &mut self.blocks {
            block.staged_at += start;
            let (at, length) = (number(block.staged_at)?, number(block.place.end - block.place.start)?);
            let mut flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED;
            flags.set(MapFlags::MAP_NORESERVE, block.no_reserve);
            // SAFETY: it replaces a part of what has just been mapped, into which no reference leads.
            unsafe { mmap_anonymous(Some(at), length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Unmaps it here: from now on it belongs to the processes that have been forked.
    pub fn leave_to_forks(&mut self) {
        let Some(span) = self.span.filter(|_| std::mem::take(&mut self.is_mapped_here)) else { return };
        let Some(start) = NonNull::new(span.start as *mut _) else { return };
        // SAFETY: all of it was mapped by `map`, and no reference leads into it.
        if let Err(errno) = unsafe { munmap(start, (span.end - span.start) as usize) } {
            log::debug!("unmapping shared memory: {errno}");
        }
    }

    /// What process `index` of the job has of it.
    pub fn of(&self, index: usize) -> InCommon<'_> {
        InCommon { all: self, index }
    }
}

impl Drop for CopyOnWrite {
    fn drop(&mut self) {
        self.leave_to_forks();
    }
}

/// What one process has in common with others.
#[derive(Clone, Copy, Debug)]
pub struct InCommon<'a> {
    all: &'a CopyOnWrite,
    index: usize,
}

impl InCommon<'_> {
    /// Where it is staged, if there is any.
    pub fn span(&self) -> Option<Span> {
        self.all.span
    }

    /// Puts region `number` of `process` where it belongs, if others have it too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn put(&self, process: &mut HalfBuilt, number: usize, region: &Region) -> Result<bool> {
        let Some(part) = self.all.parts.get(&(self.index, number)) else { return Ok(false) };
        let from = self.all.blocks[part.block].staged_at + part.first * PAGE;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let purpose = format_args!("memory shared with other processes, at {:#x}", region.address);
        process.call(0, MREMAP, &[from, region.bytes, region.bytes, flags, region.address], purpose)?;
        let protection = first_protection(region);
        if protection != WRITABLE {
            process.call(0, MPROTECT, &[region.address, region.bytes, protection as u64], purpose)?;
        }
        for pages in &part.absent {
            let (start, bytes) = (region.address + pages.start * PAGE, (pages.end - pages.start) * PAGE);
            process.call(0, MADVISE, &[start, bytes, libc::MADV_DONTNEED as u64], purpose)?;
        }
        Ok(true)
    }

    /// Unmaps what this process has not taken.
    ///
    /// # Errors
    /// The kernel's.
    pub fn drop_rest(&self, process: &mut HalfBuilt) -> Result<()> {
        let Some(span) = self.span() else { return Ok(()) };
        let purpose = format_args!("memory that other processes share");
        process.call(0, MUNMAP, &[span.start, span.end - span.start], purpose).map(drop)
    }

    /// Page `page` of region `number` as it is there already; zero if it is not.
    pub fn page(&self, number: usize, page: u64) -> PageKey {
        let part = self.all.parts.get(&(self.index, number));
        part.map_or(PageKey::ZERO, |part| self.all.blocks[part.block].pages.get(part.first + page))
    }
}

/// The mappings that more than one process has, with those that have them or a part.
fn blocks(job: &JobImage, sources: &[Vec<Source>]) -> Vec<Block> {
    let mut all: Vec<(&Region, (usize, usize))> = Vec::new();
    for (process, (image, sources)) in job.processes.iter().zip(sources).enumerate() {
        let regions = image.regions.iter().zip(sources).enumerate();
        let fitting = regions.filter(|(_, (region, source))| **source == Source::Memory && may_be_shared(region));
        all.extend(fitting.map(|(number, (region, _))| (region, (process, number))));
    }
    // The longest of those that begin at an address is first.
    all.sort_by_key(|(region, member)| (region.address, std::cmp::Reverse(region.bytes), *member));
    let mut blocks: Vec<Block> = Vec::new();
    for (region, member) in all {
        let (place, no_reserve) = (Span::of(region.address, region.bytes), region.advice.no_reserve);
        match blocks.last_mut() {
            Some(block) if block.no_reserve == no_reserve && block.place.end >= place.end => block.members.push(member),
            _ => blocks.push(Block { place, no_reserve, members: vec![member], staged_at: 0, pages: PageList::new() }),
        }
    }
    blocks.retain(|block| block.members.len() > 1);
    blocks.iter_mut().for_each(|block| block.members.sort_unstable());
    blocks
}

fn may_be_shared(region: &Region) -> bool {
    let advice = &region.advice;
    // One that was never writable counts as another kind of memory than the one that is staged.
    let is_like_it = (advice.accounted || advice.no_reserve) && !advice.grows_down && !advice.droppable;
    let is_usual = !region.in_differences && advice.huge_page_bytes == 0;
    is_like_it && is_usual && region.pages.page_count() >= PAGES_MIN as u64
}

/// The pages that at least two of `lists` have alike, and for each list the pages that it lacks of them, counted from its own start;
/// `extents` says which pages each is about.
fn in_common(lists: &[PageList], extents: &[Range<u64>]) -> (PageList, Vec<Vec<Range<u64>>>) {
    let windows = lists
        .iter()
        .zip(extents)
        .flat_map(|(list, extent)| list.iter().map(move |(page, _)| (page + extent.start) / WINDOW_PAGES));
    let windows: BTreeSet<u64> = windows.collect();
    let (mut pages, mut absent) = (PageList::new(), vec![Vec::<Range<u64>>::new(); lists.len()]);
    for window in windows {
        let start = window * WINDOW_PAGES;
        let keys = lists.iter().zip(extents).map(|(list, &Range { start: first, .. })| {
            let before = first.saturating_sub(start).min(WINDOW_PAGES);
            let mut keys = vec![PageKey::ZERO; before as usize];
            keys.extend(
                list.keys_of((start + before).saturating_sub(first)..(start + WINDOW_PAGES).saturating_sub(first)),
            );
            keys
        });
        let keys: Vec<Vec<PageKey>> = keys.collect();
        for page in 0..WINDOW_PAGES as usize {
            let of_each = || keys.iter().map(|keys| keys[page]);
            let is_alike = |&(index, key): &(usize, PageKey)| {
                !key.is_zero() && of_each().skip(index + 1).any(|other| other == key)
            };
            let Some((_, key)) = of_each().enumerate().find(is_alike) else { continue };
            let number = start + page as u64;
            pages.set(number, key);
            let lacks = |key: PageKey, extent: &Range<u64>| key.is_zero() && extent.contains(&number);
            let lacking = of_each().zip(extents).zip(&mut absent).filter(|((key, extent), _)| lacks(*key, extent));
            for ((_, extent), absent) in lacking {
                let page = number - extent.start;
                match absent.last_mut() {
                    Some(last) if last.end == page => last.end += 1,
                    _ => absent.push(page..page + 1),
                }
            }
        }
    }
    (pages, absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    fn list(pages: &[(u64, u8)]) -> PageList {
        let mut list = PageList::new();
        for &(page, content) in pages {
            list.set(page, PageKey::from_bytes([content; 28]));
        }
        list
    }

    #[test]
    fn pages_that_two_have_alike_are_in_common() {
        let parent = list(&[(0, 7), (1, 8), (2, 9), (600, 5)]);
        let child = list(&[(0, 7), (1, 80), (2, 9), (600, 5), (601, 6)]);
        let (pages, absent) = in_common(&[parent, child], &[0..700, 0..700]);
        assert_eq!(pages, list(&[(0, 7), (2, 9), (600, 5)]));
        assert_eq!(absent, [vec![], vec![]]);
    }

    #[expect(clippy::single_range_in_vec_init, reason = "a set of one run")]
    #[test]
    fn a_part_is_compared_where_it_lies_and_lacks_what_is_zero() {
        let whole = list(&[(3, 1), (4, 2), (5, 3), (513, 4)]);
        let part = list(&[(1, 2), (510, 4)]);
        // It ends where the last page of the others begins.
        let other = list(&[(3, 1), (5, 3)]);
        let (pages, absent) = in_common(&[whole, part, other], &[0..600, 3..520, 0..513]);
        assert_eq!(pages, list(&[(3, 1), (4, 2), (5, 3), (513, 4)]));
        assert_eq!(absent, [vec![], vec![0..1, 2..3], vec![4..5]]);
    }
}
