//! Copying what is needed of packs that are mostly not.
//!
//! A pack of which less than half is needed costs less to copy than it gives back. The copies are in packs with a higher
//! number, so they are where everybody finds the pages from then on.

use super::{Reach, Reclaimed};
use crate::{
    Attempt, PageKey, Result,
    attempt::begin,
    files::PackName,
    key_table::Place,
    pack,
    store::{Store, copy::copy_window},
};

/// Pages copied at once: 16 MiB.
const WINDOW_PAGES: usize = 1 << 12;

/// Copies what is reached of the packs that are worth it. Nobody needs those packs any more; returns how many they are.
pub(super) fn repack(store: &Store, reach: &mut Reach, reclaimed: &mut Reclaimed) -> Result<usize> {
    let worth_it = candidates(store, reach);
    if worth_it.is_empty() {
        return Ok(0);
    }
    let mut attempt = begin::begin_copy(&store.shared, "prune")?;
    let mut emptied = Vec::new();
    for (position, name) in worth_it {
        match copy_pack(store, reach, &mut attempt, position, name) {
            Ok(()) => emptied.push(position),
            Err(error) if error.is_corrupt() => reclaimed.problems.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let id = attempt.id();
    reclaimed.copied_bytes += attempt.retire()?;
    emptied.iter().for_each(|position| reach.leave(*position));
    let index = store.shared.index();
    for (position, pack) in index.packs().filter(|(_, pack)| pack.name.attempt == id) {
        reach.reach_all(position, pack);
    }
    Ok(emptied.len())
}

fn candidates(store: &Store, reach: &Reach) -> Vec<(u32, PackName)> {
    let index = store.shared.index();
    let is_mostly_dead = |position: u32, pack: &pack::Pack| {
        reach.reaches(position) && reach.live_pages(position) * 2 < pack.page_count() && index.is_shared(position)
    };
    let packs = index.packs().filter(|(position, pack)| is_mostly_dead(*position, pack));
    packs.map(|(position, pack)| (position, pack.name)).collect()
}

fn copy_pack(store: &Store, reach: &Reach, attempt: &mut Attempt, position: u32, name: PackName) -> Result<()> {
    let shared = &store.shared;
    let trailer = pack::load(&shared.files, &shared.header.store_id, name)?;
    let live_page = |item: u32| reach.has_page(Place { pack: position, item });
    let pages = pack::page_items(&trailer.runs).zip(&trailer.page_keys);
    copy_pages(store, attempt, pages.filter(|(item, _)| live_page(*item)).map(|(_, key)| *key))?;
    let live_node = |item: u32| reach.has_node(Place { pack: position, item });
    let nodes: Vec<PageKey> =
        (0..).zip(&trailer.node_keys).filter(|(item, _)| live_node(*item)).map(|(_, key)| *key).collect();
    for keys in nodes.chunks(WINDOW_PAGES) {
        for (key, node) in keys.iter().zip(shared.read_nodes(keys)?) {
            attempt.copy_node(*key, &node)?;
        }
    }
    Ok(())
}

/// Copies pages into `attempt`.
pub(super) fn copy_pages(store: &Store, attempt: &mut Attempt, keys: impl Iterator<Item = PageKey>) -> Result<()> {
    let mut room = Vec::new();
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        let window: Vec<PageKey> = keys.by_ref().take(WINDOW_PAGES).collect();
        copy_window(store, attempt, &window, &mut room)?;
    }
    Ok(())
}
