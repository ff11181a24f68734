//! What is done ahead of a stop so that it is short.
//!
//! The flags of mappings cost a walk over all page tables, and hardly ever change: they are read before the stop, and taken if the
//! mappings are the same in it. Pages that have been written since the last checkpoint are copied, and those again that have been
//! written meanwhile, until these are few or do not become fewer; the stop then has to copy the last of them, and needs no clone.
//!
//! Nothing here changes what a checkpoint holds. Whatever has been copied counts only if the kernel says, while the program stands
//! still, that it has not been written since: see [`super::unseen::Unseen::look_ahead`].

mod copies;
mod cost;
mod flags;

use std::collections::HashMap;

use ckpt_store::PAGE_BYTES;

use super::page_set::PageSet;
use super::pages::PageSource;
use super::tracking::Scanner;
use super::{Lineage, ProcessLineage};
use crate::error::Result;
use crate::proc::maps::{self, Mapping};

pub use copies::{Copies, Keys};
pub use cost::Costs;
pub use flags::Flags;

const PAGE: u64 = PAGE_BYTES as u64;
/// Rounds of copying, at most.
const ROUNDS: u32 = 8;
/// So few pages are as well copied in the stop: they take a fraction of a millisecond.
const FEW_PAGES: u64 = 256;

/// What has been done ahead for one process.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The flags of its mappings.
    pub flags: Option<Flags>,
    /// Pages of it.
    pub copies: Option<Copies>,
}

/// Looks at processes of a job, which run; `root` is the first of them. What cannot be done ahead is left for the stop.
pub fn look(pids: &[i32], root: i32, lineage: &mut Lineage) -> HashMap<i32, Ahead> {
    let room_pages = lineage.copies_bytes / PAGE / pids.len().max(1) as u64;
    // Differences need all of the memory to hold still.
    let has_series = lineage.series.is_some();
    let mut copying: Vec<_> =
        pids.iter().filter(|pid| !has_series || **pid != root).map(|pid| Copying::new(*pid)).collect();
    let mut all: HashMap<i32, Ahead> = pids.iter().map(|pid| (*pid, Ahead::default())).collect();
    for round in 0..ROUNDS {
        for it in &mut copying {
            let known = lineage.processes.known(it.pid, root);
            it.go_on(known, room_pages);
        }
        if round == 0 {
            // Between the longest round and the others, so that they are as fresh as can be.
            pids.iter().for_each(|pid| all.entry(*pid).or_default().flags = Flags::read(*pid));
        }
        if !copying.iter().any(|it| it.wants_more) {
            break;
        }
    }
    for it in copying {
        all.entry(it.pid).or_default().copies = it.copies;
    }
    all
}

/// The pages of a process that runs, while they are copied.
struct Copying {
    pid: i32,
    copies: Option<Copies>,
    /// How many the round before has found.
    found_before: u64,
    wants_more: bool,
}

impl Copying {
    fn new(pid: i32) -> Copying {
        Copying { pid, copies: None, found_before: u64::MAX, wants_more: true }
    }

    /// Another round, if that helps.
    fn go_on(&mut self, known: Option<&mut ProcessLineage>, room_pages: u64) {
        if !std::mem::take(&mut self.wants_more) {
            return;
        }
        let is_first = self.found_before == u64::MAX;
        let found = known.map(|known| self.round(known, room_pages, is_first));
        match found {
            Some(Ok(Some(found))) => {
                self.wants_more = found > FEW_PAGES && found / 3 * 4 <= self.found_before;
                self.found_before = found;
            }
            Some(Ok(None)) | None => self.copies = None,
            Some(Err(error)) => {
                log::debug!("copying pages of process {} ahead: {error}", self.pid);
                self.copies = None;
            }
        }
    }

    /// Copies what has been written since the round before or, in the first one, since the last checkpoint. How many pages that
    /// were; none where they are not known, or too many.
    fn round(&mut self, known: &mut ProcessLineage, room_pages: u64, is_first: bool) -> Result<Option<u64>> {
        let ProcessLineage { tracker: Some(tracker), unseen, base, costs, .. } = known else { return Ok(None) };
        if base.is_empty() {
            return Ok(None);
        }
        let scanner = Scanner::open(self.pid)?;
        let mut written = PageSet::default();
        let mut wanted = PageSet::default();
        let mut mappings = maps::outline(self.pid)?;
        mappings.retain(is_copied);
        for (mapping, census) in mappings.iter().zip(unseen.look_ahead(&scanner, tracker, &mappings)?) {
            let pages = mapping.start / PAGE..mapping.end / PAGE;
            let latest = match census.written {
                Some(latest) => latest.shifted(pages.start),
                None => PageSet::of(pages.clone()),
            };
            let since = if is_first { unseen.kept_for_full(&pages) } else { None };
            let since = since.as_ref().unwrap_or(&latest).intersection(&census.own.shifted(pages.start));
            since.ranges().for_each(|run| wanted.push(run));
            latest.ranges().for_each(|run| written.push(run));
        }
        let copies = self.copies.get_or_insert_with(|| Copies::with_room(room_pages));
        copies.forget(&written);
        if !copies.have_room_for(wanted.len()) {
            return Ok(None);
        }
        let took = copies.add_of_running(&PageSource::open(self.pid)?, &wanted);
        costs.copied(wanted.len(), took);
        Ok(Some(wanted.len()))
    }
}

/// Whether pages of a mapping are copied ahead: it is private, and not the kernel's.
fn is_copied(mapping: &Mapping) -> bool {
    !mapping.shared && !mapping.name.starts_with(b"[v")
}
