//! The pages of files that the program maps shared and writable, where their files are not captured as a whole: those that
//! differ are put back, and the size if the file is shorter.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use super::file_comparison::read_padded;
use super::mapping_plan::{MappingPlan, Source};
use crate::error::{Error, Result};
use crate::image::{Backing, FileIdentity, JobImage, Region, path_of};
use crate::sparse;

const PAGE: u64 = PAGE_BYTES as u64;

/// Pages of the shared files that must be written, found and verified before anything is written.
#[derive(Debug)]
pub struct SharedPages {
    /// Region, counted over all processes, page in it, key.
    pages: Vec<(usize, u64, PageKey)>,
}

impl SharedPages {
    /// Finds the pages in which the mapped files differ from the checkpoint, and verifies them in the store.
    pub fn find(job: &JobImage, plan: &MappingPlan, store: &Store) -> Result<SharedPages> {
        let mut found = Vec::new();
        for (index, region, identity, file) in writable_mappings(job, plan) {
            let list = store.page_list(&region.pages)?;
            let mut content = [0; PAGE_BYTES];
            for page in pages_to_compare(region, identity, file, &list) {
                read_padded(file, identity.offset + page * PAGE, &mut content)
                    .map_err(|source| Error::io("read", path_of(&identity.path), source))?;
                let key = list.get(page);
                if store.digest().key_of(&content) != key {
                    read_page(store, key, &mut content)?;
                    found.push((index, page, key));
                }
            }
        }
        Ok(SharedPages { pages: found })
    }

    /// Writes them.
    pub fn write(&self, job: &JobImage, plan: &MappingPlan, store: &Store) -> Result<()> {
        for (index, region, identity, file) in writable_mappings(job, plan) {
            let failed = |source| Error::io("write the mapped pages of", path_of(&identity.path), source);
            if file.metadata().map_err(failed)?.len() < identity.size {
                file.set_len(identity.size).map_err(failed)?;
            }
            for &(_, page, key) in self.pages.iter().filter(|(of, ..)| *of == index) {
                let mut content = [0; PAGE_BYTES];
                read_page(store, key, &mut content)?;
                let start = identity.offset + page * PAGE;
                let bytes = identity.size.saturating_sub(start).min(PAGE) as usize;
                debug_assert!(page < region.bytes / PAGE);
                file.write_all_at(&content[..bytes], start).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Reads one page.
pub fn read_page(store: &Store, key: PageKey, into: &mut [u8; PAGE_BYTES]) -> Result<()> {
    if key.is_zero() {
        into.fill(0);
        return Ok(());
    }
    Ok(store.read_pages(&[key], into)?)
}

/// Pages of the region that may differ: those that lie within the file as it was, but for holes that were holes.
fn pages_to_compare(region: &Region, identity: &FileIdentity, file: &File, list: &PageList) -> Vec<u64> {
    let end = pages_within(region, identity);
    let Ok(data) = sparse::data_within(file, identity.offset..identity.offset + end * PAGE) else {
        return (0..end).collect();
    };
    let page = |offset: u64| offset - identity.offset;
    let there = data.iter().flat_map(|part| page(part.start) / PAGE..page(part.end).div_ceil(PAGE));
    let was_there = list.iter().map(|(page, _)| page).take_while(|page| *page < end);
    let mut all: Vec<u64> = there.chain(was_there).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Pages of the region that lie within the file as it was.
fn pages_within(region: &Region, identity: &FileIdentity) -> u64 {
    (region.bytes / PAGE).min(identity.size.saturating_sub(identity.offset).div_ceil(PAGE))
}

fn writable_mappings<'a>(
    job: &'a JobImage,
    plan: &'a MappingPlan,
) -> impl Iterator<Item = (usize, &'a Region, &'a FileIdentity, &'a File)> {
    let processes = job.processes.iter().zip(&plan.sources);
    let sources = processes.flat_map(|(process, sources)| process.regions.iter().zip(sources));
    sources.enumerate().filter_map(|(index, (region, source))| match (&region.backing, source) {
        (Backing::SharedFile { file: identity, .. }, &Source::SharedFile { file, may_write: true, .. }) => {
            Some((index, region, identity, plan.files.get(file)?))
        }
        _ => None,
    })
}
