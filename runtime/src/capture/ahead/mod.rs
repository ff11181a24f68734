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

use ckpt_store::{Attempt, PAGE_BYTES};

use super::lineage::{Lineage, ProcessLineage};
use super::pages::PageSource;
use super::priority;
use super::tracking::Scanner;
use super::unseen::Look;
use crate::error::Result;
use crate::page_set::PageSet;
use crate::proc::maps::{self, Mapping};

pub use copies::Copies;
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
///
/// # Errors
/// The store's: `attempt` has failed.
pub fn look(pids: &[i32], root: i32, lineage: &mut Lineage, attempt: &mut Attempt) -> Result<HashMap<i32, Ahead>> {
    let room_pages = lineage.copies_bytes / PAGE / pids.len().max(1) as u64;
    // Differences need all of the memory to hold still.
    let has_series = lineage.series.is_some();
    let mut copying: Vec<_> =
        pids.iter().filter(|pid| !has_series || **pid != root).map(|pid| Copying::new(*pid)).collect();
    let mut all: HashMap<i32, Ahead> = pids.iter().map(|pid| (*pid, Ahead::default())).collect();
    for round in 0..ROUNDS {
        for it in &mut copying {
            let known = lineage.processes.known(it.pid, root);
            it.go_on(known, room_pages, attempt)?;
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
    Ok(all)
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
    fn go_on(&mut self, known: Option<&mut ProcessLineage>, room_pages: u64, attempt: &mut Attempt) -> Result<()> {
        if !std::mem::take(&mut self.wants_more) {
            return Ok(());
        }
        let Some(known) = known else { return Ok(()) };
        let is_first = self.found_before == u64::MAX;
        let found = match written_since(self.pid, known, is_first) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => {
                log::debug!("copying pages of process {} ahead: {error}", self.pid);
                self.copies = None;
                return Ok(());
            }
        };
        let copies = self.copies.get_or_insert_with(|| Copies::with_room(room_pages));
        copies.forget(&found.latest);
        let Ok(source) = PageSource::open(self.pid) else { return Ok(()) };
        let pages = found.wanted.len();
        // Some is left for the next round, and the stop.
        if copies.have_room_for(pages + room_pages / 16) {
            let took = copies.add_of_running(&source, &found.wanted);
            known.costs.copied(pages, took);
        } else if known.costs.cloning_is_long(found.present) && pages * 2 <= found.present {
            // The threads that work for the attempt are started here, and are to run after the program from the beginning.
            std::thread::scope(|scope| {
                let storing = scope.spawn(|| {
                    priority::after_the_program();
                    copies.add_and_store(&source, &found.wanted, attempt)
                });
                storing.join().unwrap_or_else(|_| std::process::abort())
            })?;
        } else {
            self.copies = None;
            return Ok(());
        }
        self.wants_more = pages > FEW_PAGES && pages / 3 * 4 <= self.found_before;
        self.found_before = pages;
        Ok(())
    }
}

/// What a look at a process has found; pages are counted from address 0.
#[derive(Default)]
struct Found {
    /// Written since the last look.
    latest: PageSet,
    /// Written since the last look or, in the first round, since the last checkpoint, and still there.
    wanted: PageSet,
    /// How many there are.
    present: u64,
}

/// Looks at a process; nothing is found if nothing is known of it.
fn written_since(pid: i32, known: &mut ProcessLineage, is_first: bool) -> Result<Option<Found>> {
    let ProcessLineage { tracker: Some(tracker), unseen, base, .. } = known else { return Ok(None) };
    if base.is_empty() {
        return Ok(None);
    }
    let scanner = Scanner::open(pid)?;
    let mut mappings = maps::outline(pid)?;
    mappings.retain(is_copied);
    let mut found = Found::default();
    for (mapping, Look { census, latest }) in mappings.iter().zip(unseen.look_ahead(&scanner, tracker, &mappings)?) {
        let pages = mapping.pages();
        found.present += census.present.len();
        let since = if is_first { unseen.kept_for_full(&pages) } else { None };
        let wanted = since.as_ref().unwrap_or(&latest).intersection(&census.own.shifted(pages.start));
        wanted.ranges().for_each(|run| found.wanted.push(run));
        latest.ranges().for_each(|run| found.latest.push(run));
    }
    Ok(Some(found))
}

/// Whether pages of a mapping are copied ahead: it is private, not the kernel's, and not of huge pages, which are not watched.
fn is_copied(mapping: &Mapping) -> bool {
    !mapping.shared && !mapping.name.starts_with(b"[v") && !mapping.is_of_huge_pages()
}
