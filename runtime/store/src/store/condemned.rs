//! Condemned packs: they will be removed when no attempt that may share from them lives any more.
//!
//! `manifests/H.condemned` lists packs that no checkpoint reached when H was the highest number given. Attempts begun
//! later do not share from them. So when all attempts up to H have ended, whoever needs such a pack is sealed and can be
//! seen; what nobody reaches then is removed. Lists are written, changed and worked off under the store's lock, under
//! which attempts begin. When no attempt lives, packs are removed at once and no list is needed.

use std::collections::BTreeSet;

use super::Shared;
use crate::{
    Result, fault,
    files::{Kind, Lock, MANIFESTS, Output, PackName},
    format::condemned,
    index::read_condemned,
};

/// Writes list `highest`, in place of one that may be there. What it has no room for is condemned another time: who may
/// share from a pack on list `highest` may also share from it when it is on none.
pub(super) fn write(shared: &Shared, _lock: &Lock, highest: u64, packs: &BTreeSet<PackName>) -> Result<()> {
    let (files, new) = (&shared.files, Kind::Condemning.name(highest));
    let mut output = begin_list(shared, &new)?;
    let packs: Vec<PackName> = packs.iter().copied().take(condemned::PACKS_MAX).collect();
    output.append(&condemned::encode(&packs), fault::CONDEMNED_WRITE)?;
    output.sync(fault::CONDEMNED_SYNC)?;
    files.rename(&new, &Kind::Condemned.name(highest), fault::CONDEMNED_RENAME)?;
    files.sync_dir(MANIFESTS, fault::MANIFESTS_SYNC)
}

fn begin_list(shared: &Shared, new: &str) -> Result<Output> {
    shared.files.remove(new, fault::LEFTOVER_REMOVE)?;
    shared.files.create(new, fault::CONDEMNED_CREATE)
}

/// Runs `change` so that every process looks at the names again before its next attempt: between the first and the last
/// line the names of manifests change, and whoever ends in between leaves a file that the next attempt to begin removes.
pub(super) fn announced<T>(
    shared: &Shared,
    _lock: &Lock,
    highest: u64,
    change: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let new = Kind::Condemning.name(highest);
    drop(begin_list(shared, &new)?);
    let changed = change()?;
    shared.files.remove(&new, fault::CONDEMNED_REMOVE)?;
    Ok(changed)
}

/// The lists there are, by their numbers.
pub(super) fn lists(shared: &Shared) -> Result<Vec<(u64, BTreeSet<PackName>)>> {
    let names = shared.files.list_kinds(MANIFESTS)?;
    let lists = read_condemned(&shared.files, &names)?;
    Ok(lists.into_iter().map(|(highest, packs)| (highest, packs.into_iter().collect())).collect())
}

/// Takes packs off the lists: an attempt that lives needs them, for pages that were sealed after they were condemned.
/// Lists that are written from here on have a higher number than that attempt.
pub(crate) fn pardon(shared: &Shared, needed: &BTreeSet<PackName>) -> Result<()> {
    let lock = shared.files.lock()?;
    for (highest, packs) in lists(shared)? {
        if !packs.is_disjoint(needed) {
            write(shared, &lock, highest, &(&packs - needed))?;
        }
    }
    drop(lock);
    shared.reload()
}
