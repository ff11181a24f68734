//! Packs: the append-only files that hold page runs and nodes.

pub(crate) mod opened;
pub(crate) mod writer;

use crate::{
    Result,
    files::{Files, PackName},
    format::pack::{NodePlace, RUN_PAGES_MAX, Run, Trailer, read_trailer},
};

/// The places in one sealed pack. Its keys are in the index.
pub(crate) struct Pack {
    pub name: PackName,
    pub runs: Vec<Run>,
    pub nodes: Vec<NodePlace>,
}

impl Pack {
    /// Pages in all runs.
    pub fn page_count(&self) -> usize {
        self.runs.iter().map(|run| usize::from(run.pages)).sum()
    }
}

/// Reads the trailer of a pack.
pub(crate) fn load(files: &Files, store_id: &[u8; 16], name: PackName) -> Result<Trailer> {
    read_trailer(&files.open(&name.name())?, store_id, name)
}

/// The item number of a page, as tables keep it.
pub(crate) fn page_item(run: usize, page: usize) -> u32 {
    (run * RUN_PAGES_MAX + page) as u32
}

/// The run of a page's item number, and the page in that run.
pub(crate) fn run_and_page(item: u32) -> (usize, usize) {
    (item as usize / RUN_PAGES_MAX, item as usize % RUN_PAGES_MAX)
}

/// The item number of every page of these runs, in order.
pub(crate) fn page_items(runs: &[Run]) -> impl Iterator<Item = u32> {
    runs.iter().enumerate().flat_map(|(at, run)| (0..usize::from(run.pages)).map(move |page| page_item(at, page)))
}
