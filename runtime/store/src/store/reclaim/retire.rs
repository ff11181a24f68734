//! Which checkpoints are dropped, and how: a rename, which needs no room on a full disk.

use std::collections::{BTreeMap, HashMap};

use crate::{
    AttemptRow, AttemptState, Depth, Result,
    attempt::begin::Found,
    fault,
    files::{Kind, MANIFESTS},
    store::{Shared, Store},
};

/// All but the newest `keep` checkpoints of each job and depth, or of `job`, oldest first: many checkpoints of data must not
/// drive out the one that can be restarted, and one that is not complete drives out none. One with a damaged row is nobody's.
pub(super) fn choose(store: &Store, keep: usize, job: Option<&str>) -> Result<Vec<AttemptRow>> {
    let mut chosen: Vec<AttemptRow> = Vec::new();
    for (_, rows) in sealed_by_job(store, job)? {
        let complete = rows.iter().enumerate().rev().filter(|(_, row)| row.pending_bytes == 0);
        let oldest_kept = complete.map(|(place, _)| place).nth(keep.max(1) - 1);
        chosen.extend(rows.into_iter().take(oldest_kept.unwrap_or(0)));
    }
    chosen.sort_by_key(|row| row.id);
    Ok(chosen)
}

/// The sealed checkpoints of each job and depth, oldest first.
fn sealed_by_job(store: &Store, job: Option<&str>) -> Result<BTreeMap<(String, Depth), Vec<AttemptRow>>> {
    let mut jobs: BTreeMap<(String, Depth), Vec<AttemptRow>> = BTreeMap::new();
    for row in store.attempts()? {
        if row.state == AttemptState::Sealed && job.is_none_or(|job| row.is_of(job)) {
            jobs.entry((row.job.clone(), row.depth)).or_default().push(row);
        }
    }
    Ok(jobs)
}

/// Makes checkpoints vanish, durably: their manifests only say from now on that their packs count.
pub(super) fn retire(shared: &Shared, checkpoints: &[AttemptRow]) -> Result<()> {
    if checkpoints.is_empty() {
        return Ok(());
    }
    for row in checkpoints {
        let (sealed, retired) = (Kind::Manifest.name(row.id), Kind::Retired.name(row.id));
        shared.files.rename(&sealed, &retired, fault::RETIRED_RENAME)?;
    }
    shared.files.sync_dir(MANIFESTS, fault::MANIFESTS_SYNC)
}

/// Removes the rows of failed attempts that are older than everything their job keeps, and of those that were to move
/// pages. The highest number of all stays, so that it is not given again.
pub(super) fn forget_failures(store: &Store, job: Option<&str>) -> Result<()> {
    let jobs = sealed_by_job(store, job)?;
    let mut oldest: HashMap<&str, u64> = HashMap::new();
    for ((job, _), rows) in &jobs {
        let id = rows[0].id;
        oldest.entry(job).and_modify(|oldest| *oldest = id.min(*oldest)).or_insert(id);
    }
    let files = &store.shared.files;
    let _lock = files.lock()?;
    let found = Found::look(files)?;
    for row in store.every_attempt()? {
        let is_old = oldest.get(row.job.as_str()).is_some_and(|oldest| row.id < *oldest);
        if (is_old || row.is_housekeeping()) && row.state == AttemptState::Failed && row.id != found.highest_id() {
            for kind in [Kind::Writing, Kind::Failed] {
                files.remove(&kind.name(row.id), fault::FAILED_REMOVE)?;
            }
        }
    }
    Ok(())
}
