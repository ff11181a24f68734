//! Which pages a program has, and which it has written since we last looked.
//!
//! `PAGEMAP_SCAN` (Linux 6.7) reports runs of pages by category and can write-protect what it reports in the same
//! pass. With a userfaultfd in asynchronous write-protect mode the kernel lifts the protection by itself at the first
//! write, so "not protected any more" means "written". Facts that shape this module:
//!
//! - protection is only reported for mappings registered with the userfaultfd, and silently absent elsewhere, so
//!   every mapping is asked whether it allows tracking (`PAGE_IS_WPALLOWED`) at every checkpoint;
//! - only present and swapped pages are protected, never holes: a page that appears later is not protected and
//!   so counts as written, and a reservation of terabytes costs nothing;
//! - a mapping can lose its registration while its pages keep their marks: memory that is moved beside it (`mremap`) becomes one
//!   with it, and the kernel lets go of both. A marked page is then written without its mark being lifted, and whoever
//!   registers the mapping again would never learn of it ([`Tracker::watch`]);
//! - the kernel needs 10 to 20 ns a page to tell which ones are written, and four times as much as soon as it is asked for
//!   anything else ([`Scanner::take_changes`]);
//! - when our copy of the userfaultfd is closed, all protection is gone and everything counts as written.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use ckpt_store::PAGE_BYTES;
use ckpt_wire::{Control, SCRATCH_BYTES};
use nix::errno::Errno;
use zerocopy::IntoBytes;

use super::guest::Guest;
use super::sent::made_in_clone;
use super::watched::There;
use crate::descriptor::{can_fetch, pidfd_getfd};
use crate::error::{Error, Result};
use crate::fault;
use crate::page_set::PageSet;
use crate::proc::fdinfo;
use crate::proc::maps::Mapping;
use crate::ptrace::{read_memory, write_memory};
use crate::userfaultfd;

const PAGE: u64 = PAGE_BYTES as u64;

const IS_WPALLOWED: u64 = 1 << 0;
const IS_WRITTEN: u64 = 1 << 1;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_PFNZERO: u64 = 1 << 5;
/// Since Linux 6.15. Together with `IS_SWAPPED`, which it is not.
const IS_GUARD: u64 = 1 << 8;
/// Pages that are not holes.
const THERE: u64 = IS_PRESENT | IS_SWAPPED;
const SCAN_WP_MATCHING: u64 = 1 << 0;

#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// What a scan looks for: pages with all of `mask` and any of `any_of`; runs are told apart by `report`.
struct Query {
    flags: u64,
    mask: u64,
    any_of: u64,
    report: u64,
}

/// Runs of pages to be looked at, ascending. Near ones are joined: to look at some pages more is shorter than to ask once more.
#[derive(Default)]
struct Places(Vec<Range<u64>>);

impl Places {
    fn add(&mut self, pages: Range<u64>) {
        const NEAR_PAGES: u64 = 32;
        match self.0.last_mut() {
            Some(last) if pages.start - last.end <= NEAR_PAGES => last.end = pages.end,
            _ => self.0.push(pages),
        }
    }

    fn into_set(self) -> PageSet {
        let mut set = PageSet::default();
        self.0.into_iter().for_each(|run| set.push(run));
        set
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Most regions that one scan is asked for: as many as the kernel gathers at once (`PAGEMAP_WALK_SIZE` in task_mmu.c).
///
/// Asked for more it gathers again and again, and if it comes to the end then, it says that it has ended where it was full the
/// last time. Who goes on from there gets pages a second time: those that have been written in between are protected once more,
/// and come behind later ones, where a [`PageSet`] does not take them. They would be missing.
const REGIONS_MAX: usize = 512;

nix::ioctl_readwrite!(pagemap_scan, b'f', 16, ScanArg);

/// A userfaultfd of the program, held by us alone.
#[derive(Debug)]
pub struct Tracker {
    userfaultfd: OwnedFd,
}

/// How the program makes its userfaultfd.
const ARGUMENTS: [u64; 6] = [(libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | userfaultfd::USER_MODE_ONLY, 0, 0, 0, 0, 0];

/// None, and why.
fn without<T>(errno: Errno) -> Option<T> {
    log::info!("userfaultfd: {}; every checkpoint reads all memory", errno.desc());
    None
}

/// The first word of a note.
const NOTE: u64 = u64::from_le_bytes(*b"CKPTUFFD");

impl Tracker {
    /// Makes the program create a userfaultfd, fetches it, and closes the program's copy. `None` where the
    /// kernel or the user's rights do not allow it: every checkpoint then reads everything.
    ///
    /// The program's table of descriptors is as before, unless we die meanwhile; then it is mended by the next agent's call.
    pub fn create(guest: &mut Guest<'_>, control: &Control, pidfd: BorrowedFd<'_>) -> Result<Option<Tracker>> {
        let note = Note { pid: guest.pid(), address: Note::address(control) };
        if let Some(number) = note.left_by_the_dead()? {
            close(guest, number)?;
        }
        let fetched = match can_fetch() {
            Ok(()) => note.around(guest, |guest| Tracker::fetch(guest, pidfd))?,
            Err(_) => Tracker::receive(guest)?,
        };
        let Some(fetched) = fetched else { return Ok(None) };
        let tracker = Tracker { userfaultfd: fetched? };
        Ok(tracker.enable().then_some(tracker))
    }

    /// A userfaultfd that the program has made and no longer holds. An error of the call that fetches it is given as a value:
    /// the program is as before.
    fn fetch(guest: &mut Guest<'_>, pidfd: BorrowedFd<'_>) -> Result<Option<Result<OwnedFd>>> {
        let number = match guest.try_call(libc::SYS_userfaultfd, ARGUMENTS)? {
            Ok(number) => number as i32,
            Err(errno) => return Ok(without(errno)),
        };
        fault::hit(fault::point::USERFAULTFD_MADE);
        let fetched = pidfd_getfd(pidfd, number);
        close(guest, number)?;
        Ok(Some(fetched))
    }

    /// The same where it cannot be fetched: a clone of the program makes it, and sends it.
    fn receive(guest: &mut Guest<'_>) -> Result<Option<Result<OwnedFd>>> {
        match guest.must_not_call(libc::SYS_userfaultfd, ARGUMENTS[0]) {
            true => Ok(without(Errno::EPERM)),
            false => match made_in_clone(guest, libc::SYS_userfaultfd, ARGUMENTS)? {
                Ok(made) => Ok(Some(Ok(made))),
                Err(errno) => Ok(without(errno)),
            },
        }
    }

    fn enable(&self) -> bool {
        match userfaultfd::set_up(&self.userfaultfd, userfaultfd::FEATURES_OF_TRACKING) {
            Ok(()) => true,
            Err(errno) => {
                log::info!("asynchronous write-protection: {errno}; every checkpoint reads all memory");
                false
            }
        }
    }

    /// Starts tracking `mapping`, which is not tracked: what is written to its pages from now on is seen. Nothing is done where the
    /// kernel does not track such a mapping.
    ///
    /// # Errors
    /// When the process cannot be looked at, or the kernel does not lift marks that are there already: see [`Stuck`].
    pub fn watch(&self, scanner: &Scanner, mapping: &Mapping) -> Result<std::result::Result<(), Stuck>> {
        if !self.register(mapping) || !scanner.protect(mapping)? {
            return Ok(Ok(()));
        }
        log::debug!("marks of an earlier time at {:#x} are lifted", mapping.start);
        let is_lifted = userfaultfd::unregister(&self.userfaultfd, mapping.start, mapping.bytes()).is_ok();
        if is_lifted && (!self.register(mapping) || !scanner.protect(mapping)?) { Ok(Ok(())) } else { Ok(Err(Stuck)) }
    }

    fn register(&self, mapping: &Mapping) -> bool {
        let mode = userfaultfd::MODE_WRITE_PROTECT;
        let result = userfaultfd::register(&self.userfaultfd, mapping.start, mapping.bytes(), mode);
        fault::hit(fault::point::USERFAULTFD_REGISTER);
        result.is_ok()
    }
}

/// Pages are marked as protected, and may not be: nothing that is said of written pages is to be believed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

/// Closes a userfaultfd in the program.
fn close(guest: &mut Guest<'_>, number: i32) -> Result<()> {
    guest.call("close", "closing our userfaultfd", libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]).map(drop)
}

/// The number that our userfaultfd has in the program, written down inside the program while it has one: an agent that dies
/// then leaves it behind, and no checkpoint could be taken of a program that holds one.
struct Note {
    pid: i32,
    address: u64,
}

impl Note {
    /// Behind what other calls use of the scratch area.
    fn address(control: &Control) -> u64 {
        control.scratch + (SCRATCH_BYTES - size_of::<[u64; 2]>()) as u64
    }

    /// Does `work`, which makes the program's next descriptor and closes it again.
    fn around<T>(&self, guest: &mut Guest<'_>, work: impl FnOnce(&mut Guest<'_>) -> Result<T>) -> Result<T> {
        // All threads stand still, so it gets the lowest number that is free.
        let numbers = fdinfo::numbers(self.pid)?;
        let free = (0..).find(|number| !numbers.contains(number)).unwrap_or(i32::MAX);
        write_memory(self.pid, self.address, [NOTE, free as u64].as_bytes())?;
        let done = work(guest)?;
        write_memory(self.pid, self.address, [0_u64; 2].as_bytes())?;
        Ok(done)
    }

    /// The userfaultfd that an agent has left behind, having died between making it and closing it.
    ///
    /// One that the program has made itself in the meantime is none of ours, and it uses its own: nobody has ever told ours
    /// what it is for, which the kernel shows as no features.
    fn left_by_the_dead(&self) -> Result<Option<i32>> {
        let mut note = [0_u64; 2];
        read_memory(self.pid, self.address, note.as_mut_bytes())?;
        let [NOTE, number] = note else { return Ok(None) };
        let Ok(descriptor) = fdinfo::descriptor(self.pid, i32::try_from(number).unwrap_or(-1)) else { return Ok(None) };
        let is_idle = descriptor.field("API").is_some_and(|api| api.split(':').nth(1) == Some("0"));
        Ok((descriptor.target == b"anon_inode:[userfaultfd]" && is_idle).then_some(descriptor.number))
    }
}

/// What a mapping holds. Page numbers count from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Pages with memory of their own or of a file mapped in, without the shared zero page.
    pub present: PageSet,
    /// Those of `present` that belong to the process alone (anonymous or copied from a file).
    pub own: PageSet,
    /// Places without a page, where who touches one gets SIGSEGV (`MADV_GUARD_INSTALL`).
    pub guards: PageSet,
    /// Pages written since the last [`Scanner::protect`]; `None` where that is not known.
    pub written: Option<PageSet>,
}

impl Census {
    /// Adds pages of these categories, which are behind all others.
    fn add(&mut self, pages: Range<u64>, categories: u64) {
        if categories & IS_GUARD != 0 {
            self.guards.push(pages);
        } else if categories & IS_PFNZERO == 0 {
            self.present.push(pages.clone());
            if categories & IS_FILE == 0 {
                self.own.push(pages);
            }
        }
    }
}

/// Pages of a mapping, and their categories.
type Run = (Range<u64>, u64);

/// Reads the page tables of a stopped process.
#[derive(Debug)]
pub struct Scanner {
    pid: i32,
    path: PathBuf,
    pagemap: File,
    by_ioctl: bool,
    /// `IS_GUARD`, if the kernel tells.
    guard: u64,
}

impl Scanner {
    /// For process `pid`.
    pub fn open(pid: i32) -> Result<Scanner> {
        let path = PathBuf::from(format!("/proc/{pid}/pagemap"));
        let pagemap = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        let mut scanner = Scanner { pid, path, pagemap, by_ioctl: true, guard: 0 };
        let can_report = |report: u64| {
            let query = Query { flags: 0, mask: 0, any_of: IS_PRESENT, report };
            scanner.scan(0..PAGE, &query, &mut |_, _| {}).is_ok()
        };
        (scanner.by_ioctl, scanner.guard) = (can_report(IS_PRESENT), if can_report(IS_GUARD) { IS_GUARD } else { 0 });
        Ok(scanner)
    }

    /// What `mapping` holds; `written` stays unknown.
    pub fn census(&self, mapping: &Mapping) -> Result<Census> {
        let mut census = Census::default();
        if self.by_ioctl {
            let query = Query { flags: 0, ..self.changes() };
            self.scan(mapping.start..mapping.end, &query, &mut |pages, found| census.add(pages, found))?;
        } else {
            self.read_entries(mapping, &mut |pages, found| census.add(pages, found))?;
        }
        Ok(census)
    }

    /// The same with the pages written since the last [`Scanner::protect`], and all of them are protected again; `None` if
    /// the mapping is not registered. In one pass: to walk the page tables is most of what a stop takes.
    pub fn take_census(&self, mapping: &Mapping) -> Result<Option<Census>> {
        if !self.by_ioctl || !self.allows_tracking(mapping)? {
            return Ok(None);
        }
        let mut found = Vec::new();
        self.scan(mapping.start..mapping.end, &self.changes(), &mut |pages, categories| {
            found.push((pages, categories))
        })?;
        fault::hit(fault::point::PAGEMAP_PROTECT);
        if mapping.inode != 0 {
            found = self.settled(mapping, found)?;
        }
        let (mut census, mut written) = (Census::default(), PageSet::default());
        for (pages, categories) in found {
            if categories & IS_WRITTEN != 0 {
                written.push(pages.clone());
            }
            census.add(pages, categories);
        }
        census.written = Some(written);
        Ok(Some(census))
    }

    /// The runs of a mapping of a file, with each page that has been dropped (`MADV_DONTNEED`) as what it is: the file's. What
    /// the kernel leaves in its place, so that it stays protected, looks like a page that is swapped out; a read has it show.
    fn settled(&self, mapping: &Mapping, found: Vec<Run>) -> Result<Vec<Run>> {
        let mut settled = Vec::with_capacity(found.len());
        for (pages, categories) in found {
            if categories & (IS_PRESENT | IS_SWAPPED | IS_GUARD) != IS_SWAPPED {
                settled.push((pages, categories));
                continue;
            }
            let addresses = mapping.start + pages.start * PAGE..mapping.start + pages.end * PAGE;
            for page in addresses.clone().step_by(PAGE_BYTES) {
                // One that cannot be read stays as it seems.
                let _ = read_memory(self.pid, page, &mut [0]);
            }
            let again = Query { flags: 0, ..self.changes() };
            self.scan(addresses, &again, &mut |part, now| {
                settled.push((pages.start + part.start..pages.start + part.end, now | categories & IS_WRITTEN));
            })?;
        }
        Ok(settled)
    }

    /// [`Scanner::take_census`] of a mapping of anonymous memory of which `then` were there when it was protected last. Pages that are
    /// still protected are as they were, and only where others are, or holes, is there a closer look.
    ///
    /// Not for memory of files: there a page that is gone, and with it what was written to it, stays protected.
    pub fn take_changes(&self, mapping: &Mapping, then: &There) -> Result<Option<Census>> {
        if !self.by_ioctl || !self.allows_tracking(mapping)? {
            return Ok(None);
        }
        let mut places = Places::default();
        // Nothing is protected by this one: it would leave a mark in holes, which looks like a page that is swapped out.
        let query = Query { flags: 0, mask: IS_WRITTEN, any_of: 0, report: IS_WRITTEN };
        self.scan(mapping.start..mapping.end, &query, &mut |pages, _| places.add(pages))?;
        let (mut found, mut written) = (Census::default(), PageSet::default());
        for place in &places.0 {
            let addresses = mapping.start + place.start * PAGE..mapping.start + place.end * PAGE;
            self.scan(addresses, &self.changes(), &mut |pages, categories| {
                let pages = place.start + pages.start..place.start + pages.end;
                if categories & IS_WRITTEN != 0 {
                    written.push(pages.clone());
                }
                found.add(pages, categories);
            })?;
        }
        fault::hit(fault::point::PAGEMAP_PROTECT);
        let places = places.into_set();
        let of_all = |then: &PageSet, found: &PageSet| then.difference(&places).union(found);
        let own = of_all(&then.present, &found.own);
        Ok(Some(Census {
            present: of_all(&then.present, &found.present),
            own,
            guards: of_all(&then.guards, &found.guards),
            written: Some(written),
        }))
    }

    /// Looks for what is there, and what of it has been written; all of it is protected again.
    fn changes(&self) -> Query {
        let report = THERE | IS_FILE | IS_PFNZERO | IS_WRITTEN | self.guard;
        Query { flags: SCAN_WP_MATCHING, mask: 0, any_of: THERE, report }
    }

    /// Whether there are guards in `mapping`, as far as the kernel tells.
    fn has_guards(&self, mapping: &Mapping) -> Result<bool> {
        let mut regions = [PageRegion::default(); 1];
        let query = Query { flags: 0, mask: self.guard, any_of: 0, report: self.guard };
        Ok(self.guard != 0 && self.scan_once(mapping.start..mapping.end, &query, 1, &mut regions)?.0 > 0)
    }

    /// The guards in `mapping`, as far as the kernel tells.
    pub fn guards(&self, mapping: &Mapping) -> Result<PageSet> {
        let mut guards = PageSet::default();
        if self.has_guards(mapping)? {
            let query = Query { flags: 0, mask: self.guard, any_of: 0, report: self.guard };
            self.scan(mapping.start..mapping.end, &query, &mut |pages, _| guards.push(pages))?;
        }
        Ok(guards)
    }

    /// Protects all pages of `mapping` that are not marked as protected; whether any is.
    fn protect(&self, mapping: &Mapping) -> Result<bool> {
        let query = Query { flags: SCAN_WP_MATCHING, mask: 0, any_of: THERE, report: THERE | IS_WRITTEN };
        let mut is_any_marked = false;
        self.scan(mapping.start..mapping.end, &query, &mut |_, categories| {
            is_any_marked |= categories & IS_WRITTEN == 0;
        })?;
        fault::hit(fault::point::PAGEMAP_PROTECT);
        Ok(is_any_marked)
    }

    /// Whether the kernel tracks writes to `mapping`. A mapping without pages may answer no.
    fn allows_tracking(&self, mapping: &Mapping) -> Result<bool> {
        let mut regions = [PageRegion::default(); 1];
        let query = Query { flags: 0, mask: IS_WPALLOWED, any_of: THERE, report: IS_WPALLOWED };
        let (count, _) = self.scan_once(mapping.start..mapping.end, &query, 1, &mut regions)?;
        Ok(count > 0)
    }

    /// Calls `found` with each run of pages (counted from `range.start`) that matches, and with its categories: each page once,
    /// ascending.
    fn scan(&self, range: Range<u64>, query: &Query, found: &mut dyn FnMut(Range<u64>, u64)) -> Result<()> {
        let pages = ((range.end - range.start) / PAGE) as usize;
        let mut regions = vec![PageRegion::default(); pages.min(REGIONS_MAX)];
        let mut start = range.start;
        while start < range.end {
            let (count, walk_end) = self.scan_once(start..range.end, query, 0, &mut regions)?;
            for region in &regions[..count] {
                let pages = (region.start - range.start) / PAGE..(region.end - range.start) / PAGE;
                found(pages, region.categories);
            }
            start = walk_end;
        }
        Ok(())
    }

    /// One ioctl: the number of regions found, and where the walk ended. `max_pages` 0 = no limit; at most [`REGIONS_MAX`] regions.
    fn scan_once(
        &self,
        range: Range<u64>,
        query: &Query,
        max_pages: u64,
        regions: &mut [PageRegion],
    ) -> Result<(usize, u64)> {
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            flags: query.flags,
            start: range.start,
            end: range.end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages,
            category_inverted: 0,
            category_mask: query.mask,
            category_anyof_mask: query.any_of,
            return_mask: query.report,
        };
        // SAFETY: PAGEMAP_SCAN reads `arg`, writes its walk_end and at most vec_len regions to vec.
        let count = unsafe { pagemap_scan(self.pagemap.as_raw_fd(), &mut arg) };
        let count = count.map_err(|source: Errno| Error::io("scan", &self.path, source))?;
        Ok((count as usize, arg.walk_end))
    }

    /// The same census from the entries of pagemap, for kernels without the scan.
    fn read_entries(&self, mapping: &Mapping, found: &mut dyn FnMut(Range<u64>, u64)) -> Result<()> {
        use std::os::unix::fs::FileExt;
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const FILE: u64 = 1 << 61;
        let pages = mapping.bytes() / PAGE;
        let mut entries = vec![0u8; 512 * 1024];
        let mut page = 0;
        while page < pages {
            let wanted = ((pages - page) as usize * 8).min(entries.len());
            let at = (mapping.start / PAGE + page) * 8;
            self.pagemap
                .read_exact_at(&mut entries[..wanted], at)
                .map_err(|source| Error::io("read", &self.path, source))?;
            for entry in entries[..wanted].chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or([0; 8]));
                if entry & (PRESENT | SWAPPED) != 0 {
                    found(page..page + 1, if entry & FILE != 0 { IS_FILE } else { 0 });
                }
                page += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicU64, Ordering};

    use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::*;
    use crate::descriptor;

    /// Tracked memory of our own, of which every `distance`-th page is there: as many runs as pages.
    struct Spots {
        start: u64,
        count: u64,
        distance: u64,
        tracker: Tracker,
    }

    impl Spots {
        /// None where the kernel does not track.
        fn new(count: u64, distance: u64) -> Option<Spots> {
            let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | userfaultfd::USER_MODE_ONLY;
            // SAFETY: userfaultfd takes an integer.
            let userfaultfd = descriptor::made(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }).ok()?;
            let tracker = Tracker { userfaultfd };
            let bytes = NonZeroUsize::new((count * distance * PAGE) as usize)?;
            let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: a new private mapping at an address that the kernel chooses.
            let memory = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE) }.ok()?;
            // SAFETY: the mapping is ours alone, and holds nothing.
            unsafe { madvise(memory, bytes.get(), MmapAdvise::MADV_NOHUGEPAGE) }.ok()?;
            let spots = Spots { start: memory.as_ptr() as u64, count, distance, tracker };
            (spots.tracker.enable() && spots.tracker.register(&spots.mapping())).then_some(spots)
        }

        /// Moves so many bytes, which become part of what lies beside their new place.
        fn move_memory(from: u64, bytes: u64, to: u64) {
            let (from, to) = (from as *mut libc::c_void, to as *mut libc::c_void);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: memory of a test's own, to a place of its own.
            let moved = unsafe { libc::mremap(from, bytes as usize, bytes as usize, flags, to) };
            assert_eq!(moved, to, "{}", std::io::Error::last_os_error());
        }

        fn mapping(&self) -> Mapping {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            Mapping { start: self.start, end: self.start + self.bytes(), protection, ..Mapping::default() }
        }

        fn bytes(&self) -> u64 {
            self.count * self.distance * PAGE
        }

        fn word(&self, spot: u64) -> &AtomicU64 {
            assert!(spot < self.count);
            // SAFETY: the page is within the mapping, aligned, and written by nothing but atomics as long as `self` lives.
            unsafe { AtomicU64::from_ptr((self.start + spot * self.distance * PAGE) as *mut u64) }
        }

        fn write_all(&self) {
            for spot in 0..self.count {
                self.word(spot).fetch_add(1, Ordering::Relaxed);
            }
        }

        /// The runs that a scan finds, in its order.
        fn scanned(&self, scanner: &Scanner, query: &Query) -> Vec<Run> {
            let mut found = Vec::new();
            let range = self.start..self.start + self.bytes();
            scanner.scan(range, query, &mut |pages, categories| found.push((pages, categories))).unwrap();
            found
        }
    }

    impl Drop for Spots {
        fn drop(&mut self) {
            let memory = NonNull::new(self.start as *mut libc::c_void).expect("a mapping");
            // SAFETY: made by `new`; nothing refers to it any more.
            unsafe { munmap(memory, self.bytes() as usize) }.expect("it is mapped");
        }
    }

    fn own_scanner() -> Scanner {
        Scanner::open(std::process::id() as i32).unwrap()
    }

    #[test]
    fn each_written_page_is_found_once_however_many_runs_there_are() {
        let scanner = own_scanner();
        for count in [1, 511, 512, 513, 1023, 1024, 1025, 1536, 2047, 2048, 2049, 5000] {
            let Some(spots) = Spots::new(count, 2) else { return };
            let once: Vec<Range<u64>> = (0..count).map(|spot| 2 * spot..2 * spot + 1).collect();
            for _ in 0..3 {
                spots.write_all();
                let found = spots.scanned(&scanner, &scanner.changes());
                assert!(found.iter().all(|(_, categories)| categories & IS_WRITTEN != 0), "{count} runs");
                let found: Vec<_> = found.into_iter().map(|(pages, _)| pages).collect();
                assert_eq!(found, once, "{count} runs");
                let written = Query { flags: 0, mask: IS_WRITTEN, any_of: THERE, report: IS_WRITTEN };
                assert_eq!(spots.scanned(&scanner, &written), [], "{count} runs");
            }
        }
    }

    /// Has a thread write to each page once while it looks at them again and again, and copies what `take` finds written: when
    /// nobody writes any more the copy must be the memory. So often.
    fn copy_while_it_is_written(spots: &Spots, rounds: u32, take: impl Fn() -> Census) {
        let mut copy = vec![0; spots.count as usize];
        let look = |copy: &mut [u64]| {
            let written = take().written.expect("it is tracked");
            for spot in (0..spots.count).filter(|spot| written.contains(spot * spots.distance)) {
                copy[spot as usize] = spots.word(spot).load(Ordering::Relaxed);
            }
        };
        for round in 0..rounds {
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| spots.write_all());
                while !writer.is_finished() {
                    look(&mut copy);
                }
            });
            look(&mut copy);
            let is_missing = |&spot: &u64| copy[spot as usize] != spots.word(spot).load(Ordering::Relaxed);
            let missing: Vec<u64> = (0..spots.count).filter(is_missing).collect();
            assert!(missing.is_empty(), "round {round}: of {} spots these were never found: {missing:?}", spots.count);
        }
    }

    #[test]
    fn what_is_written_is_seen_after_memory_was_moved_beside_it() {
        let scanner = own_scanner();
        let (Some(spots), Some(elsewhere)) = (Spots::new(64, 1), Spots::new(32, 1)) else { return };
        spots.write_all();
        let of = |start, bytes| Mapping { start, end: start + bytes, ..spots.mapping() };
        let half = spots.bytes() / 2;
        let behind = of(spots.start + half, half);
        // The second half goes away, is tracked where it is, and comes back: the two are one mapping again, which is not tracked.
        Spots::move_memory(behind.start, half, elsewhere.start);
        spots.tracker.watch(&scanner, &of(elsewhere.start, half)).unwrap().unwrap();
        assert!(scanner.take_census(&of(spots.start, half)).unwrap().is_some());
        Spots::move_memory(elsewhere.start, half, behind.start);
        // Or not, with a kernel that lets go of what was moved alone.
        for (mapping, words) in [(of(spots.start, half), 0..32), (behind, 32..64)] {
            if scanner.take_census(&mapping).unwrap().is_none() {
                for spot in words {
                    spots.word(spot).fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(spots.tracker.watch(&scanner, &mapping).unwrap(), Ok(()));
            }
        }
        for spot in [0, 1, 31, 32, 63] {
            spots.word(spot).fetch_add(1, Ordering::Relaxed);
        }
        let seen =
            scanner.take_census(&spots.mapping()).unwrap().expect("it is tracked").written.expect("it is tracked");
        assert_eq!(seen.ranges().collect::<Vec<_>>(), [0..2, 31..33, 63..64]);
    }

    #[test]
    fn no_page_is_missed_that_is_written_during_a_scan() {
        let scanner = own_scanner();
        for count in [513, 1500, 2048, 3000] {
            let Some(spots) = Spots::new(count, 2) else { return };
            // Memory without pages may seem not to be tracked.
            spots.write_all();
            copy_while_it_is_written(&spots, 100, || scanner.take_census(&spots.mapping()).unwrap().unwrap());
        }
    }

    #[test]
    fn no_page_is_missed_that_is_written_while_changes_are_looked_for() {
        let scanner = own_scanner();
        // So far apart that each is a place of its own.
        for (count, distance) in [(1500, 2), (1500, 40), (3000, 40)] {
            let Some(spots) = Spots::new(count, distance) else { return };
            spots.write_all();
            let census = scanner.census(&spots.mapping()).unwrap();
            let there = There { present: census.present, guards: census.guards };
            copy_while_it_is_written(&spots, 100, || {
                let census = scanner.take_changes(&spots.mapping(), &there).unwrap().unwrap();
                assert_eq!(census.present, there.present);
                census
            });
        }
    }
}
