//! System V objects: found where a life that was killed has left them, or made again with their ids.
//!
//! A program knows them by ids, which the kernel gives out; who has CAP_CHECKPOINT_RESTORE may say which one is next. They are made by
//! remote calls, so that they belong to the processes of the job as before. An object that is there is the program's own if it has the
//! same id, key and creator since the same boot: an id is not given out twice before tens of thousands of others. What it holds
//! is put back.

mod memory;
mod objects;
mod queues;
mod semaphores;

pub use memory::{attach, attach_here, make as make_memory, settle as settle_memory};
pub use objects::Made;

use super::process::HalfBuilt;
use crate::error::Result;
use crate::image::JobImage;
use crate::proc::sysvipc::Kind;
use objects::{find, in_use};

/// Makes semaphores and queues, and puts back what all of them hold. Needs the scratch areas.
pub fn make_others(processes: &mut [HalfBuilt], job: &JobImage, made: &mut Made) -> Result<()> {
    semaphores::make(processes, job, made)?;
    queues::make(processes, job, made)
}

/// Refuses ids and keys that others have by now, or that cannot be had.
pub fn check(job: &JobImage) -> Result<()> {
    let objects = &job.objects;
    for memory in &objects.sysv_memory {
        let row = find(job, Kind::Memory, &memory.identity, ("size", memory.bytes))?;
        if let Some(row) = row.filter(|row| row.number("nattch") > 0) {
            let why = format!("{} processes have attached it", row.number("nattch"));
            return Err(in_use(Kind::Memory, memory.identity.id, &why));
        }
    }
    for set in &objects.sysv_semaphores {
        find(job, Kind::Semaphores, &set.identity, ("nsems", set.values.len() as u64))?;
    }
    for queue in &objects.sysv_queues {
        find(job, Kind::Queue, &queue.identity, ("key", queue.identity.key as i64 as u64))?;
    }
    Ok(())
}
