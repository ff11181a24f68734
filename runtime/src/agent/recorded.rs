//! What the last checkpoint of a job says of its processes: by that an agent knows those again that an earlier one has found.

use ckpt_store::{AttemptState, Depth, Store};

use crate::capture::Recorded;
use crate::error::Result;
use crate::image;

/// The processes of the newest full checkpoint of `job`; none if it cannot be read.
pub fn recorded(store: &Store, job: &str) -> Vec<Recorded> {
    newest_of(store, job).unwrap_or_else(|error| {
        log::warn!("which processes the job had at its last checkpoint is not known: {error}");
        Vec::new()
    })
}

fn newest_of(store: &Store, job: &str) -> Result<Vec<Recorded>> {
    let rows = store.attempts()?;
    let is_one =
        |row: &&ckpt_store::AttemptRow| row.state == AttemptState::Sealed && row.depth == Depth::Full && row.is_of(job);
    let Some(newest) = rows.iter().rev().find(is_one) else { return Ok(Vec::new()) };
    let image = image::job_of(&store.manifest(newest.id)?)?;
    let of =
        |process: &image::ProcessImage| Recorded { pid: process.pid, instance: process.instance, users: process.uids };
    Ok(image.processes.iter().map(of).collect())
}
