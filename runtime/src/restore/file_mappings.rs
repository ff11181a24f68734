//! Decides, before anything is built, what will be behind each region, and opens the files for it.
//!
//! A private mapping shows today's file wherever the program has no page of its own. If the file's pages are what
//! they were (by digest), the file is mapped again: libraries stay shared and nothing of them is written. If a page
//! differs, or the file is shorter or missing (a package was upgraded), the region becomes anonymous memory with the
//! pages of the checkpoint, which are all in the store. The same goes for shared mappings that can never be written. What the restart
//! itself puts back into a file is not compared: the program has written it since, and a private mapping is to show what it will be.
//!
//! A shared mapping of a file that can be written is a mapping of that file or nothing.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use ckpt_store::{PAGE_BYTES, Store};

use super::file_comparison::first_difference;
use super::huge_pages;
use super::io_urings;
use super::mapping_plan::{MappingPlan, Opened, Source};
use super::reach::{self, Holders, Identity, Rights, Spot};
use super::unlinked_files;
use crate::error::{Error, Result};
use crate::image::{
    Backing, FileIdentity, FileKind, JobImage, PageRange, ProcessImage, Region, SharedObject, UnlinkedFile, path_of,
};

const PAGE: u64 = PAGE_BYTES as u64;

impl MappingPlan {
    /// Decides for all regions of all processes. `compared` is told the bytes of each region that has been dealt with. Unlinked files that cannot
    /// be made where they were are made in `spare_directory`.
    pub fn new(
        job: &JobImage,
        store: &Store,
        spare_directory: &Path,
        compared: &mut dyn FnMut(u64),
    ) -> Result<MappingPlan> {
        let mut plan = MappingPlan { objects: vec![None; job.objects.memory.len()], ..MappingPlan::default() };
        let (holders, put_back) = (Holders::of(job), PutBack::of(job));
        for (index, unlinked) in job.objects.unlinked_files.iter().enumerate() {
            let file = unlinked_files::make(unlinked, &holders.of_unlinked(index), store, spare_directory)?;
            let file = plan.keep(file);
            plan.unlinked.push(file);
        }
        for (index, file) in job.objects.files.iter().enumerate() {
            if let FileKind::IoUring(ring) = &file.kind {
                let made = plan.keep(io_urings::make(ring)?);
                plan.rings.push((index, made));
            }
        }
        // Those that are missing are made again: private mappings of them find them then.
        for process in &job.processes {
            for region in &process.regions {
                if let Backing::SharedFile { file: identity, may_write: true } = &region.backing {
                    plan.open_to_write(&holders, process, identity)?;
                }
            }
        }
        for process in &job.processes {
            let mut sources = Vec::with_capacity(process.regions.len());
            for region in &process.regions {
                sources.push(plan.decide((job, &put_back, &holders), process, region, store)?);
                compared(region.bytes);
            }
            plan.sources.push(sources);
            let executable = plan.open_executable(process);
            plan.executables.push(executable);
        }
        Ok(plan)
    }

    /// The numbers of the files in this process.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.files.iter().map(AsRawFd::as_raw_fd).collect()
    }

    fn decide(
        &mut self,
        (job, put_back, holders): (&JobImage, &PutBack<'_>, &Holders<'_>),
        image: &ProcessImage,
        region: &Region,
        store: &Store,
    ) -> Result<Source> {
        match &region.backing {
            Backing::Anonymous => Ok(Source::Memory),
            Backing::PrivateFile(identity) => {
                let mapped = match region.follows {
                    Some(object) => self.followed(job, object)?,
                    None => self.unchanged((put_back, holders), region, identity, store)?,
                };
                Ok(mapped.map_or(Source::Memory, |file| Source::PrivateFile { file, offset: identity.offset }))
            }
            Backing::SharedFile { file: identity, may_write: false } => {
                let mapped = self.unchanged((put_back, holders), region, identity, store)?;
                let offset = identity.offset;
                Ok(mapped.map_or(Source::Memory, |file| Source::SharedFile { file, offset, may_write: false }))
            }
            Backing::SharedFile { file: identity, may_write: true } => {
                let file = self.open_to_write(holders, image, identity)?;
                Ok(Source::SharedFile { file, offset: identity.offset, may_write: true })
            }
            &Backing::SharedObject { object, offset } => self.object(job, region, object as usize, offset),
        }
    }

    /// The file, if the region's pages that are not the program's own are still what it shows.
    fn unchanged(
        &mut self,
        (put_back, holders): (&PutBack<'_>, &Holders<'_>),
        region: &Region,
        identity: &FileIdentity,
        store: &Store,
    ) -> Result<Option<usize>> {
        let path = path_of(&identity.path);
        if identity.deleted {
            return Ok(None); // its path leads to another file, if to any
        }
        let file = match self.open(holders, &identity.path, Some(identity), false) {
            Ok(file) => file,
            Err(error) => {
                self.tell(path, format_args!("cannot be mapped ({error})"));
                return Ok(None);
            }
        };
        let put_back = put_back.pages(region, identity);
        if put_back.is_empty()
            && self.files[file].metadata().is_ok_and(|metadata| identity.is_surely_that_of(&metadata))
        {
            return Ok(Some(file));
        }
        let list = store.page_list(&region.pages)?;
        match first_difference(&self.files[file], (region, &put_back), identity, &list, store.digest()) {
            Ok(None) => Ok(Some(file)),
            Ok(Some(offset)) => {
                self.tell(path, format_args!("has changed at {offset:#x} since the checkpoint"));
                Ok(None)
            }
            Err(error) => {
                self.tell(path, format_args!("cannot be read ({error})"));
                Ok(None)
            }
        }
    }

    /// Says once of each file, which may be mapped in many parts and by many processes, that its pages come from the checkpoint.
    fn tell(&mut self, path: &Path, why: fmt::Arguments<'_>) {
        if self.told.insert(path.to_owned()) {
            log::warn!("{} {why}: its pages come from the checkpoint", path.display());
        }
    }

    /// With the rights of one that had it open or mapped.
    fn open(
        &mut self,
        holders: &Holders<'_>,
        path: &[u8],
        known: Option<&FileIdentity>,
        write: bool,
    ) -> io::Result<usize> {
        self.open_as(path, known, write, holders.of_path(path))
    }

    fn open_as(
        &mut self,
        path: &[u8],
        known: Option<&FileIdentity>,
        to_write: bool,
        rights: Vec<Rights>,
    ) -> io::Result<usize> {
        let is_it = |opened: &&Opened| opened.path == path && opened.to_write == to_write && opened.rights == rights;
        if let Some(opened) = self.opened.iter().find(is_it) {
            return Ok(opened.file);
        }
        let identity = known.map(|known| Identity { device: known.device, inode: known.inode });
        let file = Spot::reach(path_of(path), &rights)?.open_regular(to_write, identity)?;
        let place = self.keep(file);
        self.opened.push(Opened { path: path.to_vec(), to_write, rights, file: place });
        Ok(place)
    }

    fn keep(&mut self, file: File) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    fn open_to_write(&mut self, holders: &Holders<'_>, image: &ProcessImage, identity: &FileIdentity) -> Result<usize> {
        let path = path_of(&identity.path);
        match self.open(holders, &identity.path, Some(identity), true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => recreate(holders, image, identity)
                .and_then(|()| self.open(holders, &identity.path, None, true))
                .map_err(|source| reach::failed("make again for its mapping", path, source)),
            opened => opened.map_err(|source| reach::failed("open for its mapping", path, source)),
        }
    }

    fn object(&mut self, job: &JobImage, region: &Region, object: usize, offset: u64) -> Result<Source> {
        if let Some(file) = self.unlinked_object(job, object) {
            // It has its content already.
            return Ok(Source::SharedFile { file, offset, may_write: true });
        }
        let shared = &job.objects.memory[object];
        if let Some(segment) = shared.sysv {
            return Ok(Source::Sysv { segment: segment as usize, offset });
        }
        if let Some(ring) = shared.ring {
            let made = self.rings.iter().find(|(index, _)| *index == ring as usize).map(|(_, file)| *file);
            let missing = || Error::io("map", "an io_uring instance", io::ErrorKind::NotFound);
            return Ok(Source::Ring { file: made.ok_or_else(missing)?, offset });
        }
        let uses = |other: &Region| match other.backing {
            Backing::SharedObject { object: shown, .. } => shown as usize == object,
            _ => other.follows == Some(object as u32),
        };
        let only_one =
            job.processes.iter().flat_map(|process| &process.regions).filter(|other| uses(other)).count() == 1;
        let writable = region.protection & libc::PROT_WRITE != 0;
        if only_one && writable && shared.name.is_empty() && offset == 0 && shared.bytes == region.bytes {
            return Ok(Source::SharedMemory);
        }
        Ok(Source::Object { file: self.memory_file(job, object)?, offset })
    }

    /// The file behind a private mapping of a file without a path.
    fn followed(&mut self, job: &JobImage, object: u32) -> Result<Option<usize>> {
        let index = object as usize;
        let shared = &job.objects.memory[index];
        match self.unlinked_object(job, index) {
            Some(file) => Ok(Some(file)),
            None if shared.sysv.is_some() || shared.ring.is_some() => Ok(None),
            None => self.memory_file(job, index).map(Some),
        }
    }

    /// The unlinked file that a memory object is.
    fn unlinked_object(&self, job: &JobImage, object: usize) -> Option<usize> {
        let is_it = |unlinked: &UnlinkedFile| unlinked.object == Some(object as u32);
        job.objects.unlinked_files.iter().position(is_it).map(|unlinked| self.unlinked[unlinked])
    }

    /// The file of a memory object that only mappings lead to.
    fn memory_file(&mut self, job: &JobImage, object: usize) -> Result<usize> {
        let file = match self.objects[object] {
            Some(file) => file,
            None => {
                let object = &job.objects.memory[object];
                let file = self.keep(memory_object(object)?);
                if object.huge_page_bytes > 0 {
                    let failed = |source| Error::io("make the shared memory", "of huge pages", source);
                    let mapped = huge_pages::map(&self.files[file], object.bytes).map_err(failed)?;
                    self.of_huge_pages.insert(file, mapped);
                }
                file
            }
        };
        self.objects[object] = Some(file);
        Ok(file)
    }

    /// The executable, for a link that people and debuggers read. The program runs without it.
    fn open_executable(&mut self, image: &ProcessImage) -> Option<usize> {
        let opened = self.open_as(&image.executable, None, false, vec![Rights::of(image)]);
        if let Err(error) = &opened {
            let path = path_of(&image.executable).display();
            log::warn!("{path} cannot be opened ({error}): /proc/{}/exe will lead to ckpt", image.pid);
        }
        opened.ok()
    }
}

/// What this restart puts back into files, whatever they have there now.
#[derive(Debug)]
struct PutBack<'a> {
    /// Paths of files that get all of their content.
    captured: HashSet<&'a [u8]>,
    /// Pages of files that the job maps shared and writable.
    written: HashMap<&'a [u8], Vec<Range<u64>>>,
}

impl<'a> PutBack<'a> {
    fn of(job: &'a JobImage) -> PutBack<'a> {
        let captured = job.objects.captured_files.iter().map(|file| file.path.as_slice()).collect();
        let mut written: HashMap<&[u8], Vec<Range<u64>>> = HashMap::new();
        for region in job.processes.iter().flat_map(|process| &process.regions) {
            if let Backing::SharedFile { file, may_write: true } = &region.backing {
                let first = file.offset / PAGE;
                written.entry(&file.path).or_default().push(first..first + region.bytes / PAGE);
            }
        }
        written.values_mut().for_each(|ranges| ranges.sort_unstable_by_key(|range| range.start));
        PutBack { captured, written }
    }

    /// The pages of a region that are put back, ascending.
    fn pages(&self, region: &Region, identity: &FileIdentity) -> Vec<PageRange> {
        let (path, pages) = (identity.path.as_slice(), region.bytes / PAGE);
        if self.captured.contains(path) {
            return vec![PageRange { first: 0, count: pages }];
        }
        let view = identity.offset / PAGE..identity.offset / PAGE + pages;
        let within = self.written.get(path).into_iter().flatten().filter_map(|written| {
            let within = written.start.max(view.start)..written.end.min(view.end);
            (!within.is_empty())
                .then(|| PageRange { first: within.start - view.start, count: within.end - within.start })
        });
        within.collect()
    }
}

/// Makes the missing file of a shared mapping again, with its owner, mode and size.
fn recreate(holders: &Holders<'_>, image: &ProcessImage, identity: &FileIdentity) -> io::Result<()> {
    let path = path_of(&identity.path);
    let spot = Spot::reach(path, &holders.of_path(&identity.path))?;
    let file = spot.make(libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600, None)?;
    file.set_len(identity.size)?;
    reach::give(&file, path, (image.uids[1], image.gids[1]), identity.mode, &Rights::of(image))
}

fn memory_object(object: &SharedObject) -> Result<File> {
    let file = unlinked_files::memory_file(&object.name, false, object.huge_page_bytes)?;
    file.set_len(object.bytes).map_err(|source| Error::io("make the shared memory", path_of(&object.name), source))?;
    Ok(file)
}
