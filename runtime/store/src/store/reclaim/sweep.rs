//! Removing the packs that nobody needs.

use std::collections::BTreeSet;

use super::{Reach, Reclaimed};
use crate::{
    Result,
    attempt::begin::Found,
    fault,
    files::{Files, Kind, Lock, MANIFESTS, PACKS, PackName},
    store::{Shared, condemned},
};

/// Removes every pack that no checkpoint reaches; or condemns them, when attempts are running that may share from them.
/// Works off the lists of those that were condemned before.
pub(super) fn sweep(shared: &Shared, reach: &mut Reach, reclaimed: &mut Reclaimed) -> Result<()> {
    let lock = shared.files.lock()?;
    // In this order: an attempt that is not alive in `found` is sealed in `reach`, or else it needs nothing. One that seals itself
    // too late for `reach` is alive in `found`, so that its packs are condemned at most, and the next sweep sees it.
    let found = Found::look(&shared.files)?;
    reach.extend(shared)?;
    let mut sweep = Sweep { shared, lock: &lock, found, reach, reclaimed };
    sweep.lists()?;
    sweep.unreached()?;
    sweep.records()?;
    drop(lock);
    shared.reload()
}

struct Sweep<'a> {
    shared: &'a Shared,
    lock: &'a Lock,
    found: Found,
    reach: &'a Reach,
    reclaimed: &'a mut Reclaimed,
}

impl Sweep<'_> {
    /// Works off the lists whose attempts have all ended.
    fn lists(&mut self) -> Result<()> {
        let files = &self.shared.files;
        for (highest, packs) in condemned::lists(self.shared)? {
            if self.found.live.iter().any(|id| *id <= highest) {
                self.reclaimed.waiting_bytes += bytes_of(files, &packs)?;
                continue;
            }
            self.remove(packs.into_iter().filter(|name| self.is_unreached(*name)).collect())?;
            files.remove(&Kind::Condemned.name(highest), fault::CONDEMNED_REMOVE)?;
        }
        Ok(())
    }

    /// Removes or condemns what is on no list yet.
    fn unreached(&mut self) -> Result<()> {
        let mut packs: BTreeSet<PackName> = self.shared.index().packs().map(|(_, pack)| pack.name).collect();
        packs.retain(|name| self.is_unreached(*name));
        let lists = condemned::lists(self.shared)?;
        packs.retain(|name| lists.iter().all(|(_, listed)| !listed.contains(name)));
        if packs.is_empty() {
            return Ok(());
        }
        let highest = self.found.highest_id();
        if self.found.live.is_empty() {
            return condemned::announced(self.shared, self.lock, highest, || self.remove(packs));
        }
        self.reclaimed.waiting_bytes += bytes_of(&self.shared.files, &packs)?;
        packs.extend(lists.into_iter().filter(|(number, _)| *number == highest).flat_map(|(_, packs)| packs));
        condemned::write(self.shared, self.lock, highest, &packs)
    }

    fn remove(&mut self, packs: BTreeSet<PackName>) -> Result<()> {
        let files = &self.shared.files;
        self.reclaimed.removed_bytes += bytes_of(files, &packs)?;
        for name in &packs {
            files.remove(&name.name(), fault::PACK_REMOVE)?;
        }
        files.sync_dir(PACKS, fault::PACKS_SYNC)
    }

    /// A pack that is not in the index is damaged, or its attempt does not count: nobody knows what is in it.
    fn is_unreached(&self, name: PackName) -> bool {
        self.shared.index().position(name).is_some_and(|position| !self.reach.reaches(position))
    }

    /// Removes the records of retired attempts without packs. The highest number of all stays, so that it is not given
    /// again.
    fn records(&self) -> Result<()> {
        let files = &self.shared.files;
        let packs = files.list_packs()?;
        let highest = self.found.highest_id();
        for (id, _) in self.found.manifests.iter().filter(|(id, kind)| *kind == Kind::Retired && *id != highest) {
            if packs.iter().all(|pack| pack.attempt != *id) {
                files.remove(&Kind::Retired.name(*id), fault::RETIRED_REMOVE)?;
            }
        }
        files.sync_dir(MANIFESTS, fault::MANIFESTS_SYNC)
    }
}

/// The length of packs; one that is gone has none.
fn bytes_of(files: &Files, packs: &BTreeSet<PackName>) -> Result<u64> {
    let length =
        |name: &PackName| Ok(files.open_if_there(&name.name())?.map_or(0, |input| files.stored_bytes(input.length())));
    packs.iter().map(length).sum()
}
