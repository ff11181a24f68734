//! Writing a snapshot: page contents, page lists and regions, while the processes run on.
//!
//! Of each process all pages are read first, and its twin ends with the last one: as long as it is there, the program
//! copies each page that it writes to.

use std::sync::Arc;

use ckpt_store::{Attempt, PAGE_BYTES, PageList, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ahead::Copies;
use super::directories;
use super::files;
use super::pages::{self, PageSource};
use super::plan::{Base, Known};
use super::priority;
use super::read_ahead::{Wanted, read_ahead};
use super::request::Event;
use super::snapshot::{Frozen, Part, Snapshot, place};
use super::still::Still;
use super::tree::Series;
use crate::error::Result;
use crate::host;
use crate::image::{Backing, IMAGE_VERSION, JobImage, PageRange, Pending, ProcessImage, Region, StoredDifference};
use crate::page_set::PageSet;
use crate::ptrace::read_memory;

const PAGE: u64 = PAGE_BYTES as u64;

/// A snapshot whose pages are in the store.
#[derive(Debug)]
pub struct Written {
    /// The complete image.
    pub image: JobImage,
    /// What the next checkpoint builds on, of the memory of each process.
    pub bases: Vec<Base>,
    /// And of files.
    pub files: files::Known,
    /// Bytes of all pages that are not zero, as far as that is known.
    pub memory_bytes: u64,
    /// Bytes of pages that are to be stored behind the seal.
    pub pending_bytes: u64,
    /// The processes, those that have been stopped all the time among them.
    pub still: Vec<Still>,
    /// What each part of the stop took, ms.
    pub stop_phases_ms: Vec<(String, f64)>,
}

/// Writes all pages of `snapshot` into `attempt`; `series` is for memory of the first process that is stored finer.
pub fn write(
    snapshot: Snapshot,
    mut series: Option<&mut Series>,
    store: &Store,
    attempt: &mut Attempt,
    events: &mut dyn FnMut(Event),
) -> Result<Written> {
    let Snapshot { processes, mut objects, sysv, files, lost_leaders, mark, confinement, phases } = snapshot;
    if processes.iter().all(|process| !process.still.is_stopped()) {
        priority::after_the_program();
    }
    let to_read: u64 = processes.iter().flat_map(|process| &process.parts).map(|part| part.plan.read.len()).sum();
    let total_bytes = to_read * PAGE + files.bytes_to_read();
    let mut writer = Writer { store, attempt, events, done_bytes: 0, total_bytes, memory_bytes: 0, held: Vec::new() };
    let mut images = Vec::with_capacity(processes.len());
    let (mut bases, mut still) = (Vec::new(), Vec::new());
    for process in processes {
        let (image, base, holds) = writer.write(process, series.take())?;
        images.push(image);
        bases.push(base);
        still.push(holds);
    }
    let Writer { attempt, events, mut done_bytes, total_bytes, memory_bytes, .. } = writer;
    let files = files::store(files, attempt, &mut objects, &mut |bytes| {
        done_bytes += bytes;
        events(Event::Writing { done_bytes: done_bytes.min(total_bytes), total_bytes });
    })?;
    sysv.store(attempt, &mut objects)?;
    objects.directories = directories::on_the_way(&objects, images.iter());
    let mut image = JobImage {
        version: IMAGE_VERSION,
        host: host::with(confinement),
        objects,
        processes: images,
        lost_leaders,
        mark,
    };
    let pending_bytes: u64 = image.pending().map(|(_, pending)| pending.bytes()).sum();
    image.set_version();
    let (memory_bytes, stop_phases_ms) = (memory_bytes + pending_bytes, phases.into_taken_ms());
    Ok(Written { image, bases, files, memory_bytes, pending_bytes, still, stop_phases_ms })
}

/// Writes the memory of one process after another.
struct Writer<'a> {
    store: &'a Store,
    attempt: &'a mut Attempt,
    events: &'a mut dyn FnMut(Event),
    done_bytes: u64,
    total_bytes: u64,
    memory_bytes: u64,
    /// Content that several processes have, and its pages.
    held: Vec<(Arc<Vec<u8>>, PageList)>,
}

impl Writer<'_> {
    /// Writes the memory of `process`, and completes its image. A twin is at its end then.
    fn write(&mut self, process: Frozen, series: Option<&mut Series>) -> Result<(ProcessImage, Base, Still)> {
        let Frozen { mut image, parts, mut known, still } = process;
        let holder = still.holder();
        let source = still.source()?;
        let mut base = Base::new();
        if let (Some(series), Some(source)) = (series, &source) {
            image.differences = self.write_finer(&parts, source, series)?;
        }
        let mut lists: Vec<_> =
            parts.iter().map(|part| part.plan.list(known.remove(&part.draft.mapping.start))).collect();
        if let Still::Copied(copies) = &still {
            self.write_copies(copies, &parts, &mut lists)?;
        }
        if let Some(source) = &source {
            self.write_pages(source, &parts, &mut lists)?;
        }
        if let Some(holder) = holder {
            // A page that cannot be read counts as behind the end of its file, which is true unless its process was killed.
            read_memory(holder, image.control, &mut [0; 8])?;
            if matches!(still, Still::Twin(_)) {
                // It is waited for where it is dropped, which is long after its memory has been taken down.
                let _ = kill(Pid::from_raw(holder), Signal::SIGKILL);
            }
        }
        for (Part { draft, census, plan, finer, held }, mut list) in parts.into_iter().zip(lists) {
            if let Some(held) = held {
                list = self.write_held(&held, &plan.read, list)?;
                self.done_bytes += held.len() as u64;
            }
            self.memory_bytes += if finer { census.present.len() } else { list.page_count() } * PAGE;
            let pages = draft.mapping.bytes() / PAGE;
            let own = match draft.backing {
                Backing::PrivateFile(_) => census.own.clone(),
                _ => PageSet::default(),
            };
            image.regions.push(Region {
                address: draft.mapping.start,
                bytes: draft.mapping.bytes(),
                protection: draft.mapping.protection,
                backing: draft.backing,
                advice: draft.advice,
                name: draft.mapping.name,
                pages: self.attempt.write_page_list(&list)?,
                own_pages: page_ranges(&own),
                follows: draft.follows,
                guards: page_ranges(&census.guards),
                pending: draft
                    .file
                    .filter(|_| !plan.later.is_empty())
                    .map(|file| Pending { pages: page_ranges(&plan.later), file }),
                in_differences: finer,
            });
            if finer {
                continue; // where it is stored as pages the next time, nothing is known of it
            }
            let file = draft.file.map(|stamp| (stamp, draft.mapping.offset));
            base.insert(draft.mapping.start, Known { list, pages, own: census.own, file, pending: plan.later });
        }
        Ok((image, base, still))
    }

    /// Writes what was copied of `parts` into the store and into their lists.
    fn write_copies(&mut self, copies: &Copies, parts: &[Part], lists: &mut [PageList]) -> Result<()> {
        let mut wanted = PageSet::default();
        for part in parts.iter().filter(|part| part.held.is_none()) {
            part.pages_to_read().ranges().for_each(|run| wanted.push(run));
        }
        let Writer { attempt, events, done_bytes, total_bytes, .. } = self;
        let keys = copies.store(&wanted, attempt, &mut |bytes| {
            *done_bytes += bytes;
            events(Event::Writing { done_bytes: *done_bytes, total_bytes: *total_bytes });
        })?;
        for (part, list) in parts.iter().zip(lists).filter(|(part, _)| part.held.is_none()) {
            keys.add_to(list, part.draft.mapping.pages().start, &part.plan.read);
        }
        Ok(())
    }

    /// Adds the pages of `read`, whose bytes are in `held`, to `list`; at once if another process has had the same.
    fn write_held(&mut self, held: &Arc<Vec<u8>>, read: &PageSet, mut list: PageList) -> Result<PageList> {
        if let Some((_, known)) = self.held.iter().find(|(other, _)| Arc::ptr_eq(other, held)) {
            return Ok(known.clone());
        }
        pages::store_held(held, read, self.attempt, &mut list)?;
        if Arc::strong_count(held) > 1 {
            self.held.push((held.clone(), list.clone()));
        }
        Ok(list)
    }

    /// Writes the pages of `parts` that `source` has, into the store and into their lists.
    fn write_pages(&mut self, source: &PageSource, parts: &[Part], lists: &mut [PageList]) -> Result<()> {
        let to_read = |part: &&Part| part.held.is_none();
        let readable = |part: &Part| place(&part.draft).readable;
        // What the process itself may not read only its tracer can, which is this thread.
        for (part, list) in parts.iter().zip(&mut *lists).filter(|(part, _)| to_read(part) && !readable(part)) {
            for runs in pages::batches(&part.plan.read) {
                let mut bytes = vec![0; pages::bytes_of(&runs)];
                source.read_batch(&place(&part.draft), &runs, &mut bytes)?;
                let keys = self.attempt.write_pages(&bytes)?;
                pages::note(&mut keys.as_slice(), &runs, list);
                self.written(bytes.len());
            }
        }
        let (wanted, of): (Vec<Wanted<'_>>, Vec<usize>) = (parts.iter().enumerate())
            .filter(|(_, part)| to_read(part) && readable(part))
            .map(|(number, part)| ((place(&part.draft), &part.plan.read), number))
            .unzip();
        // The buffers together are some larger than what is best given at once, as that is a small part of what is allowed.
        let buffer_bytes = self.attempt.best_call_bytes() / 2;
        read_ahead(source, &wanted, buffer_bytes, &mut |bytes, pieces| {
            let keys = self.attempt.write_pages(bytes)?;
            let mut keys = keys.as_slice();
            for piece in pieces {
                pages::note(&mut keys, &piece.runs, &mut lists[of[piece.of]]);
            }
            self.written(bytes.len());
            Ok(())
        })
    }

    fn written(&mut self, bytes: usize) {
        self.done_bytes += bytes as u64;
        (self.events)(Event::Writing { done_bytes: self.done_bytes, total_bytes: self.total_bytes });
    }

    /// Writes those of `parts` that are stored finer than a page.
    fn write_finer(
        &mut self,
        parts: &[Part],
        source: &PageSource,
        series: &mut Series,
    ) -> Result<Vec<StoredDifference>> {
        let mappings: Vec<_> = parts.iter().filter(|part| part.finer).map(|part| (&part.draft, &part.census)).collect();
        let Writer { store, attempt, events, done_bytes, total_bytes, .. } = self;
        let (done_before, total_before) = (*done_bytes, *total_bytes);
        series.store(&mappings, source, store, attempt, &mut |done, of| {
            (*done_bytes, *total_bytes) = (done_before + done, total_before + of);
            events(Event::Writing { done_bytes: *done_bytes, total_bytes: *total_bytes });
        })
    }
}

fn page_ranges(set: &PageSet) -> Vec<PageRange> {
    set.ranges().map(|run| PageRange { first: run.start, count: run.end - run.start }).collect()
}
